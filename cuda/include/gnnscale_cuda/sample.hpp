// Sampling on a device: data layout and shared functions of its kernels.
//
// A hop is four kernels. `count` finds the lists and the offsets of their edges; `pick` picks, and
// claims each picked vertex for the first edge that leads to it; `number` assigns local ids to new
// vertices, in the order of the claiming edges; `relabel` looks up the ids of all edges. Kernels
// read sizes from the state, so that a batch is launched without waiting for the host.
//
// A vertex has a 32-bit stamp from one of two ranges that begin at the batch's base: base + local
// id, or base + max_vertices + edge while an edge claims it. The smaller of two stamps wins. The
// base of every batch is below all stamps of earlier batches, so nothing is cleared until the bases
// are exhausted. The device keeps the last base, so a replayed launch (CUDA graph) samples a new
// batch.
//
// Damaged data is read as empty and recorded: memory stays safe, the batch is invalid, and a reader
// of the counts finds the error that the native sampler would have reported first.
#pragma once

#include <cstdint>

#include "gnnscale/random.hpp"
#include "gnnscale/weighted_lists.hpp"
#include "gnnscale_cuda/rows.hpp"
#include "gnnscale_cuda/scan.hpp"

namespace gnnscale {

constexpr int kMaxHops = 16;  // as in gnnscale/sampling/minibatch.py

// All members have 64 bits: the host writes them as an array of words, see
// gnnscale/backend/cuda/sampler_plan.py.
struct SampleHop {
  int64_t fanout;        // or number of vertices of a layer
  int64_t max_edges;     // capacity of the arrays below
  int64_t max_vertices;  // capacity of vertices after the hop
  int64_t* indptr;
  int32_t* indices;
  int64_t* positions;   // null unless requested
  float* edge_weights;  // null unless requested
  float* importance;    // layer-wise sampling only
};

// Written once by the host.
struct SamplePlan {
  int64_t num_vertices, num_edges;  // of the graph
  const int64_t* indptr;
  const void* indices;
  const float* weights;            // [num_edges], null if not needed
  const WeightSlot* weight_slots;  // alias tables for weighted draws, see weighted_lists.hpp

  int64_t num_hops;
  int64_t replace, by_weight, layerwise;  // a fan-out of -1 never replaces
  uint64_t seed;

  int64_t max_vertices;  // of a batch
  int64_t num_stamps;    // used by one batch
  uint64_t* last_base;   // base of the previous batch
  void* vertices;        // [max_vertices]
  uint32_t* stamps;      // [num_vertices of the graph]
  int64_t* begins;       // [max_vertices] begins of the destinations' lists in host memory
  const void** lists;    // [max_vertices] neighbors, possibly in a cache
  int64_t* degrees;      // [max_vertices]
  void* picked;          // [max edges of a hop]
  uint32_t* slots;       // [2 * max edges of a hop] hash tables of large fan-outs, see
                         // sample_high_fanout.cu, or weighted draws
  uint32_t* candidates;  // [num_vertices] stamps of candidates: see sample_layers.cu
  void* kept;            // [max edges of a hop] of sample_layers.cu
  int32_t* kept_before;  // [max edges of a hop + 1] of sample_layers.cu
  uint64_t* priorities;  // [max edges of a hop] of sample_layers.cu
  uint32_t* histograms;  // [kMaxHops, 8, 256] of sample_layers.cu
  uint64_t* vertex_tiles;
  uint64_t* edge_tiles;

  SampleHop hops[kMaxHops];

  // Samples with excluded edges: see drop_edges.cu.
  void* left_sources;  // [max edges of a hop] global source vertices of the
                       // remaining edges
  SampleHop left[kMaxHops];

  // Adjacency lists cached in the memory of a clique's devices: rows of `cached_indptr` by slot,
  // numbered consecutively member by member.
  const int32_t* list_slots;  // [num_vertices of the graph], -1: at the host; null without a cache
  int64_t num_members;
  int64_t first_slots[kMaxMembers + 1];
  const int64_t* cached_indptr[kMaxMembers];
  const void* cached_indices[kMaxMembers];
  int64_t needs_places;  // whether a list's position at the host is read, too
  uint64_t* found;       // [num_members + 1] reads at each member, and at the host
};

struct SampleState {
  uint64_t step, base, error;
  int64_t lowest, greatest;  // invalid ids in layer-wise sampling
  int64_t vertex_ticket, edge_ticket;
  int64_t num_vertices[kMaxHops + 1];  // before each hop, and after the last one
  int64_t num_edges[kMaxHops];
  int64_t num_listed[kMaxHops];  // edges that a layer chooses from
  uint64_t keys[kMaxHops];

  int64_t num_left[kMaxHops];  // remaining edges of each hop after exclusion
  int64_t num_excluded;
  const int64_t *excluded_sources, *excluded_destinations;
};

// Sampling errors, in the order of their detection within a hop.
enum class SampleError : uint64_t {
  seed,       // at a seed's position: no vertex, or repeated
  list,       // at a destination: list outside of the edges
  edges,      // at a hop's number of edges: capacity exceeded
  neighbor,   // at an edge: neighbor that is no vertex
  candidate,  // at a vertex: damaged list of a candidate
  vertices    // vertex capacity exceeded
};

// Returns the base of the next batch. `sample_forget` clears all stamps when bases are exhausted.
__device__ inline uint32_t next_base(const SamplePlan& plan) {
  const uint64_t last = *plan.last_base, needed = static_cast<uint64_t>(plan.num_stamps);
  return static_cast<uint32_t>((last >= needed ? last : ~uint32_t{0}) - needed);
}

// Records an error; the first of several errors is kept.
__device__ inline void note(SampleState& state, int hop, SampleError error, int64_t location) {
  const uint64_t kind = uint64_t(hop) * 8 + uint64_t(error);
  atomicMin(reinterpret_cast<unsigned long long*>(&state.error),
            static_cast<unsigned long long>(kind << 48 | uint64_t(location)));
}

struct List {
  int64_t begin = 0, degree = 0;  // at the host
  const void* neighbors = nullptr;
};

template <typename Vertex>
__device__ inline bool is_vertex(const SamplePlan& plan, Vertex v) {
  return static_cast<uint64_t>(static_cast<int64_t>(v)) < static_cast<uint64_t>(plan.num_vertices);
}

// Returns the member that owns a slot.
__device__ inline int member_of(const SamplePlan& plan, int64_t slot) {
  int member = 0;
  while (slot >= plan.first_slots[member + 1]) ++member;
  return member;
}

// Returns the list of a vertex; an empty list and false if it is damaged. Cached lists are trusted.
template <typename Vertex>
__device__ inline bool find_list(const SamplePlan& plan, int64_t v, List& list) {
  const int64_t slot = plan.list_slots == nullptr ? -1 : int64_t{plan.list_slots[v]};
  if (slot >= 0) {
    const int member = member_of(plan, slot);
    const int64_t* indptr = plan.cached_indptr[member] + (slot - plan.first_slots[member]);
    const int64_t first = indptr[0];
    list.begin = plan.needs_places != 0 ? plan.indptr[v] : 0;
    list.degree = indptr[1] - first;
    list.neighbors = static_cast<const Vertex*>(plan.cached_indices[member]) + first;
    return true;
  }
  const int64_t begin = plan.indptr[v], end = plan.indptr[v + 1];
  const bool good = begin >= 0 && end >= begin && end <= plan.num_edges;
  list = List{};
  if (good) list = {begin, end - begin, static_cast<const Vertex*>(plan.indices) + begin};
  return good;
}

// Returns the list of destination i of a hop. Seeds are checked here, after all have been stamped.
template <typename Vertex>
__device__ inline List open_list(const SamplePlan& plan, SampleState& state, int hop, int64_t i) {
  const Vertex v = static_cast<const Vertex*>(plan.vertices)[i];
  List list;
  if (hop == 0 && (!is_vertex(plan, v) || plan.stamps[v] != uint32_t(state.base + i))) {
    note(state, hop, SampleError::seed, i);
  } else if (!find_list<Vertex>(plan, v, list)) {
    note(state, hop, SampleError::list, i);
  }
  plan.begins[i] = list.begin;
  plan.degrees[i] = list.degree;
  plan.lists[i] = list.neighbors;
  return list;
}

// Returns the neighbor at `position` of the list of destination `dst`.
template <typename Vertex>
__device__ inline Vertex neighbor_at(const SamplePlan& plan, int64_t dst, int64_t position) {
  return static_cast<const Vertex*>(plan.lists[dst])[position];
}

// Picks the neighbor at `position` of the list of `dst` as edge `edge` of a hop.
template <typename Vertex>
__device__ inline void take(const SamplePlan& plan, SampleState& state, int hop, int64_t edge,
                            int64_t dst, int64_t position) {
  const Vertex u = neighbor_at<Vertex>(plan, dst, position);
  const int64_t position_in_graph = plan.begins[dst] + position;
  static_cast<Vertex*>(plan.picked)[edge] = u;
  const SampleHop& out = plan.hops[hop];
  if (out.positions != nullptr) out.positions[edge] = position_in_graph;
  if (out.edge_weights != nullptr) out.edge_weights[edge] = plan.weights[position_in_graph];
  if (is_vertex(plan, u)) {
    atomicMin(&plan.stamps[u], uint32_t(state.base + plan.max_vertices + edge));
  } else {
    note(state, hop, SampleError::neighbor, edge);
  }
}

// Returns the destination whose list has an edge: one before the first in [first, last) whose
// offset exceeds `edge`.
__device__ inline int64_t owner_of(const int64_t* indptr, int64_t first, int64_t last,
                                   int64_t edge) {
  while (last - first > 1) {
    const int64_t middle = first + (last - first) / 2;
    if (indptr[middle] <= edge) {
      first = middle;
    } else {
      last = middle;
    }
  }
  return first;
}

// Calls use(edge, destination) for every edge of a hop, one thread an edge: threads share long
// lists.
template <typename Use>
__device__ inline void for_edges(const int64_t* indptr, int64_t num_dst, int64_t num_edges,
                                 Use&& use) {
  constexpr int64_t kTile = 4 * kThreads;
  __shared__ int64_t ends[2];
  for (int64_t tile = blockIdx.x * kTile; tile < num_edges; tile += gridDim.x * kTile) {
    const int64_t last = tile + kTile < num_edges ? tile + kTile : num_edges;
    if (threadIdx.x < 2) {
      ends[threadIdx.x] = owner_of(indptr, 0, num_dst, threadIdx.x == 0 ? tile : last - 1);
    }
    __syncthreads();
    const int64_t first_dst = ends[0], last_dst = ends[1];
    __syncthreads();
    for (int64_t edge = tile + threadIdx.x; edge < last; edge += kThreads) {
      use(edge, owner_of(indptr, first_dst, last_dst + 1, edge));
    }
  }
}

}  // namespace gnnscale

// Defines a kernel for 32-bit and for 64-bit vertex ids. Without the second launch bound the
// compiler aims at more blocks for each multiprocessor, and spills registers.
#define GNNSCALE_SAMPLE_KERNEL(NAME)                      \
  GNNSCALE_SAMPLE_KERNEL_OF(NAME, int32_t, NAME##_int32); \
  GNNSCALE_SAMPLE_KERNEL_OF(NAME, int64_t, NAME##_int64)
#define GNNSCALE_SAMPLE_KERNEL_OF(NAME, VERTEX, EXPORTED)                                 \
  extern "C" __global__ void __launch_bounds__(256, 3)                                    \
      EXPORTED(const gnnscale::SamplePlan* plan, gnnscale::SampleState* state, int hop) { \
    gnnscale::NAME<VERTEX>(*plan, *state, hop);                                           \
  }                                                                                       \
  GNNSCALE_EXPORT(EXPORTED)
