// What the aggregate engine reads: edges and source rows.
#pragma once

#include "kernels/tokens.hpp"

namespace gnnscale::fpga {

// Deals the edges of a block to the scatter PEs, edge i to PE i mod n, once in
// each pass, and tells which rows each of them needs. Edges are read from
// device memory in the first pass, and kept on the chip if they fit.
template <class D>
void read_edges(const Word* batch, int first_word, int num_words, int num_sources, int num_passes,
                Stream<Edge> (&out)[D::kPes], Stream<Need> (&needs)[D::kPes]) {
  constexpr int kWords = D::kPes > kEdgesPerWord ? D::kPes / kEdgesPerWord : 1;
  constexpr int kGroups = D::kPes < kEdgesPerWord ? kEdgesPerWord / D::kPes : 1;
  Word kept[D::kEdgeWords];
#pragma HLS array_partition variable = kept cyclic factor = kWords
passes:
  for (int pass = 0; pass < num_passes; ++pass) {
    int source = -1;
    int needed[D::kPes];
    for (int pe = 0; pe < D::kPes; ++pe) needed[pe] = -1;
  words:
    for (int at = 0; at < num_words; at += kWords) {
      Word words[kWords];
      for (int i = 0; i < kWords && at + i < num_words; ++i) {
        if (pass > 0 && num_words <= D::kEdgeWords) {
          words[i] = kept[at + i];
        } else {
          words[i] = load(batch, first_word + at + i, Count::edge_words);
          if (num_words <= D::kEdgeWords) kept[at + i] = words[i];
        }
      }
    groups:
      for (int group = 0; group < kGroups; ++group) {
#pragma HLS pipeline II = 1
        for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
          const int edge = group * D::kPes + pe;
          if (at + edge / kEdgesPerWord >= num_words) continue;
          const Word& word = words[edge / kEdgesPerWord];
          const auto end = static_cast<uint32_t>(bits_of(word.lane[2 * (edge % kEdgesPerWord)]));
          source += (end & kFirstOfSource) != 0 ? 1 : 0;
          if ((end & kNoDestination) == kNoDestination) continue;  // a source without edges
          out[pe].write(
              {source, end & kNoDestination, word.lane[2 * (edge % kEdgesPerWord) + 1], false});
          if (needed[pe] != source) needs[pe].write({source, false});
          needed[pe] = source;
        }
        clock_cycle();
      }
    }
    for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
      out[pe].write({num_sources - 1, kNoDestination, 0.0F, true});
      needs[pe].write({num_sources - 1, true});
    }
    clock_cycle();
  }
}

// Reads one word of every source row in each pass: the input from device memory
// in one long burst, hidden rows from the memory on the chip. Each word is read
// once.
template <class D>
void read_rows(const Word* features, bool hidden, int first_word, int num_sources, int num_passes,
               const Word (&banks)[D::kPes][D::kRowWords / D::kPes], Stream<Row>& out) {
passes:
  for (int pass = 0; pass < num_passes; ++pass) {
  rows:
    for (int i = 0; i < num_sources; ++i) {
#pragma HLS pipeline II = 1
      Row row;
      row.source = i;
      row.value = hidden
                      ? banks[i % D::kPes][first_word + i / D::kPes * num_passes + pass]
                      : load(features, first_word + pass * num_sources + i, Count::feature_words);
      out.write(row);
      clock_cycle();
    }
  }
}

// The feature duplicator (HyScale-GNN, figure 6): every scatter PE gets every
// row.
template <class D, class RowType>
void duplicate(int num_rows, Stream<RowType>& in, Stream<RowType> (&out)[D::kPes]) {
rows:
  for (int i = 0; i < num_rows; ++i) {
#pragma HLS pipeline II = 1
    const RowType row = in.read();
    for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
      out[pe].write(row);
    }
    count(Count::duplicated);
    clock_cycle();
  }
}

// Of the rows that come to a scatter PE, passes on those that it has edges of.
// The FIFO behind it is the PE's local memory (HyScale-GNN, section IV-C): rows
// go on arriving while it works on one.
template <class RowType>
void select(int num_passes, Stream<Need>& needs, Stream<RowType>& in, Stream<RowType>& out) {
passes:
  for (int pass = 0; pass < num_passes; ++pass) {
    RowType row = {};
    Need need = {};
    row.source = -1;
    bool waits = false;  // a need for its row
    bool ended = false;
  rows:
    while (!ended) {
#pragma HLS pipeline II = 1
      if (!waits) need = needs.read();
      if (row.source != need.source) row = in.read();
      waits = row.source != need.source;
      ended = !waits && need.end;
      if (!waits && !need.end) out.write(row);
      clock_cycle();
    }
  }
}

}  // namespace gnnscale::fpga
