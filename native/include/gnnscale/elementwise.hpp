// ReLU and dropout in one pass, with random bits that are a pure function of a key.
#pragma once

#include <cstdint>

#include "gnnscale/rows.hpp"

namespace gnnscale {

// x = relu(x) * scale where kept, else 0, in place. An element is dropped with probability
// drop / 2^16; float32 or bfloat16.
void relu_dropout(void* x, DType dtype, int64_t size, uint64_t key, uint32_t drop, float scale,
                  int num_threads);

// out = grad * scale where y > 0, else 0; y is what relu_dropout wrote.
void relu_dropout_backward(const void* y, const void* grad, void* out, DType dtype, int64_t size,
                           float scale, int num_threads);

}  // namespace gnnscale
