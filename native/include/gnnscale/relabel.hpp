// Global vertex ids → contiguous local ids, in order of first appearance.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>

#include "gnnscale/limits.hpp"
#include "gnnscale/memory.hpp"

namespace gnnscale {

// One 32-bit stamp a vertex: an entry of at least `base_` is the local id of this batch plus
// `base_`, anything below is left over from earlier batches. Starting a batch moves `base_` past
// every id handed out, so nothing is cleared but once in 2^32 ids, and a look-up touches one cache
// line.
template <typename Vertex>
class RelabelMap {
 public:
  // `first_stamp` is above 0, and only how soon the map is cleared depends on it.
  explicit RelabelMap(int64_t num_vertices, uint32_t first_stamp = 1)
      : num_vertices_(num_vertices),
        stamps_(num_vertices),
        base_(first_stamp),
        next_(first_stamp) {}

  // Forgets all ids.
  void start() {
    base_ = next_;
    // No batch has more than kMaxLocal of them.
    if (std::min(num_vertices_, kMaxLocal) >
        std::numeric_limits<uint32_t>::max() - static_cast<int64_t>(base_)) {
      std::memset(stamps_.data(), 0, num_vertices_ * sizeof(uint32_t));
      base_ = next_ = 1;
    }
  }

  const uint32_t* stamps() const { return stamps_.data(); }

  void prefetch(Vertex vertex) const { __builtin_prefetch(&stamps_.data()[vertex], 1, 2); }

  // Local id of `vertex`; a vertex not seen in this batch gets the next id and is written to
  // `vertices[id]`. There must be room for one more than there are.
  int32_t insert(Vertex vertex, Vertex* vertices) {
    // Whether a vertex is new is a coin flip that no branch predictor can guess, so the stores are
    // unconditional.
    uint32_t& stamp = stamps_.data()[vertex];
    const bool is_new = stamp < base_;
    const uint32_t now = is_new ? next_ : stamp;
    vertices[next_ - base_] = vertex;
    stamp = now;
    next_ += is_new;
    return static_cast<int32_t>(now - base_);
  }

  int64_t size() const { return next_ - base_; }

 private:
  int64_t num_vertices_;
  HugeArray<uint32_t> stamps_;
  uint32_t base_, next_;
};

}  // namespace gnnscale
