// Layer-wise sampling, equal to layer_sampler.cpp: keeps a number of vertices among all neighbors
// of a hop's vertices for the whole batch, by priority sampling (Duffield, Lund and Thorup, JACM
// 2007).
//
// `count` has found the lists of all neighbors. `gather` reads them and finds the first edge of
// each candidate; eight passes of `rank` find the threshold priority by radix selection, one byte
// each; `keep` compacts the kept edges and numbers new vertices; `position` and `relabel_kept`
// complete the block.
#include "gnnscale_cuda/doubles.hpp"
#include "gnnscale_cuda/sample.hpp"

namespace gnnscale {
namespace {

constexpr uint64_t kNone = ~uint64_t{0};  // priority of edges that are not a candidate's first
constexpr int kPasses = 8;
constexpr int64_t kLow31 = (int64_t{1} << 31) - 1;

__device__ inline uint32_t* histogram(const SamplePlan& plan, int hop, int pass) {
  return plan.histograms + (hop * kPasses + pass) * 256;
}

// Returns FastGCN's importance of a candidate: the squared norm of its adjacency matrix column.
template <typename Vertex>
__device__ inline double weight_of(const SamplePlan& plan, int64_t u) {
  List list;
  find_list<Vertex>(plan, u, list);
  return static_cast<double>(list.degree > 1 ? list.degree : 1);
}

// Radix selection of the layer_size-th smallest priority (from 0) after some bytes: the bytes known
// so far, and the rank among the priorities that begin with them.
struct Found {
  uint64_t prefix = 0;
  int64_t rank = 0;
  bool keeps_all = false;  // all candidates are kept
};

// Called by all threads of a block.
__device__ inline Found find_prefix(const SamplePlan& plan, int hop, int num_passes) {
  __shared__ int64_t sums[257];
  __shared__ int digit;
  Found prefix;
  prefix.rank = plan.hops[hop].fanout;
  for (int pass = 0; pass < num_passes; ++pass) {
    const uint32_t* counts = histogram(plan, hop, pass);
    sums[threadIdx.x + 1] = counts[threadIdx.x];
    if (threadIdx.x == 0) sums[0] = 0;
    __syncthreads();
    for (unsigned distance = 1; distance < kThreads; distance <<= 1) {
      const int64_t more = threadIdx.x >= distance ? sums[threadIdx.x + 1 - distance] : 0;
      __syncthreads();
      sums[threadIdx.x + 1] += more;
      __syncthreads();
    }
    prefix.keeps_all = prefix.keeps_all || sums[kThreads] <= prefix.rank;
    if (sums[threadIdx.x] <= prefix.rank && prefix.rank < sums[threadIdx.x + 1]) {
      digit = static_cast<int>(threadIdx.x);
    }
    __syncthreads();
    if (!prefix.keeps_all) {
      prefix.prefix = prefix.prefix << 8 | static_cast<uint64_t>(digit);
      prefix.rank -= sums[digit];
    }
    __syncthreads();
  }
  return prefix;
}

template <typename Vertex>
__device__ void sample_gather(const SamplePlan& plan, SampleState& state, int hop) {
  const int64_t* indptr = plan.hops[hop].indptr;
  const int64_t thread = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  for (int64_t i = thread; i < kPasses * 256; i += gridDim.x * int64_t{kThreads}) {
    histogram(plan, hop, 0)[i] = 0;
  }
  const int64_t num_listed = state.num_listed[hop];
  reset_tiles(plan.edge_tiles, &state.edge_ticket, num_listed);
  for_edges(indptr, state.num_vertices[hop], num_listed, [&](int64_t edge, int64_t dst) {
    const Vertex u = neighbor_at<Vertex>(plan, dst, edge - indptr[dst]);
    static_cast<Vertex*>(plan.picked)[edge] = u;
    if (is_vertex(plan, u)) {
      atomicMin(&plan.candidates[u], uint32_t(state.base + edge));
    } else {
      note(state, hop, SampleError::neighbor, edge);
      atomicMin(reinterpret_cast<long long*>(&state.lowest), static_cast<long long>(u));
      atomicMax(reinterpret_cast<long long*>(&state.greatest), static_cast<long long>(u));
    }
  });
}

// Returns the priority of the candidate whose first edge this is.
template <typename Vertex>
__device__ inline uint64_t priority_of(const SamplePlan& plan, SampleState& state, int hop,
                                       int64_t edge) {
  const Vertex u = static_cast<const Vertex*>(plan.picked)[edge];
  if (!is_vertex(plan, u) || plan.candidates[u] != uint32_t(state.base + edge)) return kNone;
  List list;
  if (!find_list<Vertex>(plan, u, list)) note(state, hop, SampleError::candidate, u);
  const uint64_t random = combine(state.keys[hop], static_cast<uint64_t>(u));
  return bits_of(unit(random) / weight_of<Vertex>(plan, u));
}

// Histogram of the next byte over the priorities that begin with the known bytes. The last kernel
// argument holds the pass in the bits above the hop.
template <typename Vertex>
__device__ void sample_rank(const SamplePlan& plan, SampleState& state, int hop_and_pass) {
  __shared__ uint32_t counts[256];
  const int hop = hop_and_pass % kMaxHops, pass = hop_and_pass / kMaxHops;
  if (blockIdx.x * int64_t{kThreads} >= state.num_listed[hop]) return;
  const Found threshold = find_prefix(plan, hop, pass);
  counts[threadIdx.x] = 0;
  __syncthreads();
  for (int64_t edge = blockIdx.x * int64_t{kThreads} + threadIdx.x; edge < state.num_listed[hop];
       edge += gridDim.x * int64_t{kThreads}) {
    if (pass == 0) plan.priorities[edge] = priority_of<Vertex>(plan, state, hop, edge);
    const uint64_t bits = plan.priorities[edge];
    const bool counted =
        pass == 0 || (!threshold.keeps_all && bits >> (64 - 8 * pass) == threshold.prefix);
    if (bits != kNone && counted) atomicAdd(&counts[bits >> (56 - 8 * pass) & 255], 1U);
  }
  __syncthreads();
  if (counts[threadIdx.x] != 0) {
    atomicAdd(&histogram(plan, hop, pass)[threadIdx.x], counts[threadIdx.x]);
  }
}

// Scans two 31-bit counts in one word: kept edges, and new vertices in the upper bits.
template <typename Vertex>
__device__ void sample_keep(const SamplePlan& plan, SampleState& state, int hop) {
  const SampleHop& out = plan.hops[hop];
  const auto* picked = static_cast<const Vertex*>(plan.picked);
  const int64_t num_known = state.num_vertices[hop], num_listed = state.num_listed[hop];
  const auto base = static_cast<uint32_t>(state.base);
  if (blockIdx.x != 0 && blockIdx.x * int64_t{kThreads} >= num_listed) return;
  const Found threshold = find_prefix(plan, hop, kPasses);
  scan_tiles<4>(
      plan.edge_tiles, &state.edge_ticket, num_listed,
      [&](int64_t edge) -> int64_t {
        const Vertex u = picked[edge];
        if (!is_vertex(plan, u)) return 0;
        const uint32_t first = plan.candidates[u] - base;
        if (!threshold.keeps_all && plan.priorities[first] >= threshold.prefix) return 0;
        const bool is_new = first == edge && plan.stamps[u] - base >= plan.max_vertices;
        return 1 | int64_t{is_new} << 31;
      },
      [&](int64_t edge, int64_t prefix_sum, int64_t value) {
        const int64_t to = prefix_sum & kLow31, id = num_known + (prefix_sum >> 31);
        plan.kept_before[edge] = static_cast<int32_t>(to);
        if (value == 0) return;
        const Vertex u = picked[edge];
        static_cast<Vertex*>(plan.kept)[to] = u;
        const double probability = weight_of<Vertex>(plan, u) * of_bits(threshold.prefix);
        out.importance[to] =
            threshold.keeps_all ? 1.0F
                                : static_cast<float>(1.0 / (probability < 1.0 ? probability : 1.0));
        if (value >> 31 == 0 || id >= plan.hops[hop].max_vertices) return;
        static_cast<Vertex*>(plan.vertices)[id] = u;
        plan.stamps[u] = uint32_t(base + id);
      },
      [&](int64_t total) {
        const int64_t num_kept = total & kLow31, end = num_known + (total >> 31);
        if (end > plan.hops[hop].max_vertices) note(state, hop, SampleError::vertices, end);
        const bool good = state.error == ~uint64_t{0};
        plan.kept_before[num_listed] = static_cast<int32_t>(num_kept);
        state.num_edges[hop] = good ? num_kept : 0;
        state.num_vertices[hop + 1] = good ? end : 0;
      });
}

// Positions and weights of kept edges.
template <typename Vertex>
__device__ void sample_place(const SamplePlan& plan, SampleState& state, int hop) {
  const SampleHop& out = plan.hops[hop];
  if (out.positions == nullptr && out.edge_weights == nullptr) return;
  for_edges(out.indptr, state.num_vertices[hop], state.num_listed[hop],
            [&](int64_t edge, int64_t dst) {
              const int32_t to = plan.kept_before[edge];
              if (plan.kept_before[edge + 1] == to) return;
              const int64_t position = plan.begins[dst] + edge - out.indptr[dst];
              if (out.positions != nullptr) out.positions[to] = position;
              if (out.edge_weights != nullptr) out.edge_weights[to] = plan.weights[position];
            });
}

template <typename Vertex>
__device__ void sample_relabel_kept(const SamplePlan& plan, SampleState& state, int hop) {
  const SampleHop& out = plan.hops[hop];
  const auto* kept_vertices = static_cast<const Vertex*>(plan.kept);
  const auto base = static_cast<uint32_t>(state.base);
  const int64_t thread = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  const int64_t num_threads = gridDim.x * int64_t{kThreads};
  reset_tiles(plan.vertex_tiles, &state.vertex_ticket, state.num_vertices[hop + 1]);
  if (plan.left_sources != nullptr) {
    reset_tiles(plan.edge_tiles, &state.edge_ticket, state.num_edges[hop]);
  }
  for (int64_t edge = thread; edge < state.num_edges[hop]; edge += num_threads) {
    out.indices[edge] = static_cast<int32_t>(plan.stamps[kept_vertices[edge]] - base);
  }
  for (int64_t dst = thread; dst <= state.num_vertices[hop]; dst += num_threads) {
    const int64_t listed = out.indptr[dst];
    out.indptr[dst] = listed <= state.num_listed[hop] ? plan.kept_before[listed] : 0;
  }
}

}  // namespace
}  // namespace gnnscale

GNNSCALE_SAMPLE_KERNEL(sample_gather);
GNNSCALE_SAMPLE_KERNEL(sample_rank);
GNNSCALE_SAMPLE_KERNEL(sample_keep);
GNNSCALE_SAMPLE_KERNEL(sample_place);
GNNSCALE_SAMPLE_KERNEL(sample_relabel_kept);
