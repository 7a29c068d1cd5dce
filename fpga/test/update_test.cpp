// The update engine alone: its products, and its cycles.
#include <vector>

#include "check.hpp"
#include "gnnscale_fpga/functions.hpp"
#include "kernels/gradients.hpp"

namespace gnnscale::fpga {
namespace {

template <class T>
void send(std::vector<T> all, Stream<T>& out) {
  for (const T& each : all) {
    out.write(each);
    clock_cycle();
  }
}

template <class T>
void take(int number, Stream<T>& in, std::vector<T>& out) {
  for (int i = 0; i < number; ++i) {
    out.push_back(in.read());
    clock_cycle();
  }
}

// Small whole numbers, whose products and sums are exact.
float number(int i) { return static_cast<float>(i * 7 % 11 - 5); }

constexpr int kRows = 40;  // 48 with those that fill up
constexpr int kColumns = 2;
constexpr int kWordsOut = 3;

float value_of(int row, int column) { return row < kRows ? number(row * 3 + column) : 0; }
float weight_of(int row, int column) { return number(row * 5 + column * 2 + 1); }

template <class D>
std::vector<WeightTile<D>> weight_tiles() {
  std::vector<WeightTile<D>> tiles(kColumns);
  for (int k = 0; k < kColumns * kLanes; ++k) {
    for (int j = 0; j < kWordsOut * kLanes; ++j) {
      tiles[static_cast<size_t>(k / kLanes)].word[k % kLanes][j / kLanes].lane[j % kLanes] =
          weight_of(k, j);
    }
  }
  return tiles;
}

template <class D>
struct Banks {
  Word word[D::kPes][D::kRowWords / D::kPes];
  float& at(int row, int column) {
    return word[row % D::kPes][row / D::kPes * kWordsOut + column / kLanes].lane[column % kLanes];
  }
};

template <class D>
void products() {
  static Banks<D> banks;
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  std::vector<RowTile<D>> tiles;
  for (int column = 0; column < kColumns; ++column) {
    for (int first = 0; first < padded(kRows); first += D::kRows) {
      RowTile<D> tile;
      for (int i = 0; i < D::kRows * kLanes; ++i) {
        tile.row[i / kLanes].lane[i % kLanes] =
            value_of(first + i / kLanes, column * kLanes + i % kLanes);
      }
      tiles.push_back(tile);
    }
  }
  STREAM(RowTile<D>, rows, 2, 1);
  STREAM(WeightTile<D>, weights, 2, 1);
  STREAM(Word, bias, 2, 1);
  STREAM(Word, vertices, 2, 1);
  Dataflow region;
  region.add("rows", -1, send<RowTile<D>>, tiles, rows);
  region.add("weights", -1, send<WeightTile<D>>, weight_tiles<D>(), weights);
  region.add("bias", -1, send<Word>, std::vector<Word>(kWordsOut, filled(3.0F)), bias);
  region.add("multiply", -1, multiply<D, WeightedSum>, kColumns, 1, kRows, kWordsOut, 0,
             Activation{true, false, 0, 1, 0}, rows, weights, bias, vertices, banks.word);
  region.run();
  for (int row = 0; row < kRows; ++row) {
    for (int j = 0; j < kWordsOut * kLanes; ++j) {
      float sum = 3;
      for (int k = 0; k < kColumns * kLanes; ++k) sum += value_of(row, k) * weight_of(k, j);
      CHECK(banks.at(row, j) == (sum <= 0 ? 0 : sum));
    }
  }
  // The third word of the bias is there in cycle 3. Then each block takes a
  // cycle for each of its 16 columns and each word of the output: |V| f f' / m
  // of HitGNN's equation 9, in whole blocks.
  const int blocks = kColumns * words_of(padded(kRows), D::kRows);
  CHECK(simulation.now() == 3 + blocks * kLanes * kWordsOut);
  CHECK(simulation.counted(Count::multiplying) == blocks * kLanes * kWordsOut);
}

// With rows 0 to 39 of A and dZ, dW = A^T dZ and dA = dZ W^T.
template <class D>
void gradients() {
  static Banks<D> banks;
  for (int row = 0; row < padded(kRows); ++row) {
    for (int j = 0; j < kWordsOut * kLanes; ++j) banks.at(row, j) = value_of(row, j + 1);
  }
  std::vector<ColumnTile<D>> columns;
  for (int block = 0; block < kColumns * blocks_of_word<D>(); ++block) {
    for (int first = 0; first < padded(kRows); first += D::kSlices) {
      ColumnTile<D> tile;
      for (int i = 0; i < D::kSlices * kLanes; ++i) {
        tile.word[i / kLanes].lane[i % kLanes] =
            value_of(first + i / kLanes, block / blocks_of_word<D>() * kLanes + i % kLanes);
      }
      columns.push_back(tile);
    }
  }
  std::vector<SumTile<D>> sums;
  {
    csim::Simulation simulation{csim::BankModel{}};
    const csim::Entered entered(simulation);
    STREAM(ColumnTile<D>, tiles, 2, 1);
    STREAM(SumTile<D>, out, 1, 1);
    Dataflow region;
    region.add("columns", -1, send<ColumnTile<D>>, columns, tiles);
    region.add("multiply", -1, multiply_transposed<D>, kColumns, kRows, kWordsOut, 0, banks.word,
               tiles, out);
    region.add("take", -1, take<SumTile<D>>, kColumns * blocks_of_word<D>() + 1, out, sums);
    region.run();
    const int steps = words_of(padded(kRows), D::kSlices) * kWordsOut;
    const int blocks = kColumns * blocks_of_word<D>();
    CHECK(simulation.counted(Count::multiplying) == blocks * steps);
    // The first tile is there in cycle 1, so that the last sums leave in cycle t. They are taken a
    // cycle later, which leaves room for the bias's in t + 2; these are taken in t + 3.
    const int t = 1 + blocks * steps;
    CHECK(simulation.now() == t + 3 + 1);
  }
  for (int k = 0; k <= kColumns * kLanes; ++k) {
    for (int j = 0; j < kWordsOut * kLanes; ++j) {
      float sum = 0;
      for (int row = 0; row < kRows; ++row) {
        sum += (k < kColumns * kLanes ? value_of(row, k) : 1) * value_of(row, j + 1);
      }
      const SumTile<D>& tile = sums[static_cast<size_t>(k / D::kSliceRows)];
      CHECK(tile.word[k % D::kSliceRows][j / kLanes].lane[j % kLanes] == sum);
    }
  }

  std::vector<RowTile<D>> found;
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  STREAM(WeightTile<D>, weights, 2, 1);
  STREAM(RowTile<D>, rows, 2, 1);
  Dataflow region;
  const int blocks = words_of(kRows, D::kRows);
  region.add("weights", -1, send<WeightTile<D>>, weight_tiles<D>(), weights);
  region.add("multiply", -1, multiply_gradients<D>, kColumns, 1, kRows, kWordsOut, 0, banks.word,
             weights, rows);
  region.add("take", -1, take<RowTile<D>>, kColumns * blocks, rows, found);
  region.run();
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < kColumns * kLanes; ++k) {
      float sum = 0;
      for (int j = 0; j < kWordsOut * kLanes; ++j) sum += value_of(row, j + 1) * weight_of(k, j);
      const RowTile<D>& tile = found[static_cast<size_t>(k / kLanes * blocks + row / D::kRows)];
      CHECK(tile.row[row % D::kRows].lane[k % kLanes] == sum);
    }
  }
  CHECK(simulation.now() == 1 + kColumns * blocks * kLanes * kWordsOut + 2);
}

template <class D>
void all_of() {
  products<D>();
  gradients<D>();
}

}  // namespace
}  // namespace gnnscale::fpga

int main() {
  using namespace gnnscale::fpga;
  all_of<Design<1, 16>>();
  all_of<Design<2, 64>>();
  all_of<Design<4, 128>>();
  all_of<Design<8, 512>>();
  all_of<Design<2, 1024>>();
  all_of<Design<16, 2048>>();
  all_of<Design<16, 16>>();
  return check_result();
}
