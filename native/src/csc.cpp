#include "gnnscale/csc.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gnnscale/parallel.hpp"

namespace gnnscale {
namespace {

// Edges of a thread at least; fewer do not justify another thread.
constexpr int64_t kScatterGrain = 1 << 16;
// Maximum length of a list that is sorted by counting smaller entries.
constexpr int kShort = 32;

// Sorts a list of up to `kRoom` entries by rank: an entry's position is the number of smaller
// entries. Compares all pairs, vectorized and without branches.
template <int kRoom, typename Vertex>
void sort_by_ranks(Vertex* list, int64_t size) {
  std::array<Vertex, kRoom> entries{}, ranks{};
  std::copy_n(list, size, entries.data());
  for (int i = 0; i < size; ++i) {
    const Vertex entry = entries[i];
    for (int j = 0; j < kRoom; ++j) {
      ranks[j] += (entry < entries[j]) | ((entry == entries[j]) & (i < j));
    }
  }
  for (int i = 0; i < size; ++i) list[ranks[i]] = entries[i];
}

template <typename Vertex>
void sort_list(Vertex* list, int64_t size) {
  if (size < 2) return;
  if (size > kShort) return std::sort(list, list + size);
  if (size <= kShort / 4) return sort_by_ranks<kShort / 4>(list, size);
  if (size <= kShort / 2) return sort_by_ranks<kShort / 2>(list, size);
  if (size <= kShort * 3 / 4) return sort_by_ranks<kShort * 3 / 4>(list, size);
  sort_by_ranks<kShort>(list, size);
}

}  // namespace

template <typename Vertex>
void count_in_degrees(const Vertex* dst, int64_t num_edges, int64_t first, int64_t* counts,
                      int64_t num_vertices) {
  for (int64_t edge = 0; edge < num_edges; ++edge) {
    const auto vertex = static_cast<int64_t>(dst[edge]);
    if (vertex < first || vertex - first >= num_vertices) {
      throw std::invalid_argument("dst: " + std::to_string(vertex) + ", allowed are " +
                                  std::to_string(first) + " to " +
                                  std::to_string(first + num_vertices - 1));
    }
    ++counts[vertex - first];
  }
}

template <typename Vertex>
void csc_scatter(const Vertex* src, const Vertex* dst, int64_t num_edges,
                 const VertexBuckets& buckets, int64_t* starts, Vertex* src_out, Vertex* dst_out,
                 int num_threads) {
  // Each chunk of edges has its own range in every bucket; ranges follow in the order of chunks.
  const int64_t num_chunks = std::clamp<int64_t>(num_edges / kScatterGrain, 1, num_threads);
  std::vector<std::vector<int64_t>> offsets(num_chunks, std::vector<int64_t>(buckets.num_buckets));
  const auto first_of = [&](int64_t chunk) { return num_edges * chunk / num_chunks; };
  parallel_for(num_chunks, 1, num_threads, [&](int64_t chunk, int64_t) {
    for (int64_t edge = first_of(chunk); edge < first_of(chunk + 1); ++edge) {
      const int64_t vertex = dst[edge];
      // `first` is at least 0, so nothing overflows after the first check.
      const int64_t bucket_index =
          vertex < buckets.first ? -1 : (vertex - buckets.first) >> buckets.shift;
      if (bucket_index < 0 || bucket_index >= buckets.num_places) {
        throw std::invalid_argument("dst: " + std::to_string(dst[edge]) + " has no bucket");
      }
      ++offsets[chunk][buckets.of_place[bucket_index]];
    }
  });
  int64_t offset = 0;
  for (int64_t bucket = 0; bucket < buckets.num_buckets; ++bucket) {
    starts[bucket] = offset;
    for (auto& of_chunk : offsets) offset += std::exchange(of_chunk[bucket], offset);
  }
  starts[buckets.num_buckets] = offset;
  parallel_for(num_chunks, 1, num_threads, [&](int64_t chunk, int64_t) {
    int64_t* next = offsets[chunk].data();
    for (int64_t edge = first_of(chunk); edge < first_of(chunk + 1); ++edge) {
      const int64_t slot = next[buckets.of_place[(dst[edge] - buckets.first) >> buckets.shift]]++;
      src_out[slot] = src[edge];
      dst_out[slot] = dst[edge];
    }
  });
}

template <typename Vertex>
void csc_fill(const Vertex* src, const Vertex* dst, int64_t num_edges, int64_t first, int64_t last,
              int64_t* cursor, Vertex* out, int64_t out_size) {
  constexpr int64_t kDistance = 32;
  for (int64_t edge = 0; edge < num_edges; ++edge) {
    const int64_t later_dst = dst[std::min(edge + kDistance, num_edges - 1)];
    if (later_dst >= first && later_dst < last) __builtin_prefetch(&cursor[later_dst - first], 1);
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
      sort_list(from, to - from);
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
  constexpr int64_t kUsual = 16;
  const int64_t num_edges = indptr[num_dst];
  std::copy_n(indices, num_edges, src);
  int64_t v = 0;
  // The number of edges is unpredictable: no loop over a few. Surplus numbers are overwritten by
  // later destinations.
  for (; v < num_dst && indptr[v] + kUsual <= num_edges; ++v) {
    std::fill_n(dst + indptr[v], kUsual, first_dst + v);
    std::fill(dst + std::min(indptr[v] + kUsual, indptr[v + 1]), dst + indptr[v + 1],
              first_dst + v);
  }
  for (; v < num_dst; ++v) std::fill(dst + indptr[v], dst + indptr[v + 1], first_dst + v);
}

void transpose_block(const BlockTranspose& block, int64_t* out_indptr, int32_t* out_indices,
                     float* out_weights, int64_t* out_edges) {
  const int64_t num_edges = block.indptr[block.num_dst];
  std::fill_n(out_indptr, block.num_src + 1, 0);
  for (int64_t edge = 0; edge < num_edges; ++edge) ++out_indptr[block.indices[edge] + 1];
  for (int64_t src = 0; src < block.num_src; ++src) out_indptr[src + 1] += out_indptr[src];
  // out_indptr[s] serves as the cursor of s and ends one list ahead; shifted back at the end.
  for (int64_t dst = 0; dst < block.num_dst; ++dst) {
    const float scale = block.dst_scale != nullptr ? block.dst_scale[dst] : 1.0F;
    for (int64_t edge = block.indptr[dst]; edge < block.indptr[dst + 1]; ++edge) {
      const int64_t slot = out_indptr[block.indices[edge]]++;
      out_indices[slot] = static_cast<int32_t>(dst);
      if (out_edges != nullptr) out_edges[slot] = edge;
      if (out_weights == nullptr) continue;
      out_weights[slot] =
          block.weights != nullptr ? block.weights[edge * block.weight_stride] * scale : scale;
    }
  }
  std::copy_backward(out_indptr, out_indptr + block.num_src, out_indptr + block.num_src + 1);
  out_indptr[0] = 0;
}

template void count_in_degrees(const int32_t*, int64_t, int64_t, int64_t*, int64_t);
template void count_in_degrees(const int64_t*, int64_t, int64_t, int64_t*, int64_t);
template void csc_scatter(const int32_t*, const int32_t*, int64_t, const VertexBuckets&, int64_t*,
                          int32_t*, int32_t*, int);
template void csc_scatter(const int64_t*, const int64_t*, int64_t, const VertexBuckets&, int64_t*,
                          int64_t*, int64_t*, int);
template void csc_fill(const int32_t*, const int32_t*, int64_t, int64_t, int64_t, int64_t*,
                       int32_t*, int64_t);
template void csc_fill(const int64_t*, const int64_t*, int64_t, int64_t, int64_t, int64_t*,
                       int64_t*, int64_t);
template void csc_sort(const int64_t*, int64_t, int32_t*, bool, int64_t*, int);
template void csc_sort(const int64_t*, int64_t, int64_t*, bool, int64_t*, int);

}  // namespace gnnscale
