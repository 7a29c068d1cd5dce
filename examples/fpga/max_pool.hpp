// Scatter and gather of max_pool.py: of each feature, the largest absolute value among neighbours.
#pragma once

#include <cmath>
#include <limits>

#include "gnnscale_fpga/functions.hpp"

struct LayerFunctions : gnnscale::fpga::WeightedSum {
  static float scatter(float source, float /*weight*/) { return std::fabs(source); }

  static float gather(float gathered, float message) {
    return message > gathered ? message : gathered;
  }
  static constexpr float kInitial = -std::numeric_limits<float>::infinity();

  // The gradient goes to the largest message, times the derivative of the absolute value. Equal
  // messages do not share it.
  static float scatter_gradient(float source, float weight, float gathered, float gradient) {
    if (scatter(source, weight) != gathered) return 0;
    return source < 0 ? -gradient : gradient;
  }
  static constexpr bool kGradientReadsRows = true;
};
