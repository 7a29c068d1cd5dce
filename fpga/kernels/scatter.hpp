// The scatter PEs: a message for each edge, of the row that is held.
#pragma once

#include "kernels/messages.hpp"

namespace gnnscale::fpga {

// What the gather PE takes the derivative of.
inline void attach(Message& /*message*/, const Row& /*row*/, const Edge& /*edge*/, bool /*own*/) {}
inline void attach(MessageWithSum& message, const RowWithSum& row, const Edge& edge, bool own) {
  message.gathered = row.gathered;
  message.weight = edge.weight;
  message.own = own;
}

// The value of a message. Where a gradient takes the rows at both ends of the
// edge, the gather PE computes it.
template <class Functions>
float message_of(float value, float weight, bool forward) {
  if (forward) return Functions::scatter(value, weight);
  if (Functions::kGradientReadsRows) return value;
  return Functions::scatter_gradient(0, weight, 0, value);
}

// Reuses the row that it holds as long as edges leave from it, and takes the
// next one otherwise (HitGNN, section V-C). Edges are sorted by source, so that
// each row comes once. Own rows are copied: the first `own` aggregated ones,
// and on the way back the gradients that come first.
template <class Functions>
void scatter(Task task, Stream<Edge>& edges, Stream<RowOf<Functions>>& rows,
             Stream<MessageOf<Functions>>& out) {
  constexpr int kDepth = kIn + kMultiply + kOut;
  const bool forward = task.mode == Mode::forward;
  RowOf<Functions> held = {};
  held.source = -1;
  int left = task.passes;
  LOOP(messages)
  while (left > 0) {
    PIPELINED(messages, 1, kDepth);
    const Edge edge = edges.read();
    if (edge.source != held.source && !edge.end) {
      held = rows.read();
      count(Count::source_switches);
    }
    const bool own = (forward ? static_cast<int>(edge.destination) : held.source) < task.own;
    MessageOf<Functions> message;
    for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
      const float value = held.value.lane[i];
      message.value.lane[i] = own ? value : message_of<Functions>(value, edge.weight, forward);
    }
    attach(message, held, edge, own);
    message.destination = edge.destination;
    message.end = edge.end;
    out.write(message);
    if (!edge.end) continue;
    held.source = -1;
    --left;
  }
}

}  // namespace gnnscale::fpga
