// The scatter PEs: a message for each edge, of the row that is held.
#pragma once

#include "kernels/tokens.hpp"

namespace gnnscale::fpga {

// What a scatter PE makes in the forward pass.
template <class Functions>
struct ForwardMessage {
  using RowType = Row;
  using MessageType = Message;
  static MessageType of(const RowType& row, const Edge& edge, bool own) {
    MessageType out;
    for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
      const float value = row.value.lane[i];
      out.value.lane[i] = own ? value : Functions::scatter(value, edge.weight);
    }
    return out;
  }
  static bool is_own(const RowType& /*row*/, const Edge& edge, int num_own) {
    return static_cast<int>(edge.destination) < num_own;
  }
};

// And in the backward pass, where the edge alone says what becomes of a
// gradient.
template <class Functions, bool reads_rows = Functions::kGradientReadsRows>
struct BackwardMessage {
  using RowType = Row;
  using MessageType = Message;
  static MessageType of(const RowType& row, const Edge& edge, bool own) {
    MessageType out;
    for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
      const float value = row.value.lane[i];
      out.value.lane[i] = own ? value : Functions::scatter_gradient(0, edge.weight, 0, value);
    }
    return out;
  }
  static bool is_own(const RowType& row, const Edge& /*edge*/, int num_own) {
    return row.source < num_own;
  }
};

// Where it takes the rows at both ends, the gather PE does it.
template <class Functions>
struct BackwardMessage<Functions, true> {
  using RowType = RowWithSum;
  using MessageType = MessageWithSum;
  static MessageType of(const RowType& row, const Edge& edge, bool own) {
    MessageType out;
    out.value = row.value;
    out.gathered = row.gathered;
    out.weight = edge.weight;
    out.own = own;
    return out;
  }
  static bool is_own(const RowType& row, const Edge& /*edge*/, int num_own) {
    return row.source < num_own;
  }
};

// Reuses the row that it holds as long as edges leave from it, and takes the
// next one otherwise (HitGNN, section V-C). Edges are sorted by source, so that
// each row comes once. The first `num_own` aggregated rows are copies of own
// rows, not sums of messages.
template <class Making>
void scatter(int num_passes, int num_own, Stream<Edge>& edges,
             Stream<typename Making::RowType>& rows, Stream<typename Making::MessageType>& out) {
passes:
  for (int pass = 0; pass < num_passes; ++pass) {
    typename Making::RowType held = {};
    held.source = -1;
    bool ended = false;
  edges:
    while (!ended) {
#pragma HLS pipeline II = 1
      const Edge edge = edges.read();
      if (edge.source != held.source && !edge.end) {
        held = rows.read();
        count(Count::source_switches);
      }
      const bool own = Making::is_own(held, edge, num_own);
      typename Making::MessageType message = Making::of(held, edge, own);
      message.destination = edge.destination;
      message.end = ended = edge.end;
      out.write(message);
      clock_cycle();
    }
  }
}

}  // namespace gnnscale::fpga
