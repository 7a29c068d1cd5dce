// Scatter, gather and update of a layer (HitGNN, section IV-C and Table II), for one feature.
#pragma once

namespace gnnscale::fpga {

// GCN, GraphSAGE and GIN: a weighted sum, and ReLU between layers. The models differ only in edge
// weights and in the summed rows, which the host prepares.
//
// A custom layer is a struct that inherits from WeightedSum and overrides the functions that
// differ; see examples/fpga. Each function must be pure, and gather must not depend on the order of
// messages.
struct WeightedSum {
  // Returns the message of an edge.
  static float scatter(float source, float weight) { return weight * source; }

  // Returns a destination's sum after one more message.
  static float gather(float gathered, float message) { return gathered + message; }
  static constexpr float kInitial = 0;  // before the first message; a row without messages is 0

  // Returns the gradient that an edge sends back: the gradient of its message, times the derivative
  // of scatter. `gathered` is the destination's sum in the forward pass, `source` the source's
  // feature in the forward pass.
  static float scatter_gradient(float /*source*/, float weight, float /*gathered*/,
                                float gradient) {
    return weight * gradient;
  }
  // Whether scatter_gradient reads source or gathered; only then are they sent to the gather PEs.
  static constexpr bool kGradientReadsRows = false;

  // Activation of the product between layers, before dropout. NaN propagates.
  static float update(float product) { return product <= 0 ? 0.0F : product; }  // NaN stays
  // Returns the gradient of update, given its result.
  static float update_gradient(float updated, float gradient) {
    return updated > 0 ? gradient : 0.0F;
  }
};

}  // namespace gnnscale::fpga
