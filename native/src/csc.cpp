#include "gnnscale/csc.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "gnnscale/parallel.hpp"

namespace gnnscale {

template <typename Vertex>
void count_in_degrees(const Vertex* dst, int64_t num_edges, int64_t* counts, int64_t num_vertices) {
  for (int64_t edge = 0; edge < num_edges; ++edge) {
    const auto vertex = static_cast<int64_t>(dst[edge]);
    if (vertex < 0 || vertex >= num_vertices) {
      throw std::invalid_argument("dst: " + std::to_string(vertex) + ", allowed are 0 to " +
                                  std::to_string(num_vertices - 1));
    }
    ++counts[vertex];
  }
}

template <typename Vertex>
void csc_scatter(const Vertex* src, const Vertex* dst, int64_t num_edges,
                 const VertexBuckets& buckets, int64_t* starts, Vertex* src_out, Vertex* dst_out) {
  const auto bucket = [&](int64_t vertex) -> int64_t {
    return buckets.of_place[(vertex - buckets.first) >> buckets.shift];
  };
  std::fill_n(starts, buckets.num_buckets + 1, 0);
  for (int64_t edge = 0; edge < num_edges; ++edge) {
    const int64_t vertex = dst[edge];
    // `first` is at least 0, so that nothing overflows behind the first check.
    const int64_t place = vertex < buckets.first ? -1 : (vertex - buckets.first) >> buckets.shift;
    if (place < 0 || place >= buckets.num_places) {
      throw std::invalid_argument("dst: " + std::to_string(dst[edge]) + " has no bucket");
    }
    ++starts[buckets.of_place[place] + 1];
  }
  for (int64_t b = 0; b < buckets.num_buckets; ++b) starts[b + 1] += starts[b];
  std::vector<int64_t> cursor(starts, starts + buckets.num_buckets);
  for (int64_t edge = 0; edge < num_edges; ++edge) {
    const int64_t slot = cursor[bucket(dst[edge])]++;
    src_out[slot] = src[edge];
    dst_out[slot] = dst[edge];
  }
}

template <typename Vertex>
void csc_fill(const Vertex* src, const Vertex* dst, int64_t num_edges, int64_t first, int64_t last,
              int64_t* cursor, Vertex* out, int64_t out_size) {
  constexpr int64_t kDistance = 32;
  for (int64_t edge = 0; edge < num_edges; ++edge) {
    const int64_t ahead = dst[std::min(edge + kDistance, num_edges - 1)];
    if (ahead >= first && ahead < last) __builtin_prefetch(&cursor[ahead - first], 1);
    if (dst[edge] < first || dst[edge] >= last) continue;
    int64_t& slot = cursor[dst[edge] - first];
    if (slot < 0 || slot >= out_size) {
      throw std::invalid_argument("cursor: the next neighbour of vertex " +
                                  std::to_string(dst[edge]) + " would go to place " +
                                  std::to_string(slot) + " of " + std::to_string(out_size));
    }
    out[slot++] = src[edge];
  }
}

template <typename Vertex>
void csc_sort(const int64_t* indptr, int64_t num_vertices, Vertex* indices, bool drop_duplicates,
              int64_t* new_indptr, int num_threads) {
  new_indptr[0] = 0;
  parallel_for(num_vertices, 4096, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) {
      Vertex* from = indices + indptr[v];
      Vertex* to = indices + indptr[v + 1];
      std::sort(from, to);
      new_indptr[v + 1] = drop_duplicates ? std::unique(from, to) - from : to - from;
    }
  });
  for (int64_t v = 0; v < num_vertices; ++v) {
    const int64_t count = new_indptr[v + 1];
    if (indptr[v] != new_indptr[v]) {
      std::copy_n(indices + indptr[v], count, indices + new_indptr[v]);
    }
    new_indptr[v + 1] = new_indptr[v] + count;
  }
}

void expand_edges(const int64_t* indptr, const int32_t* indices, int64_t num_dst, int64_t first_dst,
                  int64_t* src, int64_t* dst) {
  std::copy_n(indices, indptr[num_dst], src);
  for (int64_t v = 0; v < num_dst; ++v) {
    std::fill(dst + indptr[v], dst + indptr[v + 1], first_dst + v);
  }
}

void transpose_block(const BlockTranspose& block, int64_t* out_indptr, int32_t* out_indices,
                     float* out_weights) {
  const int64_t num_edges = block.indptr[block.num_dst];
  std::fill_n(out_indptr, block.num_src + 1, 0);
  for (int64_t edge = 0; edge < num_edges; ++edge) ++out_indptr[block.indices[edge] + 1];
  for (int64_t src = 0; src < block.num_src; ++src) out_indptr[src + 1] += out_indptr[src];
  // out_indptr[s] serves as the cursor of s, and ends up one list ahead; shifted back below.
  for (int64_t dst = 0; dst < block.num_dst; ++dst) {
    const float scale = block.dst_scale != nullptr ? block.dst_scale[dst] : 1.0F;
    for (int64_t edge = block.indptr[dst]; edge < block.indptr[dst + 1]; ++edge) {
      const int64_t slot = out_indptr[block.indices[edge]]++;
      out_indices[slot] = static_cast<int32_t>(dst);
      out_weights[slot] =
          block.weights != nullptr ? block.weights[edge * block.weight_stride] * scale : scale;
    }
  }
  std::copy_backward(out_indptr, out_indptr + block.num_src, out_indptr + block.num_src + 1);
  out_indptr[0] = 0;
}

template void count_in_degrees(const int32_t*, int64_t, int64_t*, int64_t);
template void count_in_degrees(const int64_t*, int64_t, int64_t*, int64_t);
template void csc_scatter(const int32_t*, const int32_t*, int64_t, const VertexBuckets&, int64_t*,
                          int32_t*, int32_t*);
template void csc_scatter(const int64_t*, const int64_t*, int64_t, const VertexBuckets&, int64_t*,
                          int64_t*, int64_t*);
template void csc_fill(const int32_t*, const int32_t*, int64_t, int64_t, int64_t, int64_t*,
                       int32_t*, int64_t);
template void csc_fill(const int64_t*, const int64_t*, int64_t, int64_t, int64_t, int64_t*,
                       int64_t*, int64_t);
template void csc_sort(const int64_t*, int64_t, int32_t*, bool, int64_t*, int);
template void csc_sort(const int64_t*, int64_t, int64_t*, bool, int64_t*, int);

}  // namespace gnnscale
