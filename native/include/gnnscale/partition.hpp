// Dividing a graph: edges between parts, the hops at which a part reaches vertices, and PaGraph's
// stream of training vertices.
#pragma once

#include <cstdint>
#include <vector>

#include "gnnscale/memory.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/topology.hpp"

namespace gnnscale {

inline constexpr int64_t kMaxParts = 1024;
// Hops of a vertex that is not reached; hops are counted up to one less.
inline constexpr uint8_t kUnreached = 255;

// counts[i * num_parts + j] is the number of edges from a source of part i to a destination of part
// j; edges with an end of no part (-1) are left out. Throws invalid_argument if an owner is
// none, TopologyError if the topology is damaged.
template <typename Vertex>
void count_cut(const Topology<Vertex>& graph, const int16_t* owner, int64_t num_parts,
               int64_t* counts, int num_threads);

// Lowers hops[v] to the number of hops at which v is reached from `starts`, against the direction
// of the edges, where that is at most `num_hops` and below what it was. What was reached earlier
// must have been reached with the same `num_hops`: then only what improves is walked again.
// Returns the number of vertices that were unreached before. Starts must be vertices. Throws
// TopologyError if the topology is damaged; some labels may have been lowered by then.
template <typename Vertex>
int64_t hops_from(const Topology<Vertex>& graph, const Vertex* starts, int64_t num_starts,
                  int64_t num_hops, uint8_t* hops, int num_threads, const Poll& poll = {});

// For each of `vertices`, which of `sample` it reaches, at most 2^31 of them: bit s of row i is
// set where sample[s] is at most `num_hops` hops away from vertices[i].
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
// Equal scores go to the part with the fewest training vertices, then the fewest vertices, then
// the lowest number. The sizes of parts end up at most one apart.
//
// |PV_i| is exact. An overlap is too where IN(v) is walked: where the paths from v have at most
// `max_walked` edges in all. Others are counted among `max_sampled` vertices of the stream, drawn
// uniformly; with that many or fewer in it they are exact as well.
template <typename Vertex>
struct TrainingStream {
  Topology<Vertex> graph;
  const Vertex* vertices;  // distinct ones
  int64_t num_vertices;
  int64_t num_parts, num_hops, max_walked, max_sampled;
  uint64_t seed;
};

// Writes the part of each vertex of the stream, and [num_parts, vertices of the graph] the hops at
// which each part reaches a vertex. Returns the number of overlaps that were not exact. Throws
// invalid_argument if a vertex comes twice, TopologyError if the topology is damaged.
template <typename Vertex>
int64_t assign_stream(const TrainingStream<Vertex>& stream, int16_t* part_of, uint8_t* hops,
                      int num_threads, const Poll& poll = {});

}  // namespace gnnscale
