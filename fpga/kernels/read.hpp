// What the aggregate engine reads: edges and source rows.
#pragma once

#include "kernels/tokens.hpp"

namespace gnnscale::fpga {

// Rows that a scatter PE is late at most before it is told to skip them: less
// than the FIFO of rows in front of it has.
constexpr int kMaxSilence = 2;

// Deals the edges of a tile to the scatter PEs, edge i to PE i mod n, once in
// each pass, and tells which rows each of them needs. One that gets no edges for
// a while is told which rows it can skip, so that the others are not held up.
// Edges are read from device memory in the first pass, and kept on the chip if
// they fit.
template <class D>
void read_edges(Task task, const Word* edges, Stream<Edge> (&out)[D::kPes],
                Stream<Need> (&needs)[D::kPes]) {
  constexpr int kWords = D::kPes > kEdgesPerWord ? D::kPes / kEdgesPerWord : 1;
  constexpr int kGroups = D::kPes < kEdgesPerWord ? kEdgesPerWord / D::kPes : 1;
  Word kept[D::kEdgeWords];
#pragma HLS bind_storage variable = kept type = ram_2p impl = uram
#pragma HLS array_partition variable = kept cyclic factor = kWords
  const bool fits = task.edge_words <= D::kEdgeWords;
passes:
  for (int pass = 0; pass < task.passes; ++pass) {
    int source = -1;
    int told[D::kPes];  // up to which row
    for (int pe = 0; pe < D::kPes; ++pe) told[pe] = -1;
  words:
    for (int at = 0; at < task.edge_words; at += kWords) {
      Word words[kWords];
      for (int i = 0; i < kWords && at + i < task.edge_words; ++i) {
        if (pass > 0 && fits) {
          words[i] = kept[at + i];
        } else {
          words[i] = load(edges, task.edges + at + i, Count::edge_words);
          if (fits) kept[at + i] = words[i];
        }
      }
    groups:
      for (int group = 0; group < kGroups; ++group) {
#pragma HLS pipeline II = 1
        for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
          const int edge = group * D::kPes + pe;
          if (at + edge / kEdgesPerWord >= task.edge_words) continue;
          const Word& word = words[edge / kEdgesPerWord];
          const auto end = static_cast<uint32_t>(bits_of(word.lane[2 * (edge % kEdgesPerWord)]));
          source += (end & kFirstOfSource) != 0 ? 1 : 0;
          const bool none = (end & kNoDestination) == kNoDestination;
          if (!none) {
            out[pe].write(
                {source, end & kNoDestination, word.lane[2 * (edge % kEdgesPerWord) + 1], false});
            if (told[pe] != source) needs[pe].write({source, false, false});
            told[pe] = source;
          } else if (source - told[pe] > kMaxSilence) {
            needs[pe].write({source - 1, true, false});
            told[pe] = source - 1;
          }
        }
        clock_cycle();
      }
    }
    for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
      out[pe].write({task.incoming - 1, kNoDestination, 0.0F, true});
      needs[pe].write({task.incoming - 1, false, true});
    }
    clock_cycle();
  }
}

// Reads one word of every source row in each pass: the input from device memory
// in one long burst, hidden rows from the banks. Each word is read once. For
// the gradients of weights it reads own rows of the input again.
template <class D, class RowType>
void read_rows(Task task, const Word* features, Stream<Word> (&stored)[D::kBanks],
               Stream<RowType>& out, Stream<Word>& own) {
  const bool again = task.mode == Mode::weight_gradients && task.slots > 1 && !task.hidden;
  const int num_rows = again ? task.num_rows : task.num_sources;
  // The array takes a word of the input several times where it has fewer rows
  // than the word has columns.
  const int times = again ? kLanes / D::kSliceRows : 1;
  const int passes = again ? task.words_in : task.mode == Mode::forward ? task.passes : 0;
passes:
  for (int pass = 0; pass < passes * times; ++pass) {
    const int first = task.features + pass / times * task.num_sources;
  rows:
    for (int i = 0; i < num_rows; ++i) {
#pragma HLS pipeline II = 1
      const Word value = task.hidden ? stored[i % D::kBanks].read()
                                     : load(features, first + i, Count::feature_words);
      if (again) {
        own.write(value);
      } else {
        RowType row;
        row.value = value;
        row.source = i;
        out.write(row);
      }
      clock_cycle();
    }
  }
}

// The feature duplicator (HyScale-GNN, figure 6): every scatter PE gets every
// row, of the sources or of their gradients.
template <class D, class RowType>
void duplicate(Task task, Stream<RowType>& rows, Stream<RowType>& gradients,
               Stream<RowType> (&out)[D::kPes]) {
rows:
  for (int i = 0; i < task.passes * task.incoming; ++i) {
#pragma HLS pipeline II = 1
    const RowType row = task.mode == Mode::forward ? rows.read() : gradients.read();
    for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
      out[pe].write(row);
    }
    count(Count::duplicated);
    clock_cycle();
  }
}

// Of the rows that come to a scatter PE, passes on those that it has edges of.
// The FIFO after it is the PE's local memory (HyScale-GNN, section IV-C): rows
// go on arriving while it works on one.
template <class RowType>
void select(Task task, Stream<Need>& needs, Stream<RowType>& in, Stream<RowType>& out) {
passes:
  for (int pass = 0; pass < task.passes; ++pass) {
    RowType row = {};
    Need need = {};
    row.source = -1;
    bool waits = false;  // a need for its row
    bool ended = false;
  rows:
    while (!ended) {
#pragma HLS pipeline II = 1
      if (!waits) need = needs.read();
      if (row.source < need.source) row = in.read();
      waits = row.source < need.source;
      ended = !waits && need.end;
      if (!waits && !need.end && !need.skips) out.write(row);
      clock_cycle();
    }
  }
}

}  // namespace gnnscale::fpga
