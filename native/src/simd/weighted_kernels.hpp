// Entry points of the weighted draw kernels, one set for each instruction set.
#pragma once

#include <cstdint>

#include "gnnscale/weighted_lists.hpp"

namespace gnnscale {

// Maximum draws of one list that these kernels compare with each other.
inline constexpr int64_t kCompared = 32;

struct WeightedKernels {
  // Replaces the slots of the first n draws of `key` by their edges, as WeightedList::edge_in.
  void (*edges_in)(const WeightedList&, uint64_t key, int64_t n, int64_t* edges);

  // As edges_in for k <= kCompared draws, rejecting invalid and repeated edges; rejected draws are
  // replaced by further ones, `max_count` draws in total. Returns the number of edges.
  int64_t (*distinct_in)(const WeightedList&, uint64_t key, int64_t k, int64_t max_count,
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
