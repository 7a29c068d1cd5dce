#include "gnnscale/topology.hpp"

#include <string>

namespace gnnscale {

template <typename Vertex>
void Topology<Vertex>::refuse_list(int64_t row, int64_t begin, int64_t end) const {
  throw TopologyError("indptr: the neighbours of vertex " + std::to_string(row) + " are " +
                      std::to_string(begin) + " to " + std::to_string(end) + ", there are " +
                      std::to_string(num_edges) + " edges");
}

template <typename Vertex>
void Topology<Vertex>::refuse(Vertex u) const {
  throw TopologyError("indices: " + std::to_string(u) + " is no vertex, the graph has " +
                      std::to_string(num_vertices));
}

template <typename Vertex>
void Topology<Vertex>::refuse(Vertex u, const VertexType& type) const {
  if (type.first == 0 && type.size == num_vertices) refuse(u);
  throw TopologyError("indices: " + std::to_string(u) +
                      " is no vertex of the edge's source type, "
                      "whose vertices are " +
                      std::to_string(type.first) + " to " +
                      std::to_string(type.first + type.size - 1));
}

template struct Topology<int32_t>;
template struct Topology<int64_t>;

}  // namespace gnnscale
