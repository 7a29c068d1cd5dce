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

// Takes a message if there is one and its sum is free. Returns whether the pass
// is over.
template <class D, class MessageType, class Gathering>
bool take(Stream<MessageType>& in, MessageType& message, bool& holds, RecentSums<D>& recent,
          Word (&sums)[D::kGatherRows / D::kPes], Gathering gathered) {
#pragma HLS inline
  if (!holds && !in.empty()) {
    message = in.read();
    holds = true;
  }
  int added = -1;
  bool ended = false;
  if (holds && message.end) {
    ended = true;
    holds = false;
  } else if (holds) {
    const int row = static_cast<int>(message.destination) / D::kPes;
    if (recent.has(row)) {
      count(Count::hazards);
    } else {
      sums[row] = gathered(sums[row], message, row);
      added = row;
      holds = false;
      count(Count::edges);
    }
  }
  recent.shift(added);
  return ended;
}

// Clears both halves; one row of each in a cycle.
template <class D>
void clear(Word (&sums)[2][D::kGatherRows / D::kPes], int num_rows, float initial) {
rows:
  for (int i = 0; i < num_rows; ++i) {
#pragma HLS pipeline II = 1
    sums[0][i] = sums[1][i] = filled(initial);
    clock_cycle();
  }
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

// Forward: the sums of each pass leave in the order of their rows. The first
// `num_own` rows of the PE take one message each, and hold it as it is.
template <class D, class Functions>
void gather(int num_passes, int num_own, int num_rows, Stream<Message>& in, Stream<Word>& out) {
  Word sums[2][D::kGatherRows / D::kPes];
#pragma HLS array_partition variable = sums dim = 1 complete
  clear<D>(sums, num_rows, Functions::kInitial);
passes:
  for (int pass = 0; pass <= num_passes; ++pass) {
    RecentSums<D> recent;
    Message message = {};
    bool holds = false;
    bool ended = pass == num_passes;
    int leaving = pass > 0 ? 0 : num_rows;
  messages:
    while (!ended || leaving < num_rows) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = sums type = inter false  // RecentSums
      if (!ended) {
        ended = take<D>(in, message, holds, recent, sums[pass % 2],
                        [&](const Word& sum, const Message& each, int row) {
                          Word added;
                          for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
                            const float value = each.value.lane[i];
                            added.lane[i] =
                                row < num_own ? value : Functions::gather(sum.lane[i], value);
                          }
                          return added;
                        });
      }
      if (leaving < num_rows && !out.full()) {
        Word& sum = sums[(pass + 1) % 2][leaving++];
        out.write(leaving <= num_own ? sum : complete<Functions>(sum));
        sum = filled(Functions::kInitial);
      }
      clock_cycle();
    }
  }
}

// What a gather PE adds in the backward pass.
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

// Backward: the sums are gradients of hidden rows. They replace these rows, as
// gradients of what came before update and dropout.
template <class D, class Functions, class MessageType>
void gather_gradients(int num_passes, int num_rows, int to, bool activates, bool drops, float scale,
                      Stream<MessageType>& in, Word (&hidden)[D::kRowWords / D::kPes]) {
  Word sums[2][D::kGatherRows / D::kPes];
#pragma HLS array_partition variable = sums dim = 1 complete
  clear<D>(sums, num_rows, 0.0F);
passes:
  for (int pass = 0; pass <= num_passes; ++pass) {
    RecentSums<D> recent;
    MessageType message = {};
    bool holds = false;
    bool ended = pass == num_passes;
    int leaving = pass > 0 ? 0 : num_rows;
  messages:
    while (!ended || leaving < num_rows) {
#pragma HLS pipeline II = 1
#pragma HLS dependence variable = sums type = inter false  // RecentSums
      if (!ended) {
        ended =
            take<D>(in, message, holds, recent, sums[pass % 2],
                    [&](const Word& sum, const MessageType& each, int row) {
                      return sum + sent_back<Functions>(each, hidden[to + row * num_passes + pass]);
                    });
      }
      if (leaving < num_rows) {
        Word& sum = sums[(pass + 1) % 2][leaving];
        Word& row = hidden[to + leaving * num_passes + pass - 1];
        ++leaving;
        for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
          const bool open = !drops || row.lane[i] != 0;  // what was dropped is 0
          const float slope = activates ? Functions::update_gradient(row.lane[i] / scale) : 1.0F;
          row.lane[i] = open ? sum.lane[i] * slope * scale : 0.0F;
        }
        sum = filled(0.0F);
      }
      clock_cycle();
    }
  }
}

}  // namespace gnnscale::fpga
