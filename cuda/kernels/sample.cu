// Neighbor sampling and its relabeling: see gnnscale_cuda/sample.hpp.
//
// An edge, with ids of 32 bits, costs `pick` a read of its neighbor (a sector of 32 bytes if lists
// are short), a write of 4 bytes and an atomic whose result nobody waits for; `number` and
// `relabel` read those 4 bytes and a stamp each, and `relabel` writes 4 bytes. That is 48 bytes of
// device memory, and three sectors of the second-level cache while the stamps of a graph, 4 bytes a
// vertex, stay there. A destination costs 60 bytes more, a new vertex 8. A batch of 261,000 edges
// moves 13 MB: less time than its nine launches take, which are the limit.
#include "gnnscale_cuda/sample.hpp"

namespace gnnscale {
namespace {

// Begins a batch: stamps the seeds. A repeated seed loses one of its stamps, and a seed that is no
// vertex has none; `count` detects both.
template <typename Vertex>
__device__ void sample_begin(const SamplePlan& plan, SampleState& state, const void* seeds,
                             int wide, int64_t num_seeds, const uint64_t* number) {
  const uint64_t step = *number;
  const uint32_t base = next_base(plan);
  const int64_t thread = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  auto* vertices = static_cast<Vertex*>(plan.vertices);
  for (int64_t i = thread; i < num_seeds; i += gridDim.x * int64_t{kThreads}) {
    const int64_t v = wide != 0 ? static_cast<const int64_t*>(seeds)[i]
                                : int64_t{static_cast<const int32_t*>(seeds)[i]};
    vertices[i] = is_vertex(plan, v) ? static_cast<Vertex>(v) : Vertex{-1};
    if (is_vertex(plan, v)) atomicMin(&plan.stamps[v], uint32_t(base + i));
  }
  reset_tiles(plan.vertex_tiles, &state.vertex_ticket, num_seeds);
  if (thread <= plan.num_members && plan.list_slots != nullptr) plan.found[thread] = 0;
  if (thread > kMaxHops) return;
  state.num_vertices[thread] = thread == 0 ? num_seeds : 0;
  if (thread == 0) {
    state.step = step;
    state.base = base;
    state.error = ~uint64_t{0};
    state.lowest = 0;
    state.greatest = 0;
  }
  if (thread == kMaxHops) return;
  state.num_edges[thread] = state.num_listed[thread] = 0;
  const Stream stream = plan.layerwise != 0   ? Stream::layerwise
                        : plan.by_weight != 0 ? Stream::weighted
                                              : Stream::neighbors;
  state.keys[thread] = stream_key(stream, plan.seed, step, static_cast<uint64_t>(thread));
}

// Returns the number of kept edges of a list.
__device__ inline int64_t num_kept(const SamplePlan& plan, int64_t fanout, int64_t degree) {
  if (plan.layerwise != 0 || fanout < 0 || (plan.replace == 0 && degree <= fanout)) return degree;
  return degree == 0 ? 0 : fanout;
}

// Looks up the lists of all destinations, and computes the offsets of their edges. With weights,
// runs after sample_weigh.
template <typename Vertex>
__device__ void sample_count(const SamplePlan& plan, SampleState& state, int hop) {
  const SampleHop& out = plan.hops[hop];
  const int64_t num_dst = state.num_vertices[hop];
  scan_tiles<1>(
      plan.vertex_tiles, &state.vertex_ticket, num_dst,
      [&](int64_t i) {
        if (plan.by_weight != 0) return out.indptr[i];
        return num_kept(plan, out.fanout, open_list<Vertex>(plan, state, hop, i).degree);
      },
      [&](int64_t i, int64_t offset, int64_t) { out.indptr[i] = offset; },
      [&](int64_t total) {
        if (hop == 0) *plan.last_base = state.base;
        out.indptr[num_dst] = total;
        if (total > out.max_edges) note(state, hop, SampleError::edges, total);
        int64_t& listed = plan.layerwise != 0 ? state.num_listed[hop] : state.num_edges[hop];
        listed = total > out.max_edges ? 0 : total;
      });
}

// Floyd's sampling without replacement (Bentley and Floyd, CACM 1987), as in pick_kernels.cpp: the
// i-th of k candidates is uniform in [0, n - k + i], and is replaced by n - k + i if it was chosen
// before. It was, if an earlier candidate is equal, or if it equals n - k + j and the j-th
// candidate was replaced. A group's lanes decide in parallel: the first condition by a match, the
// second by repeated ballots until nothing changes. Returns the position of the lane's pick.
__device__ inline uint64_t pick_few(uint64_t key, uint64_t n, unsigned k, unsigned i,
                                    unsigned first_lane) {
  const unsigned lane = first_lane + i;
  const uint64_t last = n - k + i;
  const bool draws = i < k && k < n;
  // Idle lanes get distinct values above every position.
  const uint64_t candidate = draws ? below(draw(key, i), last + 1) : ~uint64_t{lane};
  const unsigned same = __match_any_sync(kAllLanes, candidate) >> first_lane;
  const uint64_t replaced_lane = candidate - (n - k);
  bool gives_way = draws && (same & ((1U << i) - 1)) != 0;
  const bool asks = draws && !gives_way && candidate >= n - k && replaced_lane < i;
  for (unsigned previous = 0;;) {
    const unsigned now = __ballot_sync(kAllLanes, gives_way ? 1 : 0);
    if (now == previous) break;
    if (asks) gives_way = (now >> (first_lane + unsigned(replaced_lane)) & 1) != 0;
    previous = now;
  }
  return !draws ? i : gives_way ? last : candidate;
}

// Fan-outs up to 32: a group of 8, 16 or 32 lanes a destination.
template <typename Vertex>
__device__ void sample_pick(const SamplePlan& plan, SampleState& state, int hop) {
  const SampleHop& out = plan.hops[hop];
  const int64_t num_dst = state.num_vertices[hop];
  reset_tiles(plan.edge_tiles, &state.edge_ticket, state.num_edges[hop]);
  if (state.num_edges[hop] == 0) return;
  const unsigned lane = threadIdx.x & 31;
  const unsigned size = out.fanout <= 8 ? 8 : out.fanout <= 16 ? 16 : 32, groups = 32 / size;
  const int64_t warp = (blockIdx.x * int64_t{kThreads} + threadIdx.x) >> 5;
  const int64_t num_warps = gridDim.x * int64_t{kThreads / 32};
  for (int64_t first = warp * groups; first < num_dst; first += num_warps * groups) {
    const int64_t dst = first + lane / size;
    const unsigned i = lane % size;
    uint64_t key = 0, n = 0;
    int64_t edge = 0;
    unsigned k = 0;
    if (dst < num_dst) {
      edge = out.indptr[dst];
      k = static_cast<unsigned>(out.indptr[dst + 1] - edge);
      n = static_cast<uint64_t>(plan.degrees[dst]);
      key = combine(state.keys[hop],
                    static_cast<uint64_t>(static_cast<const Vertex*>(plan.vertices)[dst]));
    }
    const uint64_t position = pick_few(key, n, k, i, lane - i);
    if (i < k) take<Vertex>(plan, state, hop, edge + i, dst, static_cast<int64_t>(position));
  }
}

// All neighbors, or some with replacement: edges are independent.
template <typename Vertex>
__device__ void sample_pick_each(const SamplePlan& plan, SampleState& state, int hop) {
  const SampleHop& out = plan.hops[hop];
  const bool replace = plan.replace != 0 && out.fanout >= 0;
  const int64_t num_edges = state.num_edges[hop];
  reset_tiles(plan.edge_tiles, &state.edge_ticket, num_edges);
  for_edges(out.indptr, state.num_vertices[hop], num_edges, [&](int64_t edge, int64_t dst) {
    int64_t position = edge - out.indptr[dst];
    if (replace) {
      const auto v = static_cast<uint64_t>(static_cast<const Vertex*>(plan.vertices)[dst]);
      const uint64_t random = draw(combine(state.keys[hop], v), static_cast<uint64_t>(position));
      position = static_cast<int64_t>(below(random, static_cast<uint64_t>(plan.degrees[dst])));
    }
    take<Vertex>(plan, state, hop, edge, dst, position);
  });
}

// New vertices get ids in the order of the edges that claimed them, and the ids' stamps: an edge
// that lost its claim sees a foreign stamp before and after.
template <typename Vertex>
__device__ void sample_number(const SamplePlan& plan, SampleState& state, int hop) {
  auto* vertices = static_cast<Vertex*>(plan.vertices);
  const auto* picked = static_cast<const Vertex*>(plan.picked);
  const int64_t num_known = state.num_vertices[hop];
  const auto base = static_cast<uint32_t>(state.base);
  const auto claims = static_cast<uint32_t>(base + plan.max_vertices);
  scan_tiles<4>(
      plan.edge_tiles, &state.edge_ticket, state.num_edges[hop],
      [&](int64_t edge) -> int64_t {
        const Vertex u = picked[edge];
        return is_vertex(plan, u) && load_relaxed(&plan.stamps[u]) == uint32_t(claims + edge);
      },
      [&](int64_t edge, int64_t num_before, int64_t is_new) {
        const int64_t id = num_known + num_before;
        if (is_new == 0 || id >= plan.hops[hop].max_vertices) return;
        vertices[id] = picked[edge];
        store_relaxed(&plan.stamps[picked[edge]], uint32_t(base + id));
      },
      [&](int64_t num_new) {
        const bool fits = num_known + num_new <= plan.hops[hop].max_vertices;
        if (!fits) note(state, hop, SampleError::vertices, num_known + num_new);
        // After an error the next hop has no destinations.
        state.num_vertices[hop + 1] = state.error == ~uint64_t{0} ? num_known + num_new : 0;
      });
}

// Writes the local ids of all edges.
template <typename Vertex>
__device__ void sample_relabel(const SamplePlan& plan, SampleState& state, int hop) {
  const auto* picked = static_cast<const Vertex*>(plan.picked);
  const auto base = static_cast<uint32_t>(state.base);
  reset_tiles(plan.vertex_tiles, &state.vertex_ticket, state.num_vertices[hop + 1]);
  if (plan.left_sources != nullptr) {
    reset_tiles(plan.edge_tiles, &state.edge_ticket, state.num_edges[hop]);
  }
  for (int64_t edge = blockIdx.x * int64_t{kThreads} + threadIdx.x; edge < state.num_edges[hop];
       edge += gridDim.x * int64_t{kThreads}) {
    const Vertex u = picked[edge];
    plan.hops[hop].indices[edge] =
        is_vertex(plan, u) ? static_cast<int32_t>(plan.stamps[u] - base) : 0;
  }
}

// Counts the reads of a hop's lists by location: one for each neighbor, and one for each list's
// offsets (Legion, section 4.2). Only with a cache.
template <typename Vertex>
__device__ void sample_found(const SamplePlan& plan, SampleState& state, int hop) {
  __shared__ unsigned long long counts[kMaxMembers + 1];
  if (threadIdx.x <= kMaxMembers) counts[threadIdx.x] = 0;
  __syncthreads();
  const auto* vertices = static_cast<const Vertex*>(plan.vertices);
  const int64_t* indptr = (plan.left_sources != nullptr ? plan.left : plan.hops)[hop].indptr;
  const int64_t stride = gridDim.x * int64_t{kThreads};
  for (int64_t dst = blockIdx.x * int64_t{kThreads} + threadIdx.x; dst < state.num_vertices[hop];
       dst += stride) {
    if (!is_vertex(plan, vertices[dst])) continue;
    const int64_t slot = plan.list_slots[vertices[dst]];
    const auto location = slot < 0 ? plan.num_members : int64_t{member_of(plan, slot)};
    const int64_t reads = indptr[dst + 1] - indptr[dst] + 1;
    atomicAdd(&counts[location], static_cast<unsigned long long>(reads));
  }
  __syncthreads();
  if (threadIdx.x <= plan.num_members && counts[threadIdx.x] != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&plan.found[threadIdx.x]), counts[threadIdx.x]);
  }
}

}  // namespace
}  // namespace gnnscale

GNNSCALE_SAMPLE_KERNEL(sample_count);
GNNSCALE_SAMPLE_KERNEL(sample_found);
GNNSCALE_SAMPLE_KERNEL(sample_pick);
GNNSCALE_SAMPLE_KERNEL(sample_pick_each);
GNNSCALE_SAMPLE_KERNEL(sample_number);
GNNSCALE_SAMPLE_KERNEL(sample_relabel);

extern "C" __global__ void __launch_bounds__(256)
    sample_begin_int32(const gnnscale::SamplePlan* plan, gnnscale::SampleState* state,
                       const void* seeds, int wide, int64_t num_seeds, const uint64_t* step) {
  gnnscale::sample_begin<int32_t>(*plan, *state, seeds, wide, num_seeds, step);
}
GNNSCALE_EXPORT(sample_begin_int32);
extern "C" __global__ void __launch_bounds__(256)
    sample_begin_int64(const gnnscale::SamplePlan* plan, gnnscale::SampleState* state,
                       const void* seeds, int wide, int64_t num_seeds, const uint64_t* step) {
  gnnscale::sample_begin<int64_t>(*plan, *state, seeds, wide, num_seeds, step);
}
GNNSCALE_EXPORT(sample_begin_int64);

// When bases are exhausted, sets all stamps to the maximum, above every stamp of the next batch.
extern "C" __global__ void __launch_bounds__(256) sample_forget(const gnnscale::SamplePlan* plan) {
  if (*plan->last_base >= static_cast<uint64_t>(plan->num_stamps)) return;
  for (int64_t i = blockIdx.x * int64_t{256} + threadIdx.x; i < plan->num_vertices;
       i += gridDim.x * int64_t{256}) {
    plan->stamps[i] = ~uint32_t{0};
    if (plan->layerwise != 0) plan->candidates[i] = ~uint32_t{0};
  }
}
GNNSCALE_EXPORT(sample_forget);
