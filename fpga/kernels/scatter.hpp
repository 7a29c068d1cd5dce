// The scatter PEs: send a message for each edge, computed from the current row.
#pragma once

#include "kernels/messages.hpp"

namespace gnnscale::fpga {

// Attaches the inputs of the gather PE's derivative.
inline void attach(Message& /*message*/, const Row& /*row*/, const Edge& /*edge*/,
                   bool /*is_own*/) {}
inline void attach(MessageWithSum& message, const RowWithSum& row, const Edge& edge, bool is_own) {
  message.gathered = row.gathered;
  message.weight = edge.weight;
  message.own = is_own;
}

// Returns the value of a message. If a gradient needs the rows at both ends of the edge, the gather
// PE computes it.
template <class Functions>
float message_of(float value, float weight, bool forward) {
  if (forward) return Functions::scatter(value, weight);
  if (Functions::kGradientReadsRows) return value;
  return Functions::scatter_gradient(0, weight, 0, value);
}

// Reuses the current row while edges leave from it, then takes the next one (HitGNN, section V-C).
// Edges are sorted by source, so each row arrives once. Own rows are copied: forward the first
// `is_own` aggregated rows, backward the gradients that arrive first.
template <class Functions>
void scatter(Task task, Stream<Edge>& edges, Stream<RowOf<Functions>>& rows,
             Stream<MessageOf<Functions>>& out) {
  constexpr int kDepth = kIn + kMultiply + kOut;
  const bool forward = task.mode == Mode::forward;
  RowOf<Functions> current = {};
  current.source = -1;
  int remaining = task.passes;
  LOOP(messages)
  while (remaining > 0) {
    PIPELINED(messages, 1, kDepth);
    const Edge edge = edges.read();
    if (edge.source != current.source && !edge.end) {
      current = rows.read();
      count(Count::source_switches);
    }
    const bool is_own = (forward ? static_cast<int>(edge.destination) : current.source) < task.own;
    MessageOf<Functions> message;
    for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
      const float value = current.value.lane[i];
      message.value.lane[i] = is_own ? value : message_of<Functions>(value, edge.weight, forward);
    }
    attach(message, current, edge, is_own);
    message.destination = edge.destination;
    message.end = edge.end;
    out.write(message);
    if (!edge.end) continue;
    current.source = -1;
    --remaining;
  }
}

}  // namespace gnnscale::fpga
