// The routing network between scatter and gather PEs: a butterfly of switches
// with two inputs and two outputs, log2(n) stages of n/2 (the n log n of
// HitGNN's equation 2).
#pragma once

#include "kernels/messages.hpp"

namespace gnnscale::fpga {

// One stage. A message leaves on the side given by bit `bit` of its destination.
template <class D, class MessageType>
void route(Task task, int bit, Stream<MessageType> (&in)[D::kPes],
           Stream<MessageType> (&out)[D::kPes]) {
  constexpr int kDepth = kIn + kOut;
  MessageType pending[D::kPes] = {};
  bool holds[D::kPes] = {};
  bool second_first[D::kPes] = {};  // arbitration between inputs that want the same side
  int remaining = task.passes * (D::kPes / 2);
#pragma HLS array_partition variable = pending type = complete
#pragma HLS array_partition variable = holds type = complete
#pragma HLS array_partition variable = second_first type = complete
  LOOP(messages)
  while (remaining > 0) {
    PIPELINED(messages, 1, kDepth);
  switches:
    for (int first = 0; first < D::kPes; ++first) {
#pragma HLS unroll
      if ((first & bit) != 0) continue;
      const int pair[2] = {first, first | bit};
      for (int side = 0; side < 2; ++side) {
#pragma HLS unroll
        if (!holds[pair[side]] && !in[pair[side]].empty()) {
          pending[pair[side]] = in[pair[side]].read();
          holds[pair[side]] = true;
        }
      }
      const bool ends[2] = {holds[pair[0]] && pending[pair[0]].end,
                            holds[pair[1]] && pending[pair[1]].end};
      if (ends[0] && ends[1]) {
        if (!out[pair[0]].full() && !out[pair[1]].full()) {
          out[pair[0]].write(pending[pair[0]]);
          out[pair[1]].write(pending[pair[1]]);
          holds[pair[0]] = holds[pair[1]] = false;
          --remaining;
        }
        continue;
      }
      for (int side = 0; side < 2; ++side) {
#pragma HLS unroll
        bool wants[2];
        for (int from = 0; from < 2; ++from) {
#pragma HLS unroll
          const bool upper = (pending[pair[from]].destination & static_cast<uint32_t>(bit)) != 0;
          wants[from] = holds[pair[from]] && !ends[from] && upper == (side == 1);
        }
        if (!wants[0] && !wants[1]) continue;
        const bool both = wants[0] && wants[1];
        if (both) count(Count::routing_conflicts);
        if (out[pair[side]].full()) continue;
        const int from = both ? (second_first[first] ? 1 : 0) : (wants[1] ? 1 : 0);
        if (both) second_first[first] = from == 0;
        out[pair[side]].write(pending[pair[from]]);
        holds[pair[from]] = false;
      }
    }
  }
}

}  // namespace gnnscale::fpga
