// Tests of the update engine: the array's products and cycles, and the full engine from aggregated
// rows to output rows.
#include <vector>

#include "check.hpp"
#include "gnnscale_fpga/functions.hpp"
#include "kernels/fill_left.hpp"
#include "kernels/fill_right.hpp"
#include "kernels/multiply.hpp"
#include "kernels/result_routing.hpp"
#include "kernels/rows.hpp"

namespace gnnscale::fpga {
namespace {

// Small integers, whose products and sums are exact.
float number(int i) { return static_cast<float>(i * 7 % 11 - 5); }

constexpr int kVertices = 40;  // padded to 48
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

// Sends the left and right operands as fast as the array takes them.
template <class D>
void send_left(Task task, Stream<Word> (&out)[D::kLefts]) {
  const Blocks<D> blocks(task);
  const bool transposes = task.mode == Mode::weight_gradients;
  const bool rows_of_input = transposes || task.mode == Mode::forward;
  for (int part = 0; part < blocks.parts; ++part) {
    const int column = transposes ? part / (kLanes / D::kSliceRows) : part;
    for (int begin = 0; begin < blocks.rows; begin += blocks.group_rows) {
      for (int j = 0; j < blocks.columns; ++j) {
        for (int row = begin; row < min_of(begin + blocks.group_rows, blocks.rows); ++row) {
          Word word;
          for (int lane = 0; lane < kLanes; ++lane) {
            word.lane[lane] = rows_of_input ? value_of(row, column * kLanes + lane)
                                            : gradient_of(row, j * kLanes + lane);
          }
          out[row % D::kLefts].write(word);
        }
      }
    }
  }
}

template <class D>
void send_right(Task task, Stream<Word> (&out)[D::kSlices]) {
  const bool transposes = task.mode == Mode::weight_gradients;
  const int times = transposes ? blocks_of<D>(task) : 1;
  const int rows = transposes ? padded(kVertices) : parts_of(task) * kLanes;
  const int step = transposes ? D::kSlices : 1;
  for (int i = 0; i < times * rows; i += step) {
    for (int j = 0; j < kWordsOut; ++j) {
      for (int slice = 0; slice < step; ++slice) {
        const int row = i % rows + slice;
        Word word;
        for (int lane = 0; lane < kLanes; ++lane) {
          word.lane[lane] =
              transposes ? gradient_of(row, j * kLanes + lane) : weight_of(row, j * kLanes + lane);
        }
        out[slice].write(word);
      }
    }
  }
}

// Returns the sums of an output word by a plain loop.
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

// Takes the sums as they leave, and compares them.
template <class D>
void take_products(Task task, Stream<Word> (&in)[D::kDrains]) {
  const Blocks<D> blocks(task);
  for (int part = 0; part < kColumns; ++part) {
    for (int begin = 0; begin < blocks.rows; begin += blocks.group_rows) {
      const int end = min_of(begin + blocks.group_rows, blocks.rows);
      for (int first = begin; first < end; first += D::kRows) {
        for (int j = 0; j < kWordsOut; ++j) {
          for (int row = first; row < min_of(first + D::kRows, end); ++row) {
            const Word word = in[row % D::kDrainStep].read();
            for (int lane = 0; lane < kLanes; ++lane) {
              CHECK(word.lane[lane] == product(row, part, j * kLanes + lane));
            }
          }
        }
      }
    }
  }
}

template <class D>
void take_row_gradients(Task task, Stream<Word> (&in)[D::kDrains]) {
  const Blocks<D> blocks(task);
  for (int part = 0; part < kColumns; ++part) {
    for (int begin = 0; begin < blocks.rows; begin += blocks.group_rows) {
      const int rows = min_of(blocks.group_rows, blocks.rows - begin);
      std::vector<Word> totals(static_cast<size_t>(rows), filled(0.0F));
      for (int i = 0; i < blocks.sets * rows; ++i) {
        Word& sum = totals[static_cast<size_t>(i % rows)];
        sum = sum + in[0].read();
      }
      for (int i = 0; i < rows; ++i) {
        for (int lane = 0; lane < kLanes; ++lane) {
          CHECK(totals[static_cast<size_t>(i)].lane[lane] ==
                row_gradient(begin + i, part * kLanes + lane));
        }
      }
    }
  }
}

template <class D>
void take_gradients(Task task, Stream<Word> (&in)[D::kDrains]) {
  const int turns = turns_of<D>(task);
  for (int block = 0; block < blocks_of<D>(task); ++block) {
    float sums[D::kSliceRows][kWordsOut * kLanes] = {};
    for (int i = 0; i < turns * D::kSliceRows * kWordsOut; ++i) {
      const int row = i / kWordsOut % D::kSliceRows, j = i % kWordsOut;
      for (int slice = 0; slice < D::kSlices; ++slice) {
        const Word word = in[slice].read();
        for (int lane = 0; lane < kLanes; ++lane) sums[row][j * kLanes + lane] += word.lane[lane];
      }
    }
    for (int row = 0; row < D::kSliceRows; ++row) {
      for (int column = 0; column < kWordsOut * kLanes; ++column) {
        CHECK(sums[row][column] == weight_gradient(block * D::kSliceRows + row, column));
      }
    }
  }
}

// Returns the cycles until the last sums were taken.
template <class D>
int64_t run_array(Mode mode, int64_t& multiplying) {
  const Task task = task_of(mode);
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  STREAMS(Word, left, D::kLefts, 4);
  STREAMS(Word, right, D::kSlices, 4);
  STREAMS(Word, sums, D::kDrains, 2);
  Dataflow region;
  region.add("left", -1, send_left<D>, task, left);
  region.add("right", -1, send_right<D>, task, right);
  region.add("multiply", -1, multiply<D>, task, left, right, sums);
  if (mode == Mode::weight_gradients) {
    region.add("take", -1, take_gradients<D>, task, sums);
  } else if (mode == Mode::forward) {
    region.add("take", -1, take_products<D>, task, sums);
  } else {
    region.add("take", -1, take_row_gradients<D>, task, sums);
  }
  region.run();
  multiplying = simulation.counted(Count::multiplying);
  return simulation.now();
}

// The steps are those of HitGNN's equation 9, |V| f f' / m, in full blocks. In addition the array
// waits only for its first blocks, its last sums, and its pipeline: blocks are filled, multiplied
// and drained concurrently.
template <class D>
void array() {
  int64_t multiplying = 0;
  // Forward, kRows rows are interleaved with two other groups, since three words are fewer than 9:
  // 16 columns of 3 words for each.
  const int forward_turns = words_of(kSumWindow, kWordsOut);
  const int forward =
      kColumns * words_of(48, forward_turns * D::kRows) * kLanes * forward_turns * kWordsOut;
  run_array<D>(Mode::forward, multiplying);
  CHECK(multiplying == forward);
  // Backward, kMaxTurns rows are interleaved, or all there are, each 48 columns to one word.
  const int turns = min_of(D::kMaxTurns, words_of(48, D::kRows));
  const int groups = words_of(48, turns * D::kRows);
  const int backward = kColumns * groups * kWordsOut * kLanes * turns;
  run_array<D>(Mode::backward, multiplying);
  CHECK(multiplying == backward);
  // The gradients of 32 rows of weights, kSliceRows at a time: kSlices of the 48 vertices a step.
  // Both blocks of words arrive as fast as they are multiplied, and the last one leaves.
  const int weights = 32 / D::kSliceRows * 48 / D::kSlices * kWordsOut;
  const int64_t cycles = run_array<D>(Mode::weight_gradients, multiplying);
  CHECK(multiplying == weights);
  const int last = min_of(forward_turns, 48 / D::kSlices) * D::kSliceRows * kWordsOut;
  const int filled = 1 + kLanes / D::kLefts;
  const int emptied = kIn + kRead + D::kSliceRows + kMultiply + kRead + kAdd + kWrite + kOut;
  CHECK(cycles <= filled + max_of(weights, 32 / D::kSliceRows * (last + kSumWindow)) + kSumWindow +
                      last + 2 * emptied + 8);
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
  task.how = {true, false, 0, 0};
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  STREAMS(Word, gathered, D::kPes, 2);
  STREAM(Word, own, 2);
  STREAMS(Word, to_scratch, D::kStep, 2);
  STREAM(Word, from_scratch, 2);
  STREAMS(Word, keeping, D::kBanks, 4);
  STREAMS(Word, kept, D::kBanks, 4);
  STREAMS(Word, to_left, D::kBanks, 4);
  STREAMS(Word, to_right, D::kBanks, 4);
  STREAM(Word, kept_sums, 2);
  STREAMS(Word, bias, D::kBanks, 2);
  STREAM(Word, bias_gradient, 2);
  STREAM(Word, vertices, 2);
  STREAMS(Product, products, D::kBanks, 4);
  STREAM(Row, gradients, 2);
  STREAM(Word, weight_gradients, 2);
  STREAMS(Word, stored, D::kBanks, 4);
  STREAMS(Word, returned, D::kBanks, 4);
  STREAMS(Word, sources, D::kBanks, 4);
  STREAMS(Word, left, D::kLefts, 4);
  STREAMS(Word, right, D::kSlices, 4);
  STREAMS(Word, sums, D::kDrains, 2);
  Dataflow region;
  region.add("send", -1, send_aggregated<D>, gathered);
  region.add("fill_left", -1, fill_left<D, false>, task, gathered, own, to_scratch, from_scratch,
             keeping, kept, to_left, kept_sums, left);
  region.add("fill_right", -1, fill_right<D>, task, Port(weights.data(), Count::weight_words),
             to_right, bias, bias_gradient, right);
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
