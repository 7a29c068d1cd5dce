// The update engine: the array's products and cycles, and the whole engine from
// aggregated rows to output rows.
#include <vector>

#include "check.hpp"
#include "gnnscale_fpga/functions.hpp"
#include "kernels/deal.hpp"
#include "kernels/rows.hpp"

namespace gnnscale::fpga {
namespace {

// Small whole numbers, whose products and sums are exact.
float number(int i) { return static_cast<float>(i * 7 % 11 - 5); }

constexpr int kVertices = 40;  // 48 with those that fill up
constexpr int kColumns = 2;
constexpr int kWordsOut = 3;

// A of [kVertices][kColumns * 16], W of [kColumns * 16][kWordsOut * 16], and dZ.
float value_of(int row, int column) { return row < kVertices ? number(row * 3 + column) : 0; }
float weight_of(int row, int column) { return number(row * 5 + column * 2 + 1); }
float gradient_of(int row, int column) { return row < kVertices ? number(row + column * 4) : 0; }

Task task_of(Mode mode) {
  Task task = {};
  task.mode = mode;
  task.passes = task.words_in = kColumns;
  task.words_out = kWordsOut;
  task.slots = 1;
  task.num_rows = task.stage_rows = kVertices;
  return task;
}

// What the array takes from its left and its right, a block a cycle.
template <class D>
void send_left(Task task, Blocks<Left<D>>& out) {
  const int rows = turns_of<D>(task) * D::kRows;
  const bool transposes = task.mode == Mode::weight_gradients;
  const bool forward = task.mode == Mode::forward;
  const int number = transposes ? blocks_of<D>(task) : parts_of(task);
  const int group = transposes ? kLanes : rows;
  for (int part = 0; part < number; ++part) {
    const int column = transposes ? part / (kLanes / D::kSliceRows) : part;
    for (int begin = 0; begin < padded(kVertices); begin += group) {
      for (int j = 0; j < (forward || transposes ? 1 : kWordsOut); ++j) {
        WriteLock<Left<D>> block(out);
        for (int i = 0; i < group * kLanes; ++i) {
          const int row = begin + i / kLanes, lane = i % kLanes;
          block[i / kLanes].lane[lane] = forward || transposes
                                             ? value_of(row, column * kLanes + lane)
                                             : gradient_of(row, j * kLanes + lane);
        }
      }
    }
  }
}

template <class D>
void send_right(Task task, Blocks<Right<D>>& out) {
  const bool transposes = task.mode == Mode::weight_gradients;
  const int number = transposes ? blocks_of<D>(task) * padded(kVertices) / kLanes : parts_of(task);
  for (int part = 0; part < number; ++part) {
    WriteLock<Right<D>> block(out);
    for (int i = 0; i < kLanes * kWordsOut * kLanes; ++i) {
      const int row = i / (kWordsOut * kLanes), column = i % (kWordsOut * kLanes);
      const int vertex = part % (padded(kVertices) / kLanes) * kLanes + row;
      block[row][column / kLanes].lane[column % kLanes] =
          transposes ? gradient_of(vertex, column) : weight_of(part * kLanes + row, column);
    }
  }
}

// The sums of a word of the output, as a plain loop finds them.
float product(int row, int part, int column) {
  float sum = 0;
  for (int k = part * kLanes; k < (part + 1) * kLanes; ++k) {
    sum += value_of(row, k) * weight_of(k, column);
  }
  return sum;
}
float row_gradient(int row, int k) {
  float sum = 0;
  for (int j = 0; j < kWordsOut * kLanes; ++j) sum += gradient_of(row, j) * weight_of(k, j);
  return sum;
}
float weight_gradient(int k, int column) {
  float sum = 0;
  for (int row = 0; row < kVertices; ++row) sum += value_of(row, k) * gradient_of(row, column);
  return sum;
}

// Takes the sums a cycle after they are there, and compares them.
template <class D>
void take_products(Task task, Blocks<Sums<D>>& in) {
  const bool forward = task.mode == Mode::forward;
  const int group = turns_of<D>(task) * D::kRows;
  const int sets = sets_of<D>(task);
  for (int part = 0; part < kColumns; ++part) {
    for (int begin = 0; begin < padded(kVertices); begin += group) {
      ReadLock<Sums<D>> sums(in);
      for (int i = 0; i < group && begin + i < kVertices; ++i) {
        const int words = forward ? kWordsOut : 1;
        for (int column = 0; column < words * kLanes; ++column) {
          const int at = i / D::kRows * words * sets + column / kLanes;
          float found = 0;
          for (int set = 0; set < sets; ++set) {
            found += sums[i % D::kRows][at + set].lane[column % kLanes];
          }
          const float expected = forward ? product(begin + i, part, column)
                                         : row_gradient(begin + i, part * kLanes + column);
          CHECK(found == expected);
        }
      }
      clock_cycle();
    }
  }
}

template <class D>
void take_gradients(Task task, Blocks<Sums<D>>& in) {
  const int turns = min_of(turns_of<D>(task), padded(kVertices) / D::kSlices);
  for (int block = 0; block < blocks_of<D>(task); ++block) {
    ReadLock<Sums<D>> sums(in);
    for (int row = 0; row < D::kSliceRows; ++row) {
      for (int column = 0; column < kWordsOut * kLanes; ++column) {
        float found = 0;
        for (int i = 0; i < D::kSlices * turns; ++i) {
          const int at = i / D::kSlices * kWordsOut + column / kLanes;
          found += sums[i % D::kSlices * D::kSliceRows + row][at].lane[column % kLanes];
        }
        CHECK(found == weight_gradient(block * D::kSliceRows + row, column));
      }
    }
    clock_cycle();
  }
}

// Returns the cycles until the last sums were taken.
template <class D>
int64_t run_array(Mode mode, int64_t& multiplying) {
  const Task task = task_of(mode);
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  BLOCKS(Left<D>, left, 3);
  BLOCKS(Right<D>, right, 3);
  BLOCKS(Sums<D>, sums, 2);
  Dataflow region;
  region.add("left", -1, send_left<D>, task, left);
  region.add("right", -1, send_right<D>, task, right);
  region.add("multiply", -1, multiply<D>, task, left, right, sums);
  if (mode == Mode::weight_gradients) {
    region.add("take", -1, take_gradients<D>, task, sums);
  } else {
    region.add("take", -1, take_products<D>, task, sums);
  }
  region.run();
  multiplying = simulation.counted(Count::multiplying);
  return simulation.now();
}

// Blocks are there in cycle 1, and the array never waits: after its steps, the
// last sums are there a cycle later, and taken in that cycle.
template <class D>
void array() {
  int64_t multiplying = 0;
  // Forward, kRows rows take turns with two others, since three words are not 8: 16 columns of
  // 3 words for each. That is |V| f f' / m of HitGNN's equation 9, in whole blocks.
  const int forward = kColumns * words_of(48, 3 * D::kRows) * kLanes * 3 * kWordsOut;
  CHECK(run_array<D>(Mode::forward, multiplying) == 1 + forward + 2);
  CHECK(multiplying == forward);
  // On the way back kMaxTurns rows take turns, or all there are, each 48 columns to one word.
  const int turns = min_of(D::kMaxTurns, words_of(48, D::kRows));
  const int groups = words_of(48, turns * D::kRows);
  const int backward = kColumns * groups * kWordsOut * kLanes * turns;
  CHECK(run_array<D>(Mode::backward, multiplying) == 1 + backward + 2);
  CHECK(multiplying == backward);
  // The gradients of 32 rows of weights, kSliceRows at a time: kSlices of the 48 vertices in a
  // step.
  const int weights = 32 / D::kSliceRows * 48 / D::kSlices * kWordsOut;
  CHECK(run_array<D>(Mode::weight_gradients, multiplying) == 1 + weights + 2);
  CHECK(multiplying == weights);
}

template <class D>
void send_aggregated(Stream<Word> (&out)[D::kPes]) {
  for (int i = 0; i < kColumns * padded(kVertices); i += D::kPes) {
    for (int pe = 0; pe < D::kPes; ++pe) {
      const int row = (i + pe) % padded(kVertices), column = i / padded(kVertices);
      Word word;
      for (int lane = 0; lane < kLanes; ++lane) {
        word.lane[lane] = value_of(row, column * kLanes + lane);
      }
      out[pe].write(word);
    }
    clock_cycle();
  }
}

// From aggregated rows to output rows: ReLU(A W + 3), after A in the banks.
template <class D>
void whole_engine() {
  static Word rows[D::kBanks][D::kRowWords / D::kBanks];
  std::vector<Word> weights(kColumns * kLanes * kWordsOut, filled(0.0F));
  for (int i = 0; i < static_cast<int>(weights.size()) * kLanes; ++i) {
    weights[static_cast<size_t>(i / kLanes)].lane[i % kLanes] =
        weight_of(i / (kWordsOut * kLanes), i % (kWordsOut * kLanes));
  }
  weights.insert(weights.end(), kWordsOut, filled(3.0F));
  Task task = task_of(Mode::forward);
  task.kept = {0, kColumns, 0};
  task.rows = kColumns * words_of(padded(kVertices), D::kBanks);
  task.how = {true, false, 0, 1.0F, 0};
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  STREAMS(Word, gathered, D::kPes, 2, 1);
  STREAM(Word, own, 2, 1);
  STREAMS(Word, keeping, D::kBanks, 4, 1);
  STREAMS(Word, kept, D::kBanks, 4, 1);
  STREAMS(Word, to_left, D::kBanks, 4, 1);
  STREAMS(Word, to_right, D::kBanks, 4, 1);
  STREAM(Word, kept_sums, 2, 1);
  STREAMS(Word, bias, D::kBanks, 2, 1);
  STREAM(Word, bias_gradient, 2, 1);
  STREAM(Word, vertices, 2, 1);
  STREAMS(Product, products, D::kBanks, 4, 16);
  STREAM(Row, gradients, 2, 1);
  STREAM(Word, weight_gradients, 2, 1);
  STREAMS(Word, stored, D::kBanks, 4, 1);
  STREAMS(Word, returned, D::kBanks, 4, 1);
  STREAMS(Word, sources, D::kBanks, 4, 1);
  BLOCKS(Left<D>, left, 3);
  BLOCKS(Right<D>, right, 3);
  BLOCKS(Sums<D>, sums, 2);
  Dataflow region;
  region.add("send", -1, send_aggregated<D>, gathered);
  region.add("fill_left", -1, fill_left<D, false>, task, gathered, own, static_cast<Word*>(nullptr),
             keeping, kept, to_left, kept_sums, left);
  region.add("fill_right", -1, fill_right<D>, task, weights.data(), to_right, bias, bias_gradient,
             right);
  region.add("multiply", -1, multiply<D>, task, left, right, sums);
  region.add("deal", -1, deal<D, Row>, task, vertices, kept_sums, sums, products, gradients,
             weight_gradients);
  for (int bank = 0; bank < D::kBanks; ++bank) {
    region.add("keep_rows", bank, keep_rows<D, WeightedSum>, task, bank, rows[bank], bias[bank],
               products[bank], keeping[bank], stored[bank], to_right[bank], kept[bank],
               returned[bank], to_left[bank], sources[bank]);
  }
  region.run();
  for (int v = 0; v < kVertices; ++v) {
    const Word* bank = rows[v % D::kBanks];
    for (int column = 0; column < kWordsOut * kLanes; ++column) {
      const float sum = 3 + product(v, 0, column) + product(v, 1, column);
      const Word& word = bank[task.rows + v / D::kBanks * kWordsOut + column / kLanes];
      CHECK(word.lane[column % kLanes] == (sum <= 0 ? 0 : sum));
    }
    for (int k = 0; k < kColumns * kLanes; ++k) {
      const int first = k / kLanes * words_of(padded(kVertices), D::kBanks);
      CHECK(bank[first + v / D::kBanks].lane[k % kLanes] == value_of(v, k));
    }
  }
  CHECK(simulation.counted(Count::weight_words) == static_cast<int64_t>(weights.size()));
}

template <class D>
void all_of() {
  array<D>();
  whole_engine<D>();
}

}  // namespace
}  // namespace gnnscale::fpga

int main() {
  using namespace gnnscale::fpga;
  all_of<Design<1, 16>>();
  all_of<Design<2, 64>>();
  all_of<Design<8, 512>>();
  all_of<Design<1, 2048>>();
  all_of<Design<16, 2048>>();
  all_of<Design<16, 16>>();
  return check_result();
}
