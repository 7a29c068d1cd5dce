#include <algorithm>
#include <limits>
#include <queue>

#include "part_loads.hpp"

namespace gnnscale {
namespace {

// Entries of the table of all connections, 4 bytes each.
constexpr int64_t kMaxTable = 1 << 25;
// Moves after the lowest cut, as a share of the units, and at least and at most.
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
        stamps_(units.size()),
        moved_(units.size()) {}

  // Returns whether the table holds all connections.
  bool fill() {
    for (int64_t unit = 0; unit < units_.size(); ++unit) {
      int64_t sum = 0;
      units_.for_edges(unit, [&](int64_t u, int64_t weight) {
        sum += weight;
        if (sum <= std::numeric_limits<int32_t>::max()) {
          add(unit * num_parts_ + owner_[u], weight);
        }
      });
      if (sum > std::numeric_limits<int32_t>::max()) return false;
    }
    for (int64_t unit = 0; unit < units_.size(); ++unit) push(unit);
    return true;
  }

  int64_t run() {
    const auto share = static_cast<int64_t>(kPatience * static_cast<double>(moved_.size()));
    const int64_t patience = std::clamp(share, kLeastPatience, kMostPatience);
    int64_t lowered = 0, most = 0;
    size_t keep = 0;
    while (!queue_.empty() && std::ssize(moves_) - static_cast<int64_t>(keep) < patience) {
      const Entry entry = queue_.top();
      queue_.pop();
      if (moved_[entry.unit] || entry.stamp != stamps_[entry.unit]) continue;
      const Entry now = best(entry.unit);
      if (now.to < 0) continue;
      if (now.gain != entry.gain || now.to != entry.to) {
        queue_.push(now);  // a part has filled up
        continue;
      }
      take(now);
      lowered += now.gain;
      if (lowered > most) {
        most = lowered;
        keep = moves_.size();
      }
    }
    for (; moves_.size() > keep; moves_.pop_back()) {
      const auto [unit, from] = moves_.back();
      hand_over(unit, from);
    }
    return most;
  }

 private:
  struct Entry {
    int64_t gain;
    int64_t unit;
    int32_t to;
    uint32_t stamp;

    // The queue has the highest gain first; of equal ones that of the lower unit.
    bool operator<(const Entry& other) const {
      return gain != other.gain ? gain < other.gain : unit > other.unit;
    }
  };
  struct Moved {
    int64_t unit;
    int32_t from;
  };

  int32_t owner_of(int64_t unit) const { return owner_[units_.first(unit)]; }

  void hand_over(int64_t unit, int32_t to) {
    loads_.move(units_.weights(unit), owner_of(unit), to);
    units_.for_vertices(unit, [&](int64_t v) { owner_[v] = to; });
  }

  Entry best(int64_t unit) const {
    const int32_t* connection = &table_[unit * num_parts_];
    Entry found{0, unit, -1, stamps_[unit]};
    if (units_.empty(unit)) return found;
    const int32_t from = owner_of(unit);
    for (int32_t to = 0; to < num_parts_; ++to) {
      if (to == from || connection[to] == 0) continue;
      const int64_t gain = int64_t{connection[to]} - connection[from];
      if (found.to >= 0 && gain <= found.gain) continue;
      if (loads_.fits(units_.weights(unit), to)) {
        found.gain = gain;
        found.to = to;
      }
    }
    return found;
  }

  // Cannot overflow unless edges lack their reverse.
  void add(int64_t place, int64_t weight) {
    table_[place] = static_cast<int32_t>(table_[place] + weight);
  }

  void push(int64_t unit) {
    const Entry entry = best(unit);
    if (entry.to >= 0) queue_.push(entry);
  }

  void take(const Entry& entry) {
    const int32_t from = owner_of(entry.unit);
    hand_over(entry.unit, entry.to);
    moved_[entry.unit] = true;
    moves_.push_back({entry.unit, from});
    units_.for_edges(entry.unit, [&](int64_t u, int64_t weight) {
      const int64_t other = units_.unit_of(u);
      add(other * num_parts_ + from, -weight);
      add(other * num_parts_ + entry.to, weight);
      if (moved_[other]) return;
      ++stamps_[other];
      push(other);
    });
  }

  const Units<Vertex>& units_;
  int32_t num_parts_;
  Loads& loads_;
  int32_t* owner_;
  std::vector<int32_t> table_;
  std::vector<uint32_t> stamps_;
  std::vector<bool> moved_;
  std::vector<Moved> moves_;
  std::priority_queue<Entry> queue_;
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
