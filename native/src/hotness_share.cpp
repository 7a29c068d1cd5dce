#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "gnnscale/hotness.hpp"
#include "gnnscale/prefetch.hpp"

namespace gnnscale {
namespace {

// Vertices of a block, whose data stays in the caches until the block is assigned.
constexpr int64_t kBlock = 1 << 15;
constexpr int64_t kGrain = 1 << 12;
// Distance in vertices between prefetch and read.
constexpr int64_t kAhead = 48;
// Bytes of an id that is no vertex or has an invalid hotness.
constexpr uint64_t kRefused = ~uint64_t{0};

// Assignment of vertices to members. Reading is random access and runs in all threads, block by
// block. Assigning is sequential: one thread assigns a block while the remaining threads read the
// next one.
template <typename Vertex, typename Value>
class Sharing {
 public:
  Sharing(const ShareOut& task, const Shared& shared)
      : task_(task),
        shared_(shared),
        order_(static_cast<const Vertex*>(task.order.data)),
        free_bytes_(task.capacities),
        num_members_(static_cast<int64_t>(task.local.size())),
        blocks_{Block(task), Block(task)} {
    for (const Keys& keys : task.local) local_.push_back(static_cast<const Value*>(keys.data));
    if (shared.reads != nullptr) std::fill_n(shared.reads, num_members_ * num_members_, 0);
  }

  void run(int num_threads, const Poll& poll) {
    const int64_t num_blocks = (task_.num_ordered + kBlock - 1) / kBlock;
    for (int64_t block = 0; block <= num_blocks; ++block) {
      const int64_t num_parts = (size_of(block) + kGrain - 1) / kGrain;
      parallel_for(num_parts + 1, 1, num_threads, poll, [&](int64_t first, int64_t last) {
        for (int64_t part = first; part < last; ++part) {
          part == 0 ? give(block - 1) : read(block, (part - 1) * kGrain);
        }
      });
    }
    for (int64_t k = 0; k < num_members_; ++k)
      shared_.bytes[k] = task_.capacities[k] - free_bytes_[k];
  }

 private:
  // Data of a block's vertices.
  struct Block {
    explicit Block(const ShareOut& task)
        : hotness(std::min(kBlock, task.num_ordered) * task.local.size()),
          bytes(std::min(kBlock, task.num_ordered)) {}

    std::vector<Value> hotness;  // [vertices of the block, num_members]
    std::vector<uint64_t> bytes;
  };

  // Returns 0 for the block after the last one, and for the one before the first.
  int64_t size_of(int64_t block) const {
    return block < 0 ? 0 : std::clamp(task_.num_ordered - block * kBlock, int64_t{0}, kBlock);
  }

  bool is_vertex(Vertex v) const { return v >= 0 && v < task_.num_vertices; }

  // Reads one work item of a block.
  void read(int64_t block, int64_t begin) {
    Block& data = blocks_[block % 2];
    const int64_t end = std::min(size_of(block), begin + kGrain);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t index = block * kBlock + i;
      if (index + kAhead < task_.num_ordered) fetch(order_[index + kAhead]);
      const Vertex v = order_[index];
      bool legal = is_vertex(v);
      if (legal) {
        for (int64_t k = 0; k < num_members_; ++k) {
          const Value value = local_[k][v];
          legal &= value >= Value{0};
          data.hotness[i * num_members_ + k] = value;
        }
      }
      data.bytes[i] = legal ? task_.bytes.of(v) : kRefused;
    }
  }

  void give(int64_t block) {
    for (int64_t i = 0; i < size_of(block); ++i) {
      const Block& data = blocks_[block % 2];
      const int64_t index = block * kBlock + i;
      if (data.bytes[i] == kRefused) [[unlikely]]
        refuse(index);
      const Value* const hotness = data.hotness.data() + i * num_members_;
      const int64_t taker = taker_of(hotness, data.bytes[i]);
      shared_.member[index] = static_cast<int16_t>(taker);
      if (taker >= 0) add(taker, hotness, data.bytes[i]);
    }
  }

  void fetch(Vertex v) const {
    if (!is_vertex(v)) return;
    task_.bytes.fetch(v);
    for (const Value* values : local_) prefetch(values + v);
  }

  // Returns the member that gets the vertex. Branch-free, since the result is unpredictable.
  int64_t taker_of(const Value* hotness, uint64_t bytes) const {
    int64_t best = -1, most_left = -1;
    Value hottest{-1};
    for (int64_t k = 0; k < num_members_; ++k) {
      const int64_t free_bytes = free_bytes_[k];
      const bool fits = static_cast<uint64_t>(free_bytes) >= bytes;
      const bool better =
          (hotness[k] > hottest) | ((hotness[k] == hottest) & (free_bytes > most_left));
      const bool takes = fits & better;
      best = takes ? k : best;
      hottest = takes ? hotness[k] : hottest;
      most_left = takes ? free_bytes : most_left;
    }
    return best;
  }

  void add(int64_t taker, const Value* hotness, uint64_t bytes) {
    free_bytes_[taker] -= static_cast<int64_t>(bytes);
    if constexpr (std::is_integral_v<Value>) {
      if (shared_.reads == nullptr) return;
      for (int64_t j = 0; j < num_members_; ++j) {
        shared_.reads[j * num_members_ + taker] += hotness[j];
      }
    }
  }

  [[noreturn]] void refuse(int64_t index) const {
    const Vertex v = order_[index];
    if (!is_vertex(v)) {
      throw std::invalid_argument("order: " + std::to_string(v) + " at place " +
                                  std::to_string(index) + ", allowed are 0 to " +
                                  std::to_string(task_.num_vertices - 1));
    }
    for (int64_t k = 0; k < num_members_; ++k) {
      if (local_[k][v] >= Value{0}) continue;
      throw std::invalid_argument("local: " + std::to_string(local_[k][v]) + " of vertex " +
                                  std::to_string(v) + " to member " + std::to_string(k) +
                                  ", must be 0 or more");
    }
    throw std::invalid_argument("order: changed while it was read, nobody else may write to it");
  }

  const ShareOut& task_;
  const Shared& shared_;
  const Vertex* order_;
  std::vector<const Value*> local_;
  std::vector<int64_t> free_bytes_;
  int64_t num_members_;
  std::array<Block, 2> blocks_;  // the block being read, and the previous block
};

}  // namespace

void share_out(const ShareOut& task, const Shared& shared, int num_threads, const Poll& poll) {
  with_type(task.local.front(), [&]<typename Value>(const Value*) {
    task.order.wide ? Sharing<int64_t, Value>(task, shared).run(num_threads, poll)
                    : Sharing<int32_t, Value>(task, shared).run(num_threads, poll);
  });
}

}  // namespace gnnscale
