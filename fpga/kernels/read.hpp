// Inputs of the aggregate engine: edges and source rows.
#pragma once

#include "kernels/messages.hpp"

namespace gnnscale::fpga {

// Maximum rows that a scatter PE may lag before it is told to skip them: less than its FIFO of rows
// holds.
constexpr int kMaxSilence = 2;

// Returns the words of edges dealt together, and the cycles of dealing them.
template <class D>
constexpr int edge_words_at_once() {
  return max_of(D::kPes / kEdgesPerWord, 1);
}
template <class D>
constexpr int deals_of_word() {
  return max_of(kEdgesPerWord / D::kPes, 1);
}

// Deals the edges of a tile to the scatter PEs, edge i to PE i mod n, once in each pass, and sends
// each PE its needed rows. A PE without edges for a while is told which rows to skip, so that it
// does not stall the other PEs. Edges are read from device memory in the first pass, and cached on
// the chip if they fit.
template <class D>
void read_edges(Task task, Port port, Stream<Edge> (&out)[D::kPes],
                Stream<Need> (&needs)[D::kPes]) {
  constexpr int kWords = edge_words_at_once<D>();
  constexpr int kDeals = deals_of_word<D>();
  constexpr int kDepth = kIn + kRead + 2 + kOut;  // a sum of n bits gives each edge's source
  Word kept[D::kEdgeWords];
#pragma HLS bind_storage variable = kept type = ram_2p impl = uram
#pragma HLS array_partition variable = kept type = cyclic factor = kWords
  const bool fits = task.edge_words <= D::kEdgeWords;
  Word words[kWords];
#pragma HLS array_partition variable = words type = complete
  int reported[D::kPes] = {};  // last row
#pragma HLS array_partition variable = reported type = complete
  int source = -1;
  int pass = 0, at = 0, deal = 0;
  int next = 0;  // next word to take
  LOOP(deals)
  while (pass < task.passes) {
    PIPELINED(deals, 1, kDepth);
    const bool begins = at == 0 && deal == 0 && next == 0;
    const bool from_port = pass == 0 || !fits;
    if (begins) {
      source = -1;
      for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
        reported[pe] = -1;
      }
      // Each pass is requested one pass ahead.
      if (pass == 0) port.read_request(task.edges, task.edge_words);
      if (!fits && pass + 1 < task.passes) port.read_request(task.edges, task.edge_words);
    }
    if (at == task.edge_words) {
      for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
        out[pe].write({task.incoming - 1, kNoDestination, 0.0F, true});
        needs[pe].write({task.incoming - 1, false, true});
      }
      at = 0;
      ++pass;
      continue;
    }
    // Device memory delivers a word a cycle, on-chip memory as many as are dealt.
    if (deal == 0 && from_port) {
      const Word word = port.read();
      words[next] = word;
      if (fits) kept[at + next] = word;
      ++next;
    } else if (deal == 0) {
      for (int i = 0; i < kWords; ++i) {
#pragma HLS unroll
        if (at + i < task.edge_words) words[i] = kept[at + i];
      }
      next = kWords;
    }
    if (next < kWords && at + next < task.edge_words) continue;
    for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
      const int edge = deal * D::kPes + pe;
      if (at + edge / kEdgesPerWord >= task.edge_words) continue;
      const Word& word = words[edge / kEdgesPerWord];
      const auto end = static_cast<uint32_t>(bits_of(word.lane[2 * (edge % kEdgesPerWord)]));
      source += (end & kFirstOfSource) != 0 ? 1 : 0;
      const bool none = (end & kNoDestination) == kNoDestination;
      if (!none) {
        out[pe].write(
            {source, end & kNoDestination, word.lane[2 * (edge % kEdgesPerWord) + 1], false});
        if (reported[pe] != source) needs[pe].write({source, false, false});
        reported[pe] = source;
      } else if (source - reported[pe] > kMaxSilence) {
        needs[pe].write({source - 1, true, false});
        reported[pe] = source - 1;
      }
    }
    if (++deal == kDeals) {
      deal = next = 0;
      at = min_of(at + kWords, task.edge_words);
    }
  }
}

// Reads one word of every source row in each pass: input rows from device memory in one long burst,
// hidden rows from the banks. Each word is read once, except that the gradients of weights read own
// rows of the input again.
template <class D, class RowType>
void read_rows(Task task, Port features, Stream<Word> (&stored)[D::kBanks], Stream<RowType>& out,
               Stream<Word>& own) {
  constexpr int kDepth = kIn + kMultiply + kOut;
  const bool again = task.mode == Mode::weight_gradients && task.slots > 1 && !task.hidden;
  const int num_rows = again ? task.num_rows : task.num_sources;
  // The array takes an input word several times if it has fewer rows than the word has columns.
  const int times = again ? kLanes / D::kSliceRows : 1;
  const int passes = again ? task.words_in : task.mode == Mode::forward ? task.passes : 0;
  int remaining = passes * times;
  int first = task.features, time = 0, i = 0;
  LOOP(rows)
  while (remaining > 0) {
    PIPELINED(rows, 1, kDepth);
    const bool last_time = time + 1 == times;
    const int next = last_time ? first + task.num_sources : first;
    if (!task.hidden && i == 0) {
      // Each pass is requested one pass ahead.
      if (remaining == passes * times) features.read_request(first, num_rows);
      if (remaining > 1) features.read_request(next, num_rows);
    }
    const Word value = task.hidden ? stored[i % D::kBanks].read() : features.read();
    if (again) {
      own.write(value);
    } else {
      RowType row;
      row.value = scaled(value, task.source_scale);
      row.source = i;
      out.write(row);
    }
    if (++i == num_rows) {
      i = 0;
      --remaining;
      first = next;
      time = last_time ? 0 : time + 1;
    }
  }
}

// The feature duplicator (HyScale-GNN, figure 6): sends every row, of sources or of their
// gradients, to every scatter PE.
template <class D, class RowType>
void duplicate(Task task, Stream<RowType>& rows, Stream<RowType>& gradients,
               Stream<RowType> (&out)[D::kPes]) {
  constexpr int kDepth = kIn + kOut;
  LOOP(rows_of_passes)
  for (int i = 0; i < task.passes * task.incoming; ++i) {
    PIPELINED(rows_of_passes, 1, kDepth);
    const RowType row = task.mode == Mode::forward ? rows.read() : gradients.read();
    for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
      out[pe].write(row);
    }
    count(Count::duplicated);
  }
}

// Filters the rows that arrive at a scatter PE to the ones its edges need. The FIFO behind it is
// the PE's local memory (HyScale-GNN, section IV-C): rows keep arriving while the PE processes one.
template <class RowType>
void select(Task task, Stream<Need>& needs, Stream<RowType>& in, Stream<RowType>& out) {
  constexpr int kDepth = kIn + kOut;
  RowType row = {};
  Need need = {};
  row.source = -1;
  bool waits = false;  // whether a request waits for its row
  int remaining = task.passes;
  LOOP(rows)
  while (remaining > 0) {
    PIPELINED(rows, 1, kDepth);
    if (!waits) need = needs.read();
    if (row.source < need.source) row = in.read();
    waits = row.source < need.source;
    if (waits) continue;
    if (need.end) {
      row.source = -1;
      --remaining;
    } else if (!need.skips) {
      out.write(row);
    }
  }
}

}  // namespace gnnscale::fpga
