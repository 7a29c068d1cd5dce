// Entry points of the neighbor picking kernels, one set for each instruction set.
#pragma once

#include <cstdint>

#include "gnnscale/graph_types.hpp"

namespace gnnscale {

// The destinations of one hop, the starts of their lists, and the output of their picks.
template <typename Vertex>
struct Pick {
  const Vertex* indices;   // adjacency lists of the whole graph
  VertexType sources;      // valid ids
  EdgeType edges;          // rows of the destinations' lists
  const Vertex* vertices;  // [num_dst]
  const int64_t* begins;   // [num_dst] offset of the first neighbor
  const int64_t* degrees;  // [num_dst]
  const int64_t* indptr;   // [num_dst + 1] offsets into picked
  Vertex* picked;
  uint64_t key;
  bool replace;
  // Relabeling table to prefetch: 4-byte entries by vertex, or 8-byte entries by the vertex's hash,
  // whose bits above `shift` are the index. Null if another thread may relabel.
  const void* table;
  int shift;  // 0: entries by vertex
  // [num_dst] keys of the destinations' draws. Null: they follow from `key` and the vertices.
  const uint64_t* keys = nullptr;
};

// Positions that a kernel may write past the last valid one.
inline constexpr int64_t kPickSlack = 32;

struct PickKernels {
  // Picks for destinations [first, last). `positions` has capacity for all their edges and
  // kPickSlack. Returns whether all picked ids are vertices.
  bool (*pick32)(const Pick<int32_t>&, int64_t first, int64_t last, int64_t* positions);
  bool (*pick64)(const Pick<int64_t>&, int64_t first, int64_t last, int64_t* positions);

  // As pick, without reading neighbors: only writes the `positions` of picks.
  void (*find32)(const Pick<int32_t>&, int64_t first, int64_t last, int64_t* positions);
  void (*find64)(const Pick<int64_t>&, int64_t first, int64_t last, int64_t* positions);

  // For a hop that copies all lists in full: copies the neighbors of edges [first, last), which
  // begin in the list of destination `dst`. Returns whether all ids are vertices.
  bool (*copy32)(const Pick<int32_t>&, int64_t dst, int64_t first, int64_t last);
  bool (*copy64)(const Pick<int64_t>&, int64_t dst, int64_t first, int64_t last);

  // out[i] = -log(u_i) / weights[i], where u_i is the (first + i)-th draw of `key`; infinite if the
  // weight is not positive.
  void (*exponentials)(uint64_t key, int64_t first, const float* weights, int64_t n, double* out);
};

// Floyd's sampling with a hash set, for many picks: out[i] = begin + i-th of k < n positions.
void pick_many(uint64_t key, int64_t begin, int64_t n, int64_t k, int64_t* out);

namespace baseline {
extern const PickKernels pick_kernels;
}
namespace v3 {
extern const PickKernels pick_kernels;
}
namespace v4 {
extern const PickKernels pick_kernels;
}

}  // namespace gnnscale
