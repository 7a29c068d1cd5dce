// Graph partitioning: edge counts between parts, hop distances from a part, and PaGraph's streaming
// partitioner of training vertices.
#pragma once

#include <cstdint>
#include <vector>

#include "gnnscale/memory.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/topology.hpp"

namespace gnnscale {

inline constexpr int64_t kMaxParts = 1024;
// Hop count of an unreached vertex; hop counts are at most one less.
inline constexpr uint8_t kUnreached = 255;

// counts[i * num_parts + j] is the number of edges from a source of part i to a destination of part
// j; edges with an end in no part (-1) are skipped. Throws invalid_argument if an owner is out of
// range, TopologyError if the topology is damaged.
template <typename Vertex>
void count_cut(const Topology<Vertex>& graph, const int16_t* owner, int64_t num_parts,
               int64_t* counts, int num_threads);

// Lowers hops[v] to the hop distance of v from `starts`, against the direction of the edges, if the
// distance is at most `num_hops` and below hops[v]. Earlier calls on `hops` must have had the same
// `num_hops`: then only improved vertices are walked again. Returns the number of newly reached
// vertices. Starts must be vertices. Throws TopologyError if the topology is damaged; some labels
// may have been lowered by then.
template <typename Vertex>
int64_t hops_from(const Topology<Vertex>& graph, const Vertex* starts, int64_t num_starts,
                  int64_t num_hops, uint8_t* hops, int num_threads, const Poll& poll = {});

// Reachability bitmap between `vertices` and `sample`, at most 2^31 of them: bit s of row i is set
// if sample[s] is at most `num_hops` hops away from vertices[i].
struct ReachRows {
  Array<uint64_t> words;
  int64_t words_per_row = 0;

  const uint64_t* row(int64_t i) const { return words.data.get() + i * words_per_row; }
};
template <typename Vertex>
ReachRows reach_rows(const Topology<Vertex>& graph, const std::vector<Vertex>& vertices,
                     const std::vector<Vertex>& sample, int64_t num_hops, int num_threads,
                     const Poll& poll = {});

// PaGraph's partitioner (Algorithm 1 and equation 1) on a stream of training vertices: each goes to
// the part i with the largest |TV_i & IN(v)| (TV_avg - |TV_i|) / |PV_i|, and IN(v) joins the part.
// Ties go to the part with the fewest training vertices, then the fewest vertices, then the lowest
// number. The final sizes of parts differ by at most one.
//
// |PV_i| is exact. An overlap is exact if IN(v) is walked, which needs at most `max_walked` edges
// on the paths from v. All other overlaps are estimated from `max_sampled` uniformly drawn vertices
// of the stream; a stream of at most `max_sampled` vertices has exact overlaps.
template <typename Vertex>
struct TrainingStream {
  Topology<Vertex> graph;
  const Vertex* vertices;  // distinct
  int64_t num_vertices;
  int64_t num_parts, num_hops, max_walked, max_sampled;
  uint64_t seed;
};

// Writes the part of each vertex of the stream, and the hop distance of every graph vertex from
// each part, [num_parts, num_vertices]. Returns the number of estimated overlaps. Throws
// invalid_argument if a vertex appears twice, TopologyError if the topology is damaged.
template <typename Vertex>
int64_t assign_stream(const TrainingStream<Vertex>& stream, int16_t* part_of, uint8_t* hops,
                      int num_threads, const Poll& poll = {});

}  // namespace gnnscale
