// Which vertices clusters have.
#pragma once

#include <cstdint>
#include <vector>

namespace gnnscale {

// The vertices of every cluster.
struct Members {
  std::vector<int64_t> starts;
  std::vector<int32_t> vertices;

  Members(const int32_t* labels, int64_t num_vertices, int64_t num_clusters)
      : starts(num_clusters + 1), vertices(num_vertices) {
    for (int64_t v = 0; v < num_vertices; ++v) ++starts[labels[v] + 1];
    for (int64_t i = 0; i < num_clusters; ++i) starts[i + 1] += starts[i];
    std::vector<int64_t> slots(starts.begin(), starts.end() - 1);
    for (int64_t v = 0; v < num_vertices; ++v) {
      vertices[slots[labels[v]]++] = static_cast<int32_t>(v);
    }
  }
};

}  // namespace gnnscale
