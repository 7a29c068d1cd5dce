// Entry points of the neighbour picking kernels, one set for each instruction set.
#pragma once

#include <cstdint>

namespace gnnscale {

// The destinations of one hop, where their neighbours start and where their picks go.
template <typename Vertex>
struct Pick {
  const Vertex* indices;   // neighbour lists of the whole graph
  int64_t num_vertices;    // every id in them should be below this
  const Vertex* vertices;  // [num_dst]
  const int64_t* begins;   // [num_dst] offset of the first neighbour
  const int64_t* degrees;  // [num_dst]
  const int64_t* indptr;   // [num_dst + 1] offsets into picked
  Vertex* picked;
  uint64_t key;
  bool replace;
  // The table that relabels what is picked, to prefetch: its entries are of 4 bytes a vertex, or of
  // 8 and found by the hash of the vertex, of which `shift` leaves the index. Null if another
  // thread may relabel.
  const void* table;
  int shift;  // 0 for a table of vertices
};

// Positions that a kernel may write past the last one that counts.
inline constexpr int64_t kPickSlack = 32;

struct PickKernels {
  // Picks for destinations [first, last). `positions` has room for all their edges and kPickSlack.
  // Returns whether all that was picked is a vertex.
  bool (*pick32)(const Pick<int32_t>&, int64_t first, int64_t last, int64_t* positions);
  bool (*pick64)(const Pick<int64_t>&, int64_t first, int64_t last, int64_t* positions);

  // The same, but reads no neighbour: `positions` are those of what is picked.
  void (*find32)(const Pick<int32_t>&, int64_t first, int64_t last, int64_t* positions);
  void (*find64)(const Pick<int64_t>&, int64_t first, int64_t last, int64_t* positions);

  // Of a hop that takes all neighbours: copies those of edges [first, last), which begin in the
  // list of destination `dst`. Returns as above.
  bool (*copy32)(const Pick<int32_t>&, int64_t dst, int64_t first, int64_t last);
  bool (*copy64)(const Pick<int64_t>&, int64_t dst, int64_t first, int64_t last);

  // out[i] = -log(u_i) / weights[i], of u_i the (first + i)-th draw of `key`; infinite if the
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
