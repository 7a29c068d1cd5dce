// Building and transposing compressed sparse columns by counting sort.
#pragma once

#include <cstdint>

namespace gnnscale {

// counts[dst[e] - first] += 1 for every edge. `first` is at least 0. Throws invalid_argument if
// dst[e] is not in [first, first + num_vertices).
template <typename Vertex>
void count_in_degrees(const Vertex* dst, int64_t num_edges, int64_t first, int64_t* counts,
                      int64_t num_vertices);

// Buckets of destinations: vertex v belongs to bucket of_place[(v - first) >> shift].
struct VertexBuckets {
  const int32_t* of_place;
  int64_t num_places;
  int64_t num_buckets;
  int64_t first;
  int shift;
};

// Copies edges bucket by bucket, stable within each bucket: bucket b gets entries starts[b] to
// starts[b + 1] - 1. Throws invalid_argument if a destination has no bucket.
template <typename Vertex>
void csc_scatter(const Vertex* src, const Vertex* dst, int64_t num_edges,
                 const VertexBuckets& buckets, int64_t* starts, Vertex* src_out, Vertex* dst_out,
                 int num_threads);

// Appends src[e] to the in-neighbors of dst[e], for edges with first <= dst[e] < last. `cursor[v -
// first]` is the index in `out` of v's next neighbor. Throws invalid_argument if the index is
// outside of `out`, which has `out_size` entries.
template <typename Vertex>
void csc_fill(const Vertex* src, const Vertex* dst, int64_t num_edges, int64_t first, int64_t last,
              int64_t* cursor, Vertex* out, int64_t out_size);

// Sorts each adjacency list. With `drop_duplicates` also removes repeated neighbors and compacts
// the lists. Writes the new offsets to `new_indptr`.
template <typename Vertex>
void csc_sort(const int64_t* indptr, int64_t num_vertices, Vertex* indices, bool drop_duplicates,
              int64_t* new_indptr, int num_threads);

// Writes source and destination of every edge of a block, in the order of its edges; destinations
// are numbered from `first_dst`.
void expand_edges(const int64_t* indptr, const int32_t* indices, int64_t num_dst, int64_t first_dst,
                  int64_t* src, int64_t* dst);

// Transpose of a block: for every source its destinations in ascending order, and for every edge
// its weight weights[e * weight_stride] * dst_scale[dst] (dst_scale null: 1) and its edge number e
// in the block. Null weights or edge numbers are not written.
struct BlockTranspose {
  const int64_t* indptr;
  const int32_t* indices;
  int64_t num_dst, num_src;
  const float* weights;
  int64_t weight_stride;
  const float* dst_scale;
};
void transpose_block(const BlockTranspose& block, int64_t* out_indptr, int32_t* out_indices,
                     float* out_weights, int64_t* out_edges = nullptr);

}  // namespace gnnscale
