// Scatter, gather and update of a layer (HitGNN, section IV-C and Table II), a
// feature at a time.
#pragma once

namespace gnnscale::fpga {

// GCN, GraphSAGE and GIN: a weighted sum, and ReLU between layers. What tells
// these models apart is the weights of edges and which rows are summed, which
// the host prepares.
//
// A layer of one's own is a struct that inherits from this one and replaces
// what it does otherwise; see examples/fpga. Each function must be pure, and
// gather must not depend on the order of messages.
struct WeightedSum {
  // The message of an edge.
  static float scatter(float source, float weight) { return weight * source; }

  // A destination's sum, after one more message.
  static float gather(float gathered, float message) { return gathered + message; }
  static constexpr float kInitial = 0;  // before the first; a row without messages is 0

  // The gradient that an edge sends back: that of its message, times the
  // derivative of scatter. `gathered` is the destination's sum in the forward
  // pass; `source` is the source's feature there.
  static float scatter_gradient(float /*source*/, float weight, float /*gathered*/,
                                float gradient) {
    return weight * gradient;
  }
  // Whether it reads source or gathered, which are brought to the gather PEs
  // only then.
  static constexpr bool kGradientReadsRows = false;

  // What follows the product between layers; dropout comes after it.
  static float update(float product) { return product <= 0 ? 0.0F : product; }  // NaN stays
  // The gradient that it sends back, by what it returned.
  static float update_gradient(float updated, float gradient) {
    return updated > 0 ? gradient : 0.0F;
  }
};

}  // namespace gnnscale::fpga
