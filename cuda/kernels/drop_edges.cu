// Blocks without the predicted edges, which link prediction excludes as in
// sampling/edge_batches.py.
#include "gnnscale_cuda/sample.hpp"

namespace gnnscale {
namespace {

// Returns whether an edge is excluded; excluded edges ascend by destination, then source.
__device__ inline bool is_left_out(const SampleState& state, int64_t source, int64_t destination) {
  int64_t first = 0, last = state.num_excluded;
  while (first < last) {
    const int64_t middle = first + (last - first) / 2;
    const int64_t dst = state.excluded_destinations[middle];
    const int64_t src = state.excluded_sources[middle];
    if (dst == destination && src == source) return true;
    if (dst < destination || (dst == destination && src < source)) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return false;
}

// Copies the remaining edges to the arrays of the block without excluded edges.
template <typename Vertex>
__device__ void sample_leave_out(const SamplePlan& plan, SampleState& state, int hop) {
  const SampleHop &all = plan.hops[hop], &remaining = plan.left[hop];
  const auto* vertices = static_cast<const Vertex*>(plan.vertices);
  const int64_t num_dst = state.num_vertices[hop], num_edges = state.num_edges[hop];
  scan_tiles<4>(
      plan.edge_tiles, &state.edge_ticket, num_edges,
      [&](int64_t edge) -> int64_t {
        const Vertex v = vertices[owner_of(all.indptr, 0, num_dst, edge)];
        return !is_left_out(state, vertices[all.indices[edge]], v);
      },
      [&](int64_t edge, int64_t to, int64_t stays) {
        plan.kept_before[edge] = static_cast<int32_t>(to);
        if (stays == 0) return;
        const int32_t local = all.indices[edge];
        remaining.indices[to] = local;
        static_cast<Vertex*>(plan.left_sources)[to] = vertices[local];
        if (all.positions != nullptr) remaining.positions[to] = all.positions[edge];
        if (all.edge_weights != nullptr) remaining.edge_weights[to] = all.edge_weights[edge];
        if (all.importance != nullptr) remaining.importance[to] = all.importance[edge];
      },
      [&](int64_t total) {
        plan.kept_before[num_edges] = static_cast<int32_t>(total);
        state.num_left[hop] = total;
      });
}

template <typename Vertex>
__device__ void sample_place_left(const SamplePlan& plan, SampleState& state, int hop) {
  const int64_t num_edges = state.num_edges[hop];
  for (int64_t dst = blockIdx.x * int64_t{kThreads} + threadIdx.x; dst <= state.num_vertices[hop];
       dst += gridDim.x * int64_t{kThreads}) {
    const int64_t end = plan.hops[hop].indptr[dst];
    plan.left[hop].indptr[dst] = end <= num_edges ? plan.kept_before[end] : 0;
  }
}

}  // namespace
}  // namespace gnnscale

GNNSCALE_SAMPLE_KERNEL(sample_leave_out);
GNNSCALE_SAMPLE_KERNEL(sample_place_left);

// Begins a batch with excluded edges, after sample_begin.
extern "C" __global__ void __launch_bounds__(256)
    sample_exclude(gnnscale::SampleState* state, const int64_t* sources,
                   const int64_t* destinations, int64_t num_excluded) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  state->excluded_sources = sources;
  state->excluded_destinations = destinations;
  state->num_excluded = num_excluded;
}
GNNSCALE_EXPORT(sample_exclude);
