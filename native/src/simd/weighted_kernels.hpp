// Entry points of the kernels that draw edges by weight, one set for each instruction set.
#pragma once

#include <cstdint>

#include "gnnscale/weighted_lists.hpp"

namespace gnnscale {

// Draws of one list that are compared with each other here, at most.
inline constexpr int64_t kCompared = 32;

struct WeightedKernels {
  // Replaces the slots of the first n draws of `key` by their edges, as WeightedList::edge_in.
  void (*edges_in)(const WeightedList&, uint64_t key, int64_t n, int64_t* edges);

  // The same for k <= kCompared draws, of which those that are no edge or come again are rejected;
  // in their place more are made, `most` in all. Returns how many edges there are.
  int64_t (*distinct_in)(const WeightedList&, uint64_t key, int64_t k, int64_t most,
                         int64_t* edges);
};

namespace baseline {
extern const WeightedKernels weighted_kernels;
}
namespace v3 {
extern const WeightedKernels weighted_kernels;
}
namespace v4 {
extern const WeightedKernels weighted_kernels;
}

}  // namespace gnnscale
