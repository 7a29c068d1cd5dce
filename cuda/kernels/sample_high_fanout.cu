// Fan-outs above 32 without replacement: one thread an edge, and one hash table a destination.
#include "gnnscale_cuda/sample.hpp"

namespace gnnscale {
namespace {

constexpr uint32_t kEmpty = ~uint32_t{0};

// The draws of one destination, by Floyd's sampling as in sample.cu. The hash table has two slots a
// draw; a slot holds a draw, is found by the draw's candidate, and ends with the first draw of that
// candidate.
struct Draws {
  uint64_t key, n, k;
  uint32_t* slots;

  __device__ uint64_t candidate(uint64_t i) const { return below(draw(key, i), n - k + i + 1); }
  __device__ uint64_t home(uint64_t candidate) const { return below(mix(candidate), 2 * k); }
  __device__ uint64_t after(uint64_t slot) const { return slot + 1 == 2 * k ? 0 : slot + 1; }

  __device__ void insert(uint32_t i) const {
    const uint64_t own_candidate = candidate(i);
    for (uint64_t slot = home(own_candidate);; slot = after(slot)) {
      const uint32_t occupant = atomicCAS(&slots[slot], kEmpty, i);
      if (occupant == kEmpty) return;
      if (candidate(occupant) != own_candidate) continue;
      atomicMin(&slots[slot], i);
      return;
    }
  }

  __device__ bool has_earlier(uint64_t i) const {
    const uint64_t own_candidate = candidate(i);
    for (uint64_t slot = home(own_candidate);; slot = after(slot)) {
      const uint32_t occupant = slots[slot];
      if (occupant == i) return false;
      if (candidate(occupant) == own_candidate) return true;
    }
  }

  // Returns whether draw i finds its candidate taken: by an earlier draw of equal candidate, or by
  // a draw whose own candidate was taken and which took its last position instead.
  __device__ bool gives_way(uint64_t i) const {
    for (;;) {
      if (has_earlier(i)) return true;
      const uint64_t own_candidate = candidate(i);
      if (own_candidate < n - k || own_candidate - (n - k) >= i) return false;
      i = own_candidate - (n - k);
    }
  }

  __device__ uint64_t position(uint64_t i) const { return gives_way(i) ? n - k + i : candidate(i); }
};

template <typename Vertex>
__device__ inline Draws draws_of(const SamplePlan& plan, const SampleState& state, int hop,
                                 int64_t dst) {
  const int64_t* indptr = plan.hops[hop].indptr;
  const auto v = static_cast<uint64_t>(static_cast<const Vertex*>(plan.vertices)[dst]);
  return {combine(state.keys[hop], v), static_cast<uint64_t>(plan.degrees[dst]),
          static_cast<uint64_t>(indptr[dst + 1] - indptr[dst]), plan.slots + 2 * indptr[dst]};
}

template <typename Vertex>
__device__ void sample_clear_slots(const SamplePlan& plan, SampleState& state, int hop) {
  const int64_t num_slots = 2 * state.num_edges[hop];
  for (int64_t slot = blockIdx.x * int64_t{kThreads} + threadIdx.x; slot < num_slots;
       slot += gridDim.x * int64_t{kThreads}) {
    plan.slots[slot] = kEmpty;
  }
}

template <typename Vertex>
__device__ void sample_draw_many(const SamplePlan& plan, SampleState& state, int hop) {
  const int64_t* indptr = plan.hops[hop].indptr;
  for_edges(indptr, state.num_vertices[hop], state.num_edges[hop], [&](int64_t edge, int64_t dst) {
    const Draws draws = draws_of<Vertex>(plan, state, hop, dst);
    if (draws.k < draws.n) draws.insert(static_cast<uint32_t>(edge - indptr[dst]));
  });
}

template <typename Vertex>
__device__ void sample_pick_many(const SamplePlan& plan, SampleState& state, int hop) {
  const int64_t* indptr = plan.hops[hop].indptr;
  const int64_t num_edges = state.num_edges[hop];
  reset_tiles(plan.edge_tiles, &state.edge_ticket, num_edges);
  for_edges(indptr, state.num_vertices[hop], num_edges, [&](int64_t edge, int64_t dst) {
    const Draws draws = draws_of<Vertex>(plan, state, hop, dst);
    const auto i = static_cast<uint64_t>(edge - indptr[dst]);
    const uint64_t position = draws.k < draws.n ? draws.position(i) : i;
    take<Vertex>(plan, state, hop, edge, dst, static_cast<int64_t>(position));
  });
}

}  // namespace
}  // namespace gnnscale

GNNSCALE_SAMPLE_KERNEL(sample_clear_slots);
GNNSCALE_SAMPLE_KERNEL(sample_draw_many);
GNNSCALE_SAMPLE_KERNEL(sample_pick_many);
