// Sorts vertices within segments of a partial order by hotness.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gnnscale/hotness.hpp"

namespace gnnscale {

// Vertices order[begin .. begin + size), in ascending id order, and the first key by which they may
// differ.
struct Segment {
  int64_t begin, size;
  int key;
};

// Sorts each segment by descending keys, stable for equal keys. Needs scratch memory of up to three
// times the largest segment. `order` must hold vertices.
template <typename Vertex>
void sort_segments(Vertex* order, std::vector<Segment> segments, const std::array<Keys, 2>& keys,
                   int num_threads, const Poll& poll);

}  // namespace gnnscale
