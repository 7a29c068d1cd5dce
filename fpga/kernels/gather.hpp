// The gather PEs: a sum for each of their destinations, on the chip. PE g has
// the destinations that are g modulo n.
//
// A PE has its sums twice: while one pass is gathered, the sums of the pass
// before leave.
#pragma once

#include "kernels/tokens.hpp"

namespace gnnscale::fpga {

// Whether a sum is still being computed: additions take kAddLatency cycles.
template <class D>
struct RecentSums {
  int row[D::kAddLatency];

  RecentSums() {
    for (int i = 0; i < D::kAddLatency; ++i) row[i] = -1;
  }
  bool has(int wanted) const {
    bool found = false;
    // The oldest is complete at the end of this cycle, which is when it is
    // needed.
    for (int i = 0; i < D::kAddLatency - 1; ++i) {
#pragma HLS unroll
      found = found || row[i] == wanted;
    }
    return found;
  }
  // Every cycle, with the row that was added to, or -1.
  void shift(int newest) {
    for (int i = D::kAddLatency - 1; i > 0; --i) {
#pragma HLS unroll
      row[i] = row[i - 1];
    }
    row[0] = newest;
  }
};

// A sum after one more message. Copies of own rows are what came.
template <class Functions>
Word gathered(const Word& sum, const Message& message, bool own) {
  Word out;
  for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
    const float value = message.value.lane[i];
    out.lane[i] = own ? value : Functions::gather(sum.lane[i], value);
  }
  return out;
}

// A row without messages is 0, whatever sums begin with.
template <class Functions>
Word complete(const Word& sum) {
  Word out;
  for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
    out.lane[i] = sum.lane[i] == Functions::kInitial ? 0.0F : sum.lane[i];
  }
  return out;
}

// What a message adds on the way back, to the gradient of `source`.
template <class Functions>
Word sent_back(const Message& message, const Word& /*source*/) {
  return message.value;
}
template <class Functions>
Word sent_back(const MessageWithSum& message, const Word& source) {
  Word out = message.value;
  for (int i = 0; i < kLanes && !message.own; ++i) {
#pragma HLS unroll
    out.lane[i] = Functions::scatter_gradient(source.lane[i], message.weight,
                                              message.gathered.lane[i], message.value.lane[i]);
  }
  return out;
}

// The source rows of a pass, if gradients take them. The rows of a PE are in
// two banks in turn.
template <class D>
constexpr int source_rows_of_pe(bool reads_rows) {
  return reads_rows ? D::kGatherRows / D::kPes : 1;
}

template <class D>
using SumsOfPe = Word[2][D::kGatherRows / D::kPes];

// Gathers what comes in each pass. Its sums leave in the order of their rows: of
// the forward pass to the update engine, gradients to the banks of the rows
// that they are of. Each is cleared as it leaves, so that the next task finds
// them clear, but the first one of a run.
template <class D, class Functions>
void gather(Task task, SumsOfPe<D>& sums, Stream<MessageOf<Functions>>& in,
            Stream<Word>& even_sources, Stream<Word>& odd_sources, Stream<Word>& out,
            Stream<Word>& even_out, Stream<Word>& odd_out) {
  Word sources[source_rows_of_pe<D>(Functions::kGradientReadsRows)];
  const bool forward = task.mode == Mode::forward;
  const bool reads_rows = Functions::kGradientReadsRows && !forward;
  const Word initial = filled(forward ? Functions::kInitial : 0.0F);
  const int own = forward ? task.own / D::kPes : 0;
  const int unclear = Functions::kInitial == 0.0F ? task.unclear : task.sums;
clearing:
  for (int i = 0; i < unclear; ++i) {
#pragma HLS pipeline II = 1
    sums[0][i] = sums[1][i] = initial;
    clock_cycle();
  }
passes:
  for (int pass = 0; pass <= task.passes; ++pass) {
    for (int i = 0; reads_rows && pass < task.passes && i < task.sums; ++i) {
#pragma HLS pipeline II = 1
      sources[i] = i % 2 == 0 ? even_sources.read() : odd_sources.read();
      clock_cycle();
    }
    RecentSums<D> recent;
    MessageOf<Functions> message = {};
    bool holds = false;
    bool ended = pass == task.passes;
    int leaving = pass > 0 ? 0 : task.sums;
  messages:
    while (!ended || leaving < task.sums) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = sums type = inter false  // RecentSums
      if (!ended && !holds && !in.empty()) {
        message = in.read();
        holds = true;
      }
      int added = -1;
      if (holds && message.end) {
        ended = true;
        holds = false;
      } else if (holds) {
        const int row = static_cast<int>(message.destination) / D::kPes;
        if (recent.has(row)) {
          count(Count::hazards);
        } else {
          Word& sum = sums[pass % 2][row];
          sum = forward ? gathered<Functions>(sum, message, row < own)
                        : sum + sent_back<Functions>(message, sources[reads_rows ? row : 0]);
          added = row;
          holds = false;
          count(Count::edges);
        }
      }
      recent.shift(added);
      const bool even = leaving % 2 == 0;
      const bool room = forward ? !out.full() : even ? !even_out.full() : !odd_out.full();
      if (leaving < task.sums && room) {
        const Word sum = sums[(pass + 1) % 2][leaving];
        sums[(pass + 1) % 2][leaving] = initial;
        if (forward) {
          out.write(complete<Functions>(sum));
        } else if (even) {
          even_out.write(sum);
        } else {
          odd_out.write(sum);
        }
        ++leaving;
      }
      clock_cycle();
    }
  }
}

}  // namespace gnnscale::fpga
