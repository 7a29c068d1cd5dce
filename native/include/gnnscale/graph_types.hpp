// Types of a graph's vertices and edges, and where the adjacency lists of an edge type lie.
#pragma once

#include <cstdint>
#include <vector>

namespace gnnscale {

// Vertices of one type: ids `first` to `first + size - 1`.
struct VertexType {
  int64_t first, size;

  // Whether `id`, read from untrusted memory, is one of them.
  template <typename Vertex>
  bool has(Vertex id) const {
    return static_cast<uint64_t>(static_cast<int64_t>(id) - first) < static_cast<uint64_t>(size);
  }
};

// Edges from vertices of one type to vertices of another. Each destination has one adjacency list
// for each edge type that ends at its vertex type, one after the other: its rows.
struct EdgeType {
  int source = 0, destination = 0;  // positions of their vertex types
  int64_t row_offset = 0, row_stride = 1;

  // Number of the list that has the in-neighbors of `vertex`, a vertex of the destination type.
  int64_t row(int64_t vertex) const { return vertex * row_stride + row_offset; }
};

struct GraphTypes {
  std::vector<VertexType> vertices;
  std::vector<EdgeType> edges;

  // One type of vertices and one of edges: row v is the list of vertex v.
  static GraphTypes homogeneous(int64_t num_vertices) { return {{{0, num_vertices}}, {{}}}; }
};

}  // namespace gnnscale
