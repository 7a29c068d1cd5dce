// Checks of array contents on which memory safety depends. Type, shape and strides are checked
// where arrays come from Python, in bindings/argument_checks.hpp.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "gnnscale/limits.hpp"

namespace gnnscale {

// The sampled topology holds an offset or an id that is out of range.
struct TopologyError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws invalid_argument, naming the array, unless 0 <= ids[i] < bound for all i.
void check_below(const int32_t* ids, int64_t size, int64_t bound, const char* name,
                 int num_threads = 1);
void check_below(const int64_t* ids, int64_t size, int64_t bound, const char* name,
                 int num_threads = 1);

// Throws invalid_argument unless offsets start at 0, never decrease, and end at num_items.
void check_offsets(const int64_t* offsets, int64_t num_lists, int64_t num_items, const char* name,
                   int num_threads = 1);

}  // namespace gnnscale
