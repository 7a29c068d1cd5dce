// Checks of what arrays hold, where memory safety depends on it. What an array is (type, shape,
// strides) is checked where it comes from Python, in bindings/argument_checks.hpp.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "gnnscale/limits.hpp"

namespace gnnscale {

// The topology that is sampled holds an offset or an id that is none.
struct TopologyError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws invalid_argument, which names the array, unless 0 <= ids[i] < bound for all i.
void check_below(const int32_t* ids, int64_t size, int64_t bound, const char* name,
                 int num_threads = 1);
void check_below(const int64_t* ids, int64_t size, int64_t bound, const char* name,
                 int num_threads = 1);

// Throws invalid_argument unless offsets[0] == 0, no offset is below the one before it, and
// offsets[num_lists] == num_items.
void check_offsets(const int64_t* offsets, int64_t num_lists, int64_t num_items, const char* name,
                   int num_threads = 1);

}  // namespace gnnscale
