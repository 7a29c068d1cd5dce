#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <unordered_set>

#include "gnnscale/parallel.hpp"
#include "gnnscale/random.hpp"
#include "gnnscale/sampler.hpp"
#include "gnnscale/simd.hpp"
#include "simd/pick_kernels.hpp"

namespace gnnscale {

void pick_many(uint64_t key, int64_t begin, int64_t n, int64_t k, int64_t* out) {
  std::unordered_set<int64_t> chosen;
  chosen.reserve(k);
  for (int64_t i = 0; i < k; ++i) {
    const int64_t last = n - k + i;
    const auto candidate = static_cast<int64_t>(below(draw(key, i), last + 1));
    const int64_t position = chosen.insert(candidate).second ? candidate : last;
    if (position == last) chosen.insert(last);
    out[i] = begin + position;
  }
}

namespace {

// Edges a chunk holds: enough to hide the cost of handing it out, few enough to stay in L2.
constexpr int64_t kChunkEdges = 1024;
constexpr int64_t kPrefetchDistance = 48;

bool pick(const Pick<int32_t>& hop, int64_t first, int64_t last, int64_t* positions) {
  return GNNSCALE_FOR_ISA(pick_kernels).pick32(hop, first, last, positions);
}
bool pick(const Pick<int64_t>& hop, int64_t first, int64_t last, int64_t* positions) {
  return GNNSCALE_FOR_ISA(pick_kernels).pick64(hop, first, last, positions);
}

// A chunk's way: picked, then relabelled; damaged where it holds an id that is no vertex.
enum class Chunk : uint8_t { waiting, picked, damaged };

template <typename Vertex>
[[noreturn]] void refuse_picked(const Vertex* picked, int64_t size, int64_t num_vertices) {
  const Vertex* wrong =
      std::find_if(picked, picked + size, [&](Vertex v) { return v < 0 || v >= num_vertices; });
  throw TopologyError("indices: " + std::to_string(*wrong) + " is no vertex, the graph has " +
                      std::to_string(num_vertices));
}

[[noreturn]] void refuse_size() {
  throw std::length_error("fanouts: a hop has more than " + std::to_string(kMaxLocal) +
                          " vertices or edges; smaller fan-outs or fewer seeds are needed");
}

}  // namespace

template <typename Vertex>
void Sampler<Vertex>::start(const Seeds& seeds) {
  map_.start();
  if (seeds.size > kMaxLocal) refuse_size();
  vertices_.reserve(seeds.size + 1);
  for (int64_t i = 0; i < seeds.size; ++i) {
    const int64_t seed = seeds[i];
    if (seed < 0 || seed >= graph_.num_vertices) {
      throw std::invalid_argument("seeds: " + std::to_string(seed) +
                                  " is not a vertex, the graph has " +
                                  std::to_string(graph_.num_vertices));
    }
    if (map_.insert(static_cast<Vertex>(seed), vertices_.data()) != i) {
      throw std::invalid_argument("seeds: " + std::to_string(seed) + " appears twice in a batch");
    }
  }
}

template <typename Vertex>
void Sampler<Vertex>::grow(int64_t num_more) {
  const int64_t most = std::min(map_.size() + num_more, graph_.num_vertices);
  if (most > kMaxLocal) refuse_size();
  vertices_.reserve(most + 1, map_.size());
}

template <typename Vertex>
typename Sampler<Vertex>::Hop Sampler<Vertex>::plan_hop(int64_t first_dst, int64_t fanout,
                                                        bool replace) {
  const int64_t num_dst = map_.size() - first_dst;
  Hop hop;
  hop.indptr = Array<int64_t>(num_dst + 1);
  int64_t* indptr = hop.indptr.data.get();
  int64_t* begins = begins_.reserve(2 * num_dst);
  int64_t* degrees = begins + num_dst;
  const Vertex* vertices = vertices_.data() + first_dst;
  indptr[0] = 0;
  for (int64_t dst = 0; dst < num_dst; ++dst) {
    __builtin_prefetch(&graph_.indptr[vertices[std::min(dst + kPrefetchDistance, num_dst - 1)]]);
    const auto [begin, degree] = graph_.list(vertices[dst]);
    begins[dst] = begin;
    degrees[dst] = degree;
    const int64_t count = fanout < 0 || (!replace && degrees[dst] <= fanout) ? degrees[dst]
                          : degrees[dst] == 0                                ? 0
                                                                             : fanout;
    indptr[dst + 1] = indptr[dst] + count;
    if (indptr[dst + 1] - indptr[hop.chunks.back()] >= kChunkEdges) {
      hop.chunks.push_back(dst + 1);
      if (indptr[dst + 1] > kMaxLocal) refuse_size();
    }
  }
  if (hop.chunks.back() != num_dst) hop.chunks.push_back(num_dst);
  hop.num_edges = indptr[num_dst];
  grow(hop.num_edges);
  return hop;
}

template <typename Vertex>
template <typename Use>
void Sampler<Vertex>::pick_hop(const Hop& hop, const Pick<Vertex>& pick_from, int threads,
                               Use&& use) {
  const int64_t* indptr = hop.indptr.data.get();
  const std::vector<int64_t>& chunks = hop.chunks;
  const auto num_chunks = static_cast<int64_t>(chunks.size()) - 1;
  const auto use_chunk = [&](int64_t chunk) {
    use(indptr[chunks[chunk]], indptr[chunks[chunk + 1]]);
  };
  // Chunks are picked in any order by any thread, but used in order, by whichever thread holds
  // `using_chunks`, so that local ids do not depend on the number of threads. Nothing is used from
  // a damaged chunk on.
  std::vector<std::atomic<Chunk>> states(num_chunks);
  std::atomic<int64_t> next_pick{0};
  std::atomic_flag using_chunks;
  int64_t next_use = 0;
  run_threads(threads, [&] {
    thread_local Scratch<int64_t> positions;
    for (;;) {
      if (!using_chunks.test_and_set(std::memory_order_acquire)) {
        while (next_use < num_chunks &&
               states[next_use].load(std::memory_order_acquire) == Chunk::picked)
          use_chunk(next_use++);
        using_chunks.clear(std::memory_order_release);
      }
      const int64_t chunk = next_pick.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= num_chunks) break;
      const int64_t first = chunks[chunk], last = chunks[chunk + 1];
      const bool good = pick(pick_from, first, last,
                             positions.reserve(indptr[last] - indptr[first] + kPickSlack));
      states[chunk].store(good ? Chunk::picked : Chunk::damaged, std::memory_order_release);
    }
  });
  for (; next_use < num_chunks; use_chunk(next_use++)) {
    if (states[next_use] == Chunk::damaged) {
      const int64_t first = indptr[chunks[next_use]];
      refuse_picked(pick_from.picked + first, indptr[chunks[next_use + 1]] - first,
                    graph_.num_vertices);
    }
  }
}

template <typename Vertex>
Pick<Vertex> Sampler<Vertex>::pick_of(const Hop& hop, int64_t first_dst, Vertex* picked,
                                      uint64_t key, bool replace, const uint32_t* stamps) const {
  const int64_t num_dst = hop.indptr.size - 1;
  return {graph_.indices,
          graph_.num_vertices,
          vertices_.data() + first_dst,
          begins_.data(),
          begins_.data() + num_dst,
          hop.indptr.data.get(),
          picked,
          key,
          replace,
          stamps};
}

template <typename Vertex>
BlockArrays Sampler<Vertex>::sample_hop(int64_t first_dst, int64_t fanout, bool replace,
                                        uint64_t key, int num_threads,
                                        Array<Vertex>& edge_vertices) {
  Hop hop = plan_hop(first_dst, fanout, replace);
  BlockArrays block;
  block.indices = Array<int32_t>(hop.num_edges);
  int32_t* local = block.indices.data.get();
  edge_vertices = Array<Vertex>(hop.num_edges);
  Vertex* picked = edge_vertices.data.get();
  const int threads = hop.threads(num_threads);
  pick_hop(hop,
           pick_of(hop, first_dst, picked, key, replace && fanout >= 0,
                   threads > 1 ? nullptr : map_.stamps()),
           threads, [&](int64_t first, int64_t last) {
             for (int64_t edge = first; edge < last; ++edge) {
               if (threads > 1) map_.prefetch(picked[std::min(edge + kPrefetchDistance, last - 1)]);
               local[edge] = map_.insert(picked[edge], vertices_.data());
             }
           });
  block.indptr = std::move(hop.indptr);
  block.num_src = map_.size();
  return block;
}

template <typename Vertex>
Array<int64_t> Sampler<Vertex>::reach_hop(int64_t fanout, bool replace, uint64_t key,
                                          int num_threads, int64_t& num_reached) {
  Hop hop = plan_hop(0, fanout, replace);
  Vertex* picked = picked_.reserve(hop.num_edges);
  Vertex* vertices = vertices_.data();
  num_reached = map_.size();
  for (int64_t i = 0; i < num_reached; ++i) seen_.insert(vertices[i]);
  // Whatever happens, all vertices are unseen for the next batch.
  struct Forget {
    VertexBits& seen;
    const Vertex* vertices;
    const int64_t& size;
    ~Forget() { seen.erase_around(vertices, size); }
  } forget{seen_, vertices, num_reached};
  pick_hop(hop, pick_of(hop, 0, picked, key, replace && fanout >= 0, nullptr),
           hop.threads(num_threads), [&](int64_t first, int64_t last) {
             for (int64_t edge = first; edge < last; ++edge) {
               // Whether a vertex is new is a coin flip: no branch.
               vertices[num_reached] = picked[edge];
               num_reached += seen_.insert(picked[edge]);
             }
           });
  return std::move(hop.indptr);
}

template <typename Vertex>
SampledBatch<Vertex> Sampler<Vertex>::sample_neighbors(const Seeds& seeds,
                                                       const std::vector<int64_t>& fanouts,
                                                       bool replace, uint64_t seed, uint64_t step,
                                                       int num_threads, bool only_new) {
  start(seeds);
  SampledBatch<Vertex> batch;
  int64_t num_expanded = 0;
  for (size_t hop = 0; hop < fanouts.size(); ++hop) {
    const int64_t first_dst = only_new ? num_expanded : 0;
    num_expanded = map_.size();
    const uint64_t key = stream_key(Stream::neighbors, seed, step, hop);
    batch.blocks.push_back(
        sample_hop(first_dst, fanouts[hop], replace, key, num_threads, batch.edge_vertices));
  }
  batch.input_vertices = Array<Vertex>(map_.size());
  std::copy_n(vertices_.data(), map_.size(), batch.input_vertices.data.get());
  return batch;
}

template <typename Vertex>
ReachedBatch<Vertex> Sampler<Vertex>::reach_neighbors(const Seeds& seeds,
                                                      const std::vector<int64_t>& fanouts,
                                                      bool replace, uint64_t seed, uint64_t step,
                                                      int num_threads) {
  start(seeds);
  ReachedBatch<Vertex> batch;
  int64_t num_reached = map_.size();
  for (size_t hop = 0; hop < fanouts.size(); ++hop) {
    const uint64_t key = stream_key(Stream::neighbors, seed, step, hop);
    if (hop + 1 == fanouts.size()) {
      batch.indptrs.push_back(reach_hop(fanouts[hop], replace, key, num_threads, num_reached));
    } else {
      Array<Vertex> edge_vertices;
      BlockArrays block = sample_hop(0, fanouts[hop], replace, key, num_threads, edge_vertices);
      batch.indptrs.push_back(std::move(block.indptr));
    }
  }
  batch.vertices = Array<Vertex>(num_reached);
  std::copy_n(vertices_.data(), num_reached, batch.vertices.data.get());
  return batch;
}

template class Sampler<int32_t>;
template class Sampler<int64_t>;

}  // namespace gnnscale
