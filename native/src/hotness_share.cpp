#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "gnnscale/hotness.hpp"

namespace gnnscale {
namespace {

// Vertices of a block: what is read of them stays in the caches until they are given away.
constexpr int64_t kBlock = 1 << 15;
constexpr int64_t kGrain = 1 << 11;
// Vertices ahead of the one that is read whose cache lines are fetched.
constexpr int64_t kAhead = 48;
// Bytes of what is no vertex, or has a hotness that is none.
constexpr uint64_t kRefused = ~uint64_t{0};

// Reading is random access and done by all threads, block by block; giving away is sequential.
template <typename Vertex, typename Value>
class Sharing {
 public:
  Sharing(const ShareOut& task, const Shared& shared)
      : task_(task),
        shared_(shared),
        order_(static_cast<const Vertex*>(task.order.data)),
        left_(task.capacities),
        num_members_(static_cast<int64_t>(task.local.size())),
        hotness_(std::min(kBlock, task.num_ordered) * num_members_),
        bytes_(std::min(kBlock, task.num_ordered)) {
    for (const Keys& keys : task.local) local_.push_back(static_cast<const Value*>(keys.data));
    if (shared.reads != nullptr) std::fill_n(shared.reads, num_members_ * num_members_, 0);
  }

  void run(int num_threads, const Poll& poll) {
    for (int64_t first = 0; first < task_.num_ordered; first += kBlock) {
      const int64_t size = std::min(kBlock, task_.num_ordered - first);
      parallel_for(size, kGrain, num_threads, poll, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) read(first, i);
      });
      for (int64_t i = 0; i < size; ++i) {
        if (bytes_[i] == kRefused) [[unlikely]]
          refuse(first + i);
        const Value* const hotness = hotness_.data() + i * num_members_;
        const int64_t taker = taker_of(hotness, bytes_[i]);
        shared_.member[first + i] = static_cast<int16_t>(taker);
        if (taker >= 0) add(taker, hotness, bytes_[i]);
      }
    }
    for (int64_t k = 0; k < num_members_; ++k) shared_.bytes[k] = task_.capacities[k] - left_[k];
  }

 private:
  bool is_vertex(Vertex v) const { return v >= 0 && v < task_.num_vertices; }

  void read(int64_t first, int64_t i) {
    if (first + i + kAhead < task_.num_ordered) fetch(order_[first + i + kAhead]);
    const Vertex v = order_[first + i];
    bool legal = is_vertex(v);
    if (legal) {
      for (int64_t k = 0; k < num_members_; ++k) {
        const Value value = local_[k][v];
        legal &= value >= Value{0};
        hotness_[i * num_members_ + k] = value;
      }
    }
    bytes_[i] = legal ? task_.bytes.of(v) : kRefused;
  }

  void fetch(Vertex v) const {
    if (!is_vertex(v)) return;
    task_.bytes.fetch(v);
    for (const Value* values : local_) __builtin_prefetch(values + v);
  }

  // Without branches: who takes a vertex is as good as random.
  int64_t taker_of(const Value* hotness, uint64_t bytes) const {
    int64_t best = -1, most_left = -1;
    Value hottest{-1};
    for (int64_t k = 0; k < num_members_; ++k) {
      const int64_t left = left_[k];
      const bool fits = static_cast<uint64_t>(left) >= bytes;
      const bool better = (hotness[k] > hottest) | ((hotness[k] == hottest) & (left > most_left));
      const bool takes = fits & better;
      best = takes ? k : best;
      hottest = takes ? hotness[k] : hottest;
      most_left = takes ? left : most_left;
    }
    return best;
  }

  void add(int64_t taker, const Value* hotness, uint64_t bytes) {
    left_[taker] -= static_cast<int64_t>(bytes);
    if constexpr (std::is_integral_v<Value>) {
      if (shared_.reads == nullptr) return;
      for (int64_t j = 0; j < num_members_; ++j) {
        shared_.reads[j * num_members_ + taker] += hotness[j];
      }
    }
  }

  [[noreturn]] void refuse(int64_t place) const {
    const Vertex v = order_[place];
    if (!is_vertex(v)) {
      throw std::invalid_argument("order: " + std::to_string(v) + " at place " +
                                  std::to_string(place) + ", allowed are 0 to " +
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
  std::vector<int64_t> left_;
  int64_t num_members_;
  std::vector<Value> hotness_;   // [vertices of a block, num_members]
  std::vector<uint64_t> bytes_;  // of the block's vertices
};

}  // namespace

void share_out(const ShareOut& task, const Shared& shared, int num_threads, const Poll& poll) {
  with_type(task.local.front(), [&]<typename Value>(const Value*) {
    task.order.wide ? Sharing<int64_t, Value>(task, shared).run(num_threads, poll)
                    : Sharing<int32_t, Value>(task, shared).run(num_threads, poll);
  });
}

}  // namespace gnnscale
