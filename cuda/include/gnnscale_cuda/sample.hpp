// Sampling on a device: what its kernels read and write, and what they share.
//
// A hop is four kernels. `count` finds the lists and where each one's edges go; `pick` picks, and
// claims each picked vertex for the first edge that leads to it; `number` gives new vertices their
// local ids, in the order of these edges; `relabel` looks up the ids of all edges. Kernels
// read sizes from the state, so that a batch is launched without waiting.
//
// A vertex has a stamp of 32 bits, of two ranges that begin at the base of the batch: base + local
// id, and above those base + max_vertices + edge while an edge claims it. The smaller of two stamps
// holds. Every batch has a base below all stamps of those before it, so that nothing is cleared
// until the bases are used up. The device keeps the last base, so that a launch that is repeated as
// it was recorded draws another batch.
//
// What is damaged is read as if it were empty, and noted: memory stays safe, the batch is worth
// nothing, and whoever reads the counts finds what the native sampler would have named first.
#pragma once

#include <cstdint>

#include "gnnscale/random.hpp"
#include "gnnscale/weighted_lists.hpp"
#include "gnnscale_cuda/rows.hpp"
#include "gnnscale_cuda/scan.hpp"

namespace gnnscale {

constexpr int kMaxHops = 16;  // as in gnnscale/sampling/minibatch.py

// All members have 64 bits, so that the host writes them as an array of words: see
// gnnscale/backend/cuda/sampler_plan.py.
struct SampleHop {
  int64_t fanout;        // or the number of vertices of a layer
  int64_t max_edges;     // room in the arrays that follow
  int64_t max_vertices;  // room for vertices after the hop
  int64_t* indptr;
  int32_t* indices;
  int64_t* positions;   // null unless they are asked for
  float* edge_weights;  // likewise
  float* importance;    // of layer-wise sampling
};

// Written once.
struct SamplePlan {
  int64_t num_vertices, num_edges;  // of the graph
  const int64_t* indptr;
  const void* indices;
  const float* weights;            // of edges, null if nobody asks for them
  const WeightSlot* weight_slots;  // by which neighbours are drawn, see weighted_lists.hpp

  int64_t num_hops;
  int64_t replace, by_weight, layerwise;  // a fan-out of -1 replaces nothing
  uint64_t seed;

  int64_t max_vertices;  // of a batch
  int64_t num_stamps;    // that a batch uses
  uint64_t* last_base;   // of the batch before
  void* vertices;        // [max_vertices]
  uint32_t* stamps;      // of each vertex of the graph
  int64_t* begins;       // [max_vertices] of the lists of a hop's destinations, at the host
  const void** lists;    // [max_vertices] their neighbours, which a cache may have
  int64_t* degrees;      // [max_vertices]
  void* picked;          // [most edges of a hop]
  uint32_t* slots;  // [2 * most edges of a hop] of large fan-outs, see sample_high_fanout.cu; or
                    // what is drawn by weight
  uint32_t* candidates;  // of each vertex, as stamps: see sample_layers.cu
  void* kept;            // [most edges of a hop] likewise
  int32_t* kept_before;  // [most edges of a hop + 1] likewise
  uint64_t* priorities;  // [most edges of a hop] likewise
  uint32_t* histograms;  // [kMaxHops, 8, 256] likewise
  uint64_t* vertex_tiles;
  uint64_t* edge_tiles;

  SampleHop hops[kMaxHops];

  // Of samples without some edges: see drop_edges.cu.
  void* left_sources;  // [most edges of a hop] of the edges that are left, as
                       // vertices of the graph
  SampleHop left[kMaxHops];

  // Lists that devices of a clique keep in their memory: rows of `cached_indptr` by slot, those of
  // a member after those of the members before it.
  const int32_t* list_slots;  // of each vertex, -1 at the host; null without a cache
  int64_t num_members;
  int64_t first_slots[kMaxMembers + 1];
  const int64_t* cached_indptr[kMaxMembers];
  const void* cached_indices[kMaxMembers];
  int64_t needs_places;  // whether a list's place at the host is read, too
  uint64_t* found;       // [num_members + 1] reads at each member, and at the host
};

struct SampleState {
  uint64_t step, base, error;
  int64_t lowest, greatest;  // ids that are no vertices, of layer-wise sampling
  int64_t vertex_ticket, edge_ticket;
  int64_t num_vertices[kMaxHops + 1];  // before each hop, and after the last one
  int64_t num_edges[kMaxHops];
  int64_t num_listed[kMaxHops];  // edges that a layer chooses from
  uint64_t keys[kMaxHops];

  int64_t num_left[kMaxHops];  // edges of each hop that are left of num_edges
  int64_t num_excluded;
  const int64_t *excluded_sources, *excluded_destinations;
};

// What can be wrong, in the order in which it is found within a hop.
enum class SampleError : uint64_t {
  seed,       // at the place of a seed: it is no vertex, or comes twice
  list,       // at a destination: its list is not within the edges
  edges,      // at a hop's number of edges: there is no room for them
  neighbor,   // at an edge: it leads to what is no vertex
  candidate,  // at a vertex: the list of one that may be kept
  vertices    // there is no room for them
};

// The base of the next batch. `sample_forget` has cleared all stamps if they are used up.
__device__ inline uint32_t next_base(const SamplePlan& plan) {
  const uint64_t last = *plan.last_base, needed = static_cast<uint64_t>(plan.num_stamps);
  return static_cast<uint32_t>((last >= needed ? last : ~uint32_t{0}) - needed);
}

// Of several errors the first is kept.
__device__ inline void note(SampleState& state, int hop, SampleError error, int64_t place) {
  const uint64_t kind = uint64_t(hop) * 8 + uint64_t(error);
  atomicMin(reinterpret_cast<unsigned long long*>(&state.error),
            static_cast<unsigned long long>(kind << 48 | uint64_t(place)));
}

struct List {
  int64_t begin = 0, degree = 0;  // at the host
  const void* neighbors = nullptr;
};

template <typename Vertex>
__device__ inline bool is_vertex(const SamplePlan& plan, Vertex v) {
  return static_cast<uint64_t>(static_cast<int64_t>(v)) < static_cast<uint64_t>(plan.num_vertices);
}

// The member that has a slot.
__device__ inline int member_of(const SamplePlan& plan, int64_t slot) {
  int member = 0;
  while (slot >= plan.first_slots[member + 1]) ++member;
  return member;
}

// The list of a vertex; empty, and false, if it is damaged. Those in a cache are not.
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

// The list of destination i of a hop. Seeds are looked at here, when all have been stamped.
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

// The neighbour at `position` of the list of destination `dst`.
template <typename Vertex>
__device__ inline Vertex neighbor_at(const SamplePlan& plan, int64_t dst, int64_t position) {
  return static_cast<const Vertex*>(plan.lists[dst])[position];
}

// Takes the neighbour at `position` of the list of `dst` as edge `edge` of a hop.
template <typename Vertex>
__device__ inline void take(const SamplePlan& plan, SampleState& state, int hop, int64_t edge,
                            int64_t dst, int64_t position) {
  const Vertex u = neighbor_at<Vertex>(plan, dst, position);
  const int64_t place = plan.begins[dst] + position;
  static_cast<Vertex*>(plan.picked)[edge] = u;
  const SampleHop& out = plan.hops[hop];
  if (out.positions != nullptr) out.positions[edge] = place;
  if (out.edge_weights != nullptr) out.edge_weights[edge] = plan.weights[place];
  if (is_vertex(plan, u)) {
    atomicMin(&plan.stamps[u], uint32_t(state.base + plan.max_vertices + edge));
  } else {
    note(state, hop, SampleError::neighbor, edge);
  }
}

// The first of [first, last) whose offset is above `edge`, less one: whose list has it.
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

// Calls use(edge, destination) for every edge of a hop, a thread an edge: long lists are shared.
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

// A kernel for vertex ids of 32 and one for those of 64 bits. Without the second bound the compiler
// aims at more of them, and spills registers for that.
#define GNNSCALE_SAMPLE_KERNEL(NAME)                      \
  GNNSCALE_SAMPLE_KERNEL_OF(NAME, int32_t, NAME##_int32); \
  GNNSCALE_SAMPLE_KERNEL_OF(NAME, int64_t, NAME##_int64)
#define GNNSCALE_SAMPLE_KERNEL_OF(NAME, VERTEX, EXPORTED)                                 \
  extern "C" __global__ void __launch_bounds__(256, 3)                                    \
      EXPORTED(const gnnscale::SamplePlan* plan, gnnscale::SampleState* state, int hop) { \
    gnnscale::NAME<VERTEX>(*plan, *state, hop);                                           \
  }                                                                                       \
  GNNSCALE_EXPORT(EXPORTED)
