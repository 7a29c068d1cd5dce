#include <algorithm>
#include <limits>
#include <vector>

#include "part_loads.hpp"

namespace gnnscale {
namespace {

// Maximum entries of the table of all connections, 4 bytes each.
constexpr int64_t kMaxTable = 1 << 25;
// Moves after the lowest cut before stopping, as a share of the units; with its minimum and
// maximum.
constexpr double kPatience = 0.02;
constexpr int64_t kLeastPatience = 200;
constexpr int64_t kMostPatience = 20000;

template <typename Vertex>
class Climb {
 public:
  Climb(const Units<Vertex>& units, int32_t num_parts, Loads* loads, int32_t* owner)
      : units_(units),
        num_parts_(num_parts),
        loads_(*loads),
        owner_(owner),
        table_(units.size() * num_parts),
        waiting_(units.size(), kNotWaiting),
        moved_(units.size()) {}

  // Fills the table of connections. Returns whether the table holds all of them.
  bool fill() {
    for (int64_t unit = 0; unit < units_.size(); ++unit) {
      int64_t sum = 0;
      units_.for_edges(unit, [&](int64_t u, int64_t weight) {
        sum += weight;
        if (sum <= kMaxSum) add(unit * num_parts_ + owner_[u], weight);
      });
      if (sum > kMaxSum) return false;
    }
    return true;
  }

  int64_t run() {
    const auto share = static_cast<int64_t>(kPatience * static_cast<double>(moved_.size()));
    const int64_t patience = std::clamp(share, kLeastPatience, kMostPatience);
    int64_t lowered = 0, best_lowered = 0, keep = 0;
    fill_queue();
    while (!queue_.empty() && std::ssize(moves_) - keep < patience) {
      const Entry entry = pop();
      if (moved_[entry.unit] || entry.gain != waiting_[entry.unit]) continue;
      const Best now = best(entry.unit);
      if (now.to < 0 || now.gain != entry.gain) {
        // A neighbor has left the part, or the part has filled up.
        waiting_[entry.unit] = kNotWaiting;
        if (now.to >= 0) push(entry.unit, now.gain);
        continue;
      }
      apply(entry.unit, now.to);
      lowered += now.gain;
      if (lowered > best_lowered) {
        best_lowered = lowered;
        keep = std::ssize(moves_);
      }
    }
    for (; std::ssize(moves_) > keep; moves_.pop_back()) {
      hand_over(moves_.back().unit, moves_.back().from);
    }
    return best_lowered;
  }

 private:
  struct Best {
    int32_t gain;
    int32_t to;
  };
  struct Entry {
    int32_t gain;
    int32_t unit;

    // Order of the priority queue: highest gain first; ties by lower unit.
    bool operator<(const Entry& other) const {
      return gain != other.gain ? gain < other.gain : unit > other.unit;
    }
  };
  struct Moved {
    int32_t unit;
    int32_t from;
  };
  static constexpr int64_t kMaxSum = std::numeric_limits<int32_t>::max();
  static constexpr int32_t kNotWaiting = std::numeric_limits<int32_t>::min();

  int32_t owner_of(int64_t unit) const { return owner_[units_.first(unit)]; }

  void hand_over(int64_t unit, int32_t to) {
    loads_.move(units_.weights(unit), owner_of(unit), to);
    units_.for_vertices(unit, [&](int64_t v) { owner_[v] = to; });
  }

  // Overflows only if edges lack their reverse.
  void add(int64_t index, int64_t weight) {
    table_[index] = static_cast<int32_t>(table_[index] + weight);
  }

  Best best(int64_t unit) const {
    Best best_move{0, -1};
    if (units_.empty(unit)) return best_move;
    const int32_t* connection = &table_[unit * num_parts_];
    const int32_t from = owner_of(unit);
    for (int32_t to = 0; to < num_parts_; ++to) {
      if (to == from || connection[to] == 0) continue;
      const auto gain = static_cast<int32_t>(int64_t{connection[to]} - connection[from]);
      if (best_move.to >= 0 && gain <= best_move.gain) continue;
      if (loads_.fits(units_.weights(unit), to)) best_move = {gain, to};
    }
    return best_move;
  }

  // A unit waits with the highest gain that it has had; outdated entries are detected when popped.
  void push(int64_t unit, int32_t gain) {
    waiting_[unit] = gain;
    queue_.push_back({gain, static_cast<int32_t>(unit)});
    std::push_heap(queue_.begin(), queue_.end());
  }
  Entry pop() {
    std::pop_heap(queue_.begin(), queue_.end());
    const Entry entry = queue_.back();
    queue_.pop_back();
    return entry;
  }
  void fill_queue() {
    queue_.clear();
    for (int64_t unit = 0; unit < units_.size(); ++unit) {
      const Best now = moved_[unit] ? Best{0, -1} : best(unit);
      waiting_[unit] = now.to < 0 ? kNotWaiting : now.gain;
      if (now.to >= 0) queue_.push_back({now.gain, static_cast<int32_t>(unit)});
    }
    std::make_heap(queue_.begin(), queue_.end());
  }

  void apply(int64_t unit, int32_t to) {
    const int32_t from = owner_of(unit);
    hand_over(unit, to);
    moved_[unit] = true;
    moves_.push_back({static_cast<int32_t>(unit), from});
    units_.for_edges(unit, [&](int64_t u, int64_t weight) {
      const int64_t other = units_.unit_of(u);
      add(other * num_parts_ + from, -weight);
      add(other * num_parts_ + to, weight);
      if (moved_[other]) return;
      const Best now = best(other);
      if (now.to >= 0 && now.gain > waiting_[other]) push(other, now.gain);
    });
    // Outdated entries would otherwise accumulate.
    if (std::ssize(queue_) > 2 * units_.size() + kLeastPatience) fill_queue();
  }

  const Units<Vertex>& units_;
  int32_t num_parts_;
  Loads& loads_;
  int32_t* owner_;
  std::vector<int32_t> table_;
  std::vector<int32_t> waiting_;
  std::vector<bool> moved_;
  std::vector<Moved> moves_;
  std::vector<Entry> queue_;
};

}  // namespace

template <typename Vertex>
int64_t climb_hills(const Units<Vertex>& units, int32_t num_parts, Loads* loads, int32_t* owner) {
  if (units.size() > kMaxTable / num_parts) return 0;
  Climb<Vertex> climb(units, num_parts, loads, owner);
  return climb.fill() ? climb.run() : 0;
}

template int64_t climb_hills(const Units<int32_t>&, int32_t, Loads*, int32_t*);
template int64_t climb_hills(const Units<int64_t>&, int32_t, Loads*, int32_t*);

}  // namespace gnnscale
