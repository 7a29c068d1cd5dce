// The update engine in the backward pass: gradients of weights, and of
// aggregated rows.
#pragma once

#include "kernels/multiply.hpp"

namespace gnnscale::fpga {

// What the array reads of the aggregated rows for one step of the gradients of
// weights: a word of a vertex of each slice.
template <class D>
struct ColumnTile {
  Word word[D::kSlices];
};

// Blocks of kSliceRows rows of the weights that a word of aggregated rows
// makes.
template <class D>
constexpr int blocks_of_word() {
  return kLanes / D::kSliceRows;
}

// Where a stage's source rows are.
struct Sources {
  bool hidden;  // on the chip, and otherwise in `features`
  int first;    // word
  int number;   // of rows
};

// Brings the aggregated rows of the forward pass again, one word of all rows
// after the other.
template <class D>
void read_aggregated(int words_in, int num_slots, int num_rows, Kept kept, Sources sources,
                     const Word* features, const Word* scratch,
                     const Word (&banks)[D::kPes][D::kRowWords / D::kPes],
                     Stream<ColumnTile<D>>& out) {
  for (int block = 0; block < num_slots * words_in * blocks_of_word<D>(); ++block) {
    const int part = block / blocks_of_word<D>();
    const int column = part / num_slots;
    const bool own = part % num_slots < num_slots - 1;
    const bool outside = own ? !sources.hidden : column >= kept.columns;
  rows:
    for (int first = 0; first < padded(num_rows); first += D::kSlices) {
#pragma HLS pipeline II = 1
      ColumnTile<D> tile;
      for (int slice = 0; slice < D::kSlices; ++slice) {
        const int v = first + slice;
        const int pe = v % D::kPes;
        Word& word = tile.word[slice];
        if (v >= num_rows) {
          word = filled(0.0F);
        } else if (own && sources.hidden) {
          word = banks[pe][sources.first + v / D::kPes * words_in + column];
        } else if (own) {
          word = load(features, sources.first + column * sources.number + v, Count::feature_words);
        } else if (outside) {
          word = load(scratch, kept.outside + (column - kept.columns) * padded(num_rows) + v,
                      Count::scratch_words);
        } else {
          word = banks[pe][kept.chip + (column * padded(num_rows) + v) / D::kPes];
        }
        if (outside) clock_cycle();
      }
      out.write(tile);
      if (!outside) clock_cycle();
    }
  }
}

// Rows of the gradients of weights that leave the array together; they are written while it works
// on the next ones.
template <class D>
struct SumTile {
  Word word[D::kSliceRows][D::kMaxWordsOut];
};

// dW = A^T dZ and db = the sum of dZ. Each slice adds up its vertices; the slices are added up as
// the sums leave.
template <class D>
void multiply_transposed(int num_words, int num_rows, int words_out, int from,
                         const Word (&hidden)[D::kPes][D::kRowWords / D::kPes],
                         Stream<ColumnTile<D>>& columns, Stream<SumTile<D>>& out) {
  constexpr int kRows = D::kSliceRows;
  Word bias[D::kMaxWordsOut];
  const int rotation = turns<D>(words_out);
  for (int block = 0; block < num_words * blocks_of_word<D>(); ++block) {
    Word sums[D::kSlices][kRows][sums_of_row<D>()];
#pragma HLS array_partition variable = sums dim = 1 complete
#pragma HLS array_partition variable = sums dim = 2 complete
    for (int slice = 0; slice < D::kSlices; ++slice) {
      for (int row = 0; row < kRows; ++row) {
        for (int at = 0; at < rotation * words_out; ++at) sums[slice][row][at] = filled(0.0F);
      }
    }
    if (block == 0) {
      for (int j = 0; j < words_out; ++j) bias[j] = filled(0.0F);
    }
    const int lane = block % blocks_of_word<D>() * kRows;
  vertices:
    for (int first = 0; first < padded(num_rows); first += D::kSlices) {
      const ColumnTile<D> tile = columns.read();
      for (int j = 0; j < words_out; ++j) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = sums type = inter distance = 8 true
        const int at = first / D::kSlices % rotation * words_out + j;
        for (int slice = 0; slice < D::kSlices; ++slice) {
#pragma HLS unroll
          const int v = first + slice;
          const Word gradient = hidden[v % D::kPes][from + v / D::kPes * words_out + j];
          for (int row = 0; row < kRows; ++row) {
#pragma HLS unroll
            const float value = tile.word[slice].lane[lane + row];
            for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
              sums[slice][row][at].lane[i] += value * gradient.lane[i];
            }
          }
          if (block == 0) bias[j] = bias[j] + gradient;
        }
      }
      count(Count::multiplying, words_out);
      clock_cycle(words_out);
    }
    SumTile<D> leaving;
    for (int row = 0; row < kRows; ++row) {
      for (int j = 0; j < words_out; ++j) {
        Word sum = filled(0.0F);
        for (int slice = 0; slice < D::kSlices; ++slice) {
          for (int turn = 0; turn < rotation; ++turn) {
            sum = sum + sums[slice][row][turn * words_out + j];
          }
        }
        leaving.word[row][j] = sum;
      }
    }
    out.write(leaving);
  }
  SumTile<D> last;
  for (int j = 0; j < words_out; ++j) last.word[0][j] = bias[j];
  out.write(last);
}

// Writes the gradients of a layer's weights, or adds them to those of the
// groups before.
template <class D>
void write_gradients(bool adds, int first_word, int num_slots, int words_in, int words_out,
                     Stream<SumTile<D>>& in, Word* gradients) {
  const int num_rows = num_slots * words_in * kLanes;
  SumTile<D> tile;
rows:
  for (int row = 0; row <= num_rows; ++row) {
    // Aggregated words come slot by slot of each column; weights lie column by column of a slot.
    // The bias comes last, in a tile of its own.
    const int part = row / kLanes;
    const int to = row == num_rows
                       ? row
                       : (part % num_slots * words_in + part / num_slots) * kLanes + row % kLanes;
    if (row % D::kSliceRows == 0) tile = in.read();
    for (int j = 0; j < words_out; ++j) {
#pragma HLS pipeline II = 1
      const int at = first_word + to * words_out + j;
      const Word sum = tile.word[row % D::kSliceRows][j];
      store(gradients, at, adds ? load(gradients, at, Count::gradient_words) + sum : sum,
            Count::gradient_words);
      clock_cycle();
    }
  }
}

// dA = dZ W^T, sixteen columns after the other, as source rows of the backward
// aggregation.
template <class D>
void multiply_gradients(int num_passes, int num_slots, int num_rows, int words_out, int from,
                        const Word (&hidden)[D::kPes][D::kRowWords / D::kPes],
                        Stream<WeightTile<D>>& weights, Stream<RowTile<D>>& out) {
  for (int part = 0; part < num_passes * num_slots; ++part) {
    const WeightTile<D> tile = weights.read();
  blocks:
    for (int first = 0; first < num_rows; first += D::kRows) {
      Word sums[D::kRows][D::kAddLatency];
#pragma HLS array_partition variable = sums dim = 1 complete
      for (int row = 0; row < D::kRows; ++row) {
        for (int turn = 0; turn < D::kAddLatency; ++turn) sums[row][turn] = filled(0.0F);
      }
    steps:
      for (int j = 0; j < words_out; ++j) {
        for (int k = 0; k < kLanes; ++k) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = sums type = inter distance = 8 true
          for (int row = 0; row < D::kRows; ++row) {
#pragma HLS unroll
            const int v = first + row;
            if (v >= num_rows) continue;
            const float value = hidden[v % D::kPes][from + v / D::kPes * words_out + j].lane[k];
            for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
              sums[row][k % D::kAddLatency].lane[i] += value * tile.word[i][j].lane[k];
            }
          }
        }
      }
      RowTile<D> rows;
      for (int row = 0; row < D::kRows; ++row) {
        rows.row[row] = filled(0.0F);
        for (int turn = 0; turn < D::kAddLatency; ++turn) {
          rows.row[row] = rows.row[row] + sums[row][turn];
        }
      }
      count(Count::multiplying, kLanes * words_out);
      clock_cycle(kLanes * words_out);
      out.write(rows);
    }
  }
}

inline void attach(Row& /*row*/, const Word& /*gathered*/) {}
inline void attach(RowWithSum& row, const Word& gathered) { row.gathered = gathered; }

// Hands the rows of dA to the feature duplicator one by one, slot after slot,
// with what the forward pass has gathered where a derivative takes it.
template <class D, class RowType>
void unpack(int num_passes, int num_slots, int num_rows, bool attaches, Kept kept,
            const Word* scratch, const Word (&banks)[D::kPes][D::kRowWords / D::kPes],
            Stream<RowTile<D>>& in, Stream<RowType>& out) {
  for (int pass = 0; pass < num_passes; ++pass) {
    for (int slot = 0; slot < num_slots; ++slot) {
      RowTile<D> tile;
    rows:
      for (int v = 0; v < num_rows; ++v) {
#pragma HLS pipeline II = 1
        if (v % D::kRows == 0) tile = in.read();
        RowType row;
        row.value = tile.row[v % D::kRows];
        row.source = slot * num_rows + v;
        if (attaches && slot == num_slots - 1) {
          const bool outside = pass >= kept.columns;
          const int at = (pass - (outside ? kept.columns : 0)) * padded(num_rows) + v;
          attach(row, outside ? load(scratch, kept.outside + at, Count::scratch_words)
                              : banks[at % D::kPes][kept.chip + at / D::kPes]);
        }
        out.write(row);
        clock_cycle();
      }
    }
  }
}

}  // namespace gnnscale::fpga
