// The gather PEs: PE g accumulates the destinations that are g modulo n, on the chip.
//
// A PE's sums are double-buffered: while one pass is gathered, the sums of the previous pass leave.
// One half is in BRAM and the other in URAM, since neither has capacity for both.
#pragma once

#include "kernels/messages.hpp"

namespace gnnscale::fpga {

// The sums in flight: an addition to a sum, or its clearing, takes kGatherWindow cycles from read
// to write.
struct RecentSums {
  int recent[kGatherWindow - 1];

  RecentSums() {
    for (int i = 0; i < kGatherWindow - 1; ++i) {
#pragma HLS unroll
      recent[i] = -1;
    }
  }
  bool has(int index) const {
    bool is_recent = false;
    for (int i = 0; i < kGatherWindow - 1; ++i) {
#pragma HLS unroll
      is_recent = is_recent || recent[i] == index;
    }
    return is_recent;
  }
  // Called every cycle with the sum that was read, or -1.
  void shift(int newest) {
    for (int i = kGatherWindow - 2; i > 0; --i) {
#pragma HLS unroll
      recent[i] = recent[i - 1];
    }
    recent[0] = newest;
  }
};

// Returns a sum after one more message. Own rows are copied without scatter.
template <class Functions>
Word gathered(const Word& sum, const Message& message, bool is_own) {
  Word out;
  for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
    const float value = message.value.lane[i];
    out.lane[i] = is_own ? value : Functions::gather(sum.lane[i], value);
  }
  return out;
}

// Returns 0 for a row without messages, whatever the initial sum.
template <class Functions>
Word complete(const Word& sum) {
  Word out;
  for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
    out.lane[i] = sum.lane[i] == Functions::kInitial ? 0.0F : sum.lane[i];
  }
  return out;
}

// Returns the backward message, which is added to the gradient of `source`.
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

// The source rows of a pass, if gradients need them. A PE's rows alternate between two banks.
template <class D>
constexpr int source_rows_of_pe(bool reads_rows) {
  return reads_rows ? D::kGatherRows / D::kPes : 1;
}

template <class D>
using HalfOfSums = Word[D::kGatherRows / D::kPes];

// Gathers the messages of each pass. Sums leave in row order: forward to the update engine,
// gradients to the banks of their rows. Each sum is cleared as it leaves, so that the next task
// finds cleared sums; the first task of a run clears them itself.
template <class D, class Functions>
void gather(Task task, HalfOfSums<D>& first_sums, HalfOfSums<D>& second_sums,
            Stream<MessageOf<Functions>>& in, Stream<Word>& even_sources, Stream<Word>& odd_sources,
            Stream<Word>& out, Stream<Word>& even_out, Stream<Word>& odd_out) {
  constexpr int kRows = D::kGatherRows / D::kPes;
  constexpr int kDepth = kIn + kUramRead + kAdd + kWrite;
  const bool forward = task.mode == Mode::forward;
  const bool reads_rows = Functions::kGradientReadsRows && !forward;
  const Word initial = filled(forward ? Functions::kInitial : 0.0F);
  const int num_own = forward ? task.own / D::kPes : 0;
  const int unclear = Functions::kInitial == 0.0F ? task.unclear : task.sums;
  Word sources[source_rows_of_pe<D>(Functions::kGradientReadsRows)];
  LOOP(clearing)
  for (int i = 0; i < unclear; ++i) {
    PIPELINED(clearing, 1, kWrite);
    first_sums[i] = second_sums[i] = initial;
  }
  RecentSums added, cleared;
  MessageOf<Functions> message = {};
  bool holds = false;
  bool ended = task.passes == 0;  // whether this pass has no further messages
  int pass = 0;
  int loaded = reads_rows && !ended ? 0 : task.sums;  // loaded source rows of this pass
  int leaving = task.sums;                            // sums of the previous pass that have left
  LOOP(messages)
  while (!ended || leaving < task.sums) {
    PIPELINED(messages, 1, kDepth);
#pragma HLS dependence variable = first_sums type = inter false  // RecentSums
#pragma HLS dependence variable = second_sums type = inter false
#pragma HLS dependence variable = sources type = inter false  // read after all are written
    const int half = pass % 2;
    if (loaded < task.sums) {
      sources[loaded] = loaded % 2 == 0 ? even_sources.read() : odd_sources.read();
      ++loaded;
    } else if (!ended && !holds && !in.empty()) {
      message = in.read();
      holds = true;
    }
    // One sum of the filling half is read and written, and one of the other half.
    const int row = static_cast<int>(message.destination / D::kPes) % kRows;
    const bool messages_end = holds && message.end;
    const bool waits = added.has(half * kRows + row) || cleared.has(half * kRows + row);
    const bool adds = holds && !message.end && !waits;
    if (holds && !message.end && waits) count(Count::hazards);
    if (adds) count(Count::edges);
    const bool even = leaving % 2 == 0;
    const bool has_room = forward ? !out.full() : even ? !even_out.full() : !odd_out.full();
    const bool leaves = leaving < task.sums && has_room && !added.has((1 - half) * kRows + leaving);
    Word filling_sum = {}, leaving_sum = {};
    for (int i = 0; i < 2; ++i) {
#pragma HLS unroll
      const int sum_row = i == half ? row : leaving % kRows;
      const Word sum = i == 0 ? first_sums[sum_row] : second_sums[sum_row];
      if (i == half) filling_sum = sum;
      if (i != half) leaving_sum = sum;
    }
    const Word next =
        forward ? gathered<Functions>(filling_sum, message, row < num_own)
                : filling_sum + sent_back<Functions>(message, sources[reads_rows ? row : 0]);
    for (int i = 0; i < 2; ++i) {
#pragma HLS unroll
      const bool fills = i == half;
      const int sum_row = fills ? row : leaving % kRows;
      const Word sum = fills ? next : initial;
      if (fills ? !adds : !leaves) continue;
      if (i == 0) first_sums[sum_row] = sum;
      if (i == 1) second_sums[sum_row] = sum;
    }
    added.shift(adds ? half * kRows + row : -1);
    cleared.shift(leaves ? (1 - half) * kRows + leaving : -1);
    if (leaves && forward) {
      out.write(complete<Functions>(leaving_sum));
    } else if (leaves && even) {
      even_out.write(leaving_sum);
    } else if (leaves) {
      odd_out.write(leaving_sum);
    }
    if (leaves) ++leaving;
    if (adds || messages_end) holds = false;
    ended = ended || messages_end;
    if (ended && leaving == task.sums && pass < task.passes) {
      // Starts the next pass; after the last one its sums leave.
      ++pass;
      leaving = 0;
      ended = pass == task.passes;
      loaded = reads_rows && !ended ? 0 : task.sums;
    }
  }
}

}  // namespace gnnscale::fpga
