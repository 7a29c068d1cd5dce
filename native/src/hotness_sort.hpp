// Sorting vertices that are in order by their hottest bits already.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gnnscale/hotness.hpp"

namespace gnnscale {

// Vertices order[begin .. begin + size), in rising order of their ids, and the first key by which
// they may differ.
struct Segment {
  int64_t begin, size;
  int key;
};

// Sorts each segment by falling keys; those alike stay in the order of their ids. Needs half
// as much memory again as the largest segment takes, twice. What `order` holds must be vertices.
template <typename Vertex>
void sort_segments(Vertex* order, std::vector<Segment> segments, const std::array<Keys, 2>& keys,
                   int num_threads, const Poll& poll);

}  // namespace gnnscale
