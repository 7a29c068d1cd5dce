#include "gnnscale/topology.hpp"

#include <string>

namespace gnnscale {

template <typename Vertex>
auto Topology<Vertex>::list(int64_t row) const -> List {
  const int64_t begin = indptr[row], end = indptr[row + 1];
  if (begin < 0 || end < begin || end > num_edges) {
    throw TopologyError("indptr: the neighbours of vertex " + std::to_string(row) + " are " +
                        std::to_string(begin) + " to " + std::to_string(end) + ", there are " +
                        std::to_string(num_edges) + " edges");
  }
  return {begin, end - begin};
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
