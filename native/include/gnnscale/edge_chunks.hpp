// Chunks of a block's destinations with about the same number of edges each, however degrees
// differ.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace gnnscale {

// A destination's cost is its edges plus one, so that destinations without edges make chunks too. A
// destination with more edges than the target chunk size ends its chunk; the following chunks may
// be empty.
class EdgeChunks {
 public:
  EdgeChunks(const int64_t* indptr, int64_t num_dst, int64_t edges_per_chunk)
      : indptr_(indptr), num_dst_(num_dst), edges_per_chunk_(edges_per_chunk) {}

  int64_t size() const { return (cost_before(num_dst_) + edges_per_chunk_ - 1) / edges_per_chunk_; }

  // Returns the first destination of a chunk, and the end of its destinations.
  std::pair<int64_t, int64_t> operator[](int64_t chunk) const {
    return {first_of(chunk), first_of(chunk + 1)};
  }

 private:
  int64_t cost_before(int64_t dst) const { return indptr_[dst] - indptr_[0] + dst; }

  // Returns the first destination that `chunk` or more chunks precede.
  int64_t first_of(int64_t chunk) const {
    int64_t low = 0, high = num_dst_;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      cost_before(middle) < chunk* edges_per_chunk_ ? low = middle + 1 : high = middle;
    }
    return low;
  }

  const int64_t* indptr_;
  int64_t num_dst_, edges_per_chunk_;
};

}  // namespace gnnscale
