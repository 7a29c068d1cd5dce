// The update engine: a systolic array of m multiply-accumulate units, kRows
// rows of 16, and what feeds it. It multiplies blocks of matrices (HitGNN,
// section V-C): one step a cycle, in which each row multiplies one value with a
// word of 16.
//
// An addition takes kAddLatency cycles. Where fewer sums than that take turns,
// the array keeps so many partial sums of each, and adds them up when they
// leave.
#pragma once

#include "gnnscale_fpga/dropout.hpp"
#include "kernels/tokens.hpp"

namespace gnnscale::fpga {

// A word of each row of the array.
template <class D>
struct RowTile {
  Word row[D::kRows];
};

// Sixteen rows of the weights.
template <class D>
struct WeightTile {
  Word word[kLanes][D::kMaxWordsOut];
};

// Sums of a row of the array, and how many of each take turns.
template <class D>
constexpr int sums_of_row() {
  return D::kMaxWordsOut > 2 * D::kAddLatency ? D::kMaxWordsOut : 2 * D::kAddLatency;
}
template <class D>
int turns(int num_words) {
  return num_words >= D::kAddLatency ? 1 : words_of(D::kAddLatency, num_words);
}

// Reads the weights of a layer, sixteen rows after the other: those of each
// word of a source row, slot by slot. Each is read once.
template <class D>
void read_weights(const Word* weights, int first_word, int num_slots, int words_in, int words_out,
                  Stream<WeightTile<D>>& out) {
  for (int column = 0; column < words_in; ++column) {
    for (int slot = 0; slot < num_slots; ++slot) {
      WeightTile<D> tile;
      const int first_row = (slot * words_in + column) * kLanes;
    words:
      for (int i = 0; i < kLanes * words_out; ++i) {
#pragma HLS pipeline II = 1
        tile.word[i / words_out][i % words_out] =
            load(weights, first_word + first_row * words_out + i, Count::weight_words);
        clock_cycle();
      }
      out.write(tile);
    }
  }
}

// Reads what begins the sums of the product: the bias.
template <class D>
void read_bias(const Word* weights, int first_word, int words_out, Stream<Word>& out) {
words:
  for (int j = 0; j < words_out; ++j) {
#pragma HLS pipeline II = 1
    out.write(load(weights, first_word + j, Count::weight_words));
    clock_cycle();
  }
}

// Reads the global ids of the rows, 8 in a word, which dropout depends on.
template <class D>
void read_vertices(const Word* batch, int first_word, int num_rows, Stream<Word>& out) {
words:
  for (int i = 0; i < words_of(num_rows, 8); ++i) {
#pragma HLS pipeline II = 1
    out.write(load(batch, first_word + i, Count::other_words));
    clock_cycle();
  }
}

// Where aggregated rows are kept for the gradients of the weights: their first
// words on the chip, the others in device memory, each word of all rows in one
// piece.
struct Kept {
  int chip;     // word in each bank
  int columns;  // words of a row that are there
  int outside;  // word in `scratch`
};

// Takes aggregated rows from the gather PEs, keeps the sums, and hands
// everything to the array. Own rows, slot 0 of two, can be read again where
// they came from.
template <class D>
void collect(int num_passes, int num_slots, int num_rows, Kept kept, Stream<Word> (&in)[D::kPes],
             Word* scratch, Word (&banks)[D::kPes][D::kRowWords / D::kPes],
             Stream<RowTile<D>>& out) {
  for (int part = 0; part < num_passes * num_slots; ++part) {
    const int column = part / num_slots;
    const bool keeps = part % num_slots == num_slots - 1;
    const bool outside = keeps && column >= kept.columns;
    RowTile<D> tile;
  rows:
    for (int first = 0; first < padded(num_rows); first += D::kPes) {
#pragma HLS pipeline II = 1
      Word words[D::kPes];
      for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
        words[pe] = in[pe].read();
        if (keeps && !outside) {
          banks[pe][kept.chip + (column * padded(num_rows) + first) / D::kPes] = words[pe];
        }
      }
      if (outside) {
        const int at = kept.outside + (column - kept.columns) * padded(num_rows) + first;
        for (int pe = 0; pe < D::kPes; ++pe) {
          store(scratch, at + pe, words[pe], Count::scratch_words);
          if (pe + 1 < D::kPes) clock_cycle();
        }
      }
      for (int pe = 0; pe < D::kPes; ++pe) {
        const int row = (first + pe) % D::kRows;
        tile.row[row] = words[pe];
        const bool last = first + pe + 1 == padded(num_rows);
        if (row + 1 == D::kRows || last) {
          if (last) {
            for (int rest = row + 1; rest < D::kRows; ++rest) tile.row[rest] = filled(0.0F);
          }
          out.write(tile);
        }
      }
      clock_cycle();
    }
  }
}

// sums[row][j] += sum over k of rows[row].lane[k] * weights[k][j]: 16 *
// words_out steps.
template <class D>
void multiply_block(const RowTile<D>& rows, const WeightTile<D>& weights, int words_out,
                    Word (&sums)[D::kRows][sums_of_row<D>()]) {
#pragma HLS inline
  const int rotation = turns<D>(words_out);
steps:
  for (int k = 0; k < kLanes; ++k) {
    for (int j = 0; j < words_out; ++j) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = sums type = inter distance = 8 true
      const int at = k % rotation * words_out + j;
      for (int row = 0; row < D::kRows; ++row) {
#pragma HLS unroll
        const float value = rows.row[row].lane[k];
        for (int lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
          sums[row][at].lane[lane] += value * weights.word[k][j].lane[lane];
        }
      }
    }
  }
  count(Count::multiplying, kLanes * words_out);
  clock_cycle(kLanes * words_out);
}

// What becomes of the product: update and dropout.
struct Activation {
  bool activates;
  bool drops;
  uint32_t drop;
  float scale;   // of what is kept
  uint64_t key;  // of the layer in this step
};

template <class Functions>
Word activated(const Word& product, const Activation& how, uint64_t vertex, int column) {
  Word out = product;
  if (how.activates) {
    for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
      out.lane[i] = Functions::update(product.lane[i]);
    }
  }
  return how.drops ? dropped(out, how.key, vertex, column, how.drop, how.scale) : out;
}

// One of the 8 ids in a word.
inline uint64_t vertex_of(const Word& ids, int number) {
  const auto low = static_cast<uint32_t>(bits_of(ids.lane[2 * number]));
  const auto high = static_cast<uint32_t>(bits_of(ids.lane[2 * number + 1]));
  return static_cast<uint64_t>(high) << 32 | low;
}

// hidden = update(aggregated * weights + bias). The products of each sixteen
// columns of the aggregated rows are added to the hidden rows as they come,
// while the next sixteen are aggregated.
template <class D, class Functions>
void multiply(int num_passes, int num_slots, int num_rows, int words_out, int to, Activation how,
              Stream<RowTile<D>>& rows, Stream<WeightTile<D>>& weights, Stream<Word>& bias,
              Stream<Word>& vertices, Word (&hidden)[D::kPes][D::kRowWords / D::kPes]) {
  Word begins[D::kMaxWordsOut];
  for (int j = 0; j < words_out; ++j) begins[j] = bias.read();
  const int num_parts = num_passes * num_slots;
  const int rotation = turns<D>(words_out);
  for (int part = 0; part < num_parts; ++part) {
    const WeightTile<D> tile = weights.read();
    Word ids = filled(0.0F);
  blocks:
    for (int first = 0; first < padded(num_rows); first += D::kRows) {
      Word sums[D::kRows][sums_of_row<D>()];
#pragma HLS array_partition variable = sums dim = 1 complete
      const RowTile<D> block = rows.read();
      for (int row = 0; row < D::kRows; ++row) {
#pragma HLS unroll
        for (int at = 0; at < rotation * words_out; ++at) sums[row][at] = filled(0.0F);
      }
      multiply_block<D>(block, tile, words_out, sums);
      for (int row = 0; row < D::kRows; ++row) {
        const int v = first + row;
        if (v >= padded(num_rows)) continue;
        if (part + 1 == num_parts && how.drops && v % 8 == 0 && v < num_rows) ids = vertices.read();
        for (int j = 0; j < words_out; ++j) {
          Word& out = hidden[v % D::kPes][to + v / D::kPes * words_out + j];
          Word sum = part == 0 ? begins[j] : out;
          for (int turn = 0; turn < rotation; ++turn) sum = sum + sums[row][turn * words_out + j];
          if (part + 1 == num_parts) {
            sum = activated<Functions>(sum, how, vertex_of(ids, v % 8), j);
          }
          out = sum;
        }
      }
    }
  }
}

}  // namespace gnnscale::fpga
