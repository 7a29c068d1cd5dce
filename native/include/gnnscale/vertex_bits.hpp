// A set of vertices, one bit each.
#pragma once

#include <cstdint>

#include "gnnscale/memory.hpp"

namespace gnnscale {

class VertexBits {
 public:
  explicit VertexBits(int64_t num_vertices) : words_((num_vertices + 63) / 64) {}

  // Inserts a vertex. Returns whether it was new.
  bool insert(int64_t vertex) {
    uint64_t& word = words_.data()[vertex >> 6];
    const uint64_t bit = uint64_t{1} << (vertex & 63);
    const bool is_new = (word & bit) == 0;
    word |= bit;
    return is_new;
  }

  // Removes `vertices`, and all vertices that share a word of the bitmap with them.
  template <typename Vertex>
  void erase_around(const Vertex* vertices, int64_t size) {
    for (int64_t i = 0; i < size; ++i) words_.data()[vertices[i] >> 6] = 0;
  }

 private:
  HugeArray<uint64_t> words_;
};

}  // namespace gnnscale
