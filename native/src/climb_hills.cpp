#include <algorithm>
#include <queue>

#include "part_loads.hpp"

namespace gnnscale {
namespace {

// Entries of the table of all connections, 8 bytes each.
constexpr int64_t kMaxTable = 1 << 24;
// Moves after the lowest cut, as a share of the vertices, and at least and at most.
constexpr double kPatience = 0.02;
constexpr int64_t kLeastPatience = 200;
constexpr int64_t kMostPatience = 20000;

template <typename Vertex>
class Climb {
 public:
  Climb(const WeightedGraph<Vertex>& graph, int32_t num_parts, Loads* loads, int32_t* owner)
      : graph_(graph),
        num_parts_(num_parts),
        loads_(*loads),
        owner_(owner),
        table_(graph.lists.num_vertices * num_parts),
        stamps_(graph.lists.num_vertices),
        moved_(graph.lists.num_vertices) {}

  int64_t run() {
    fill();
    const auto share = static_cast<int64_t>(kPatience * static_cast<double>(moved_.size()));
    const int64_t patience = std::clamp(share, kLeastPatience, kMostPatience);
    int64_t lowered = 0, most = 0;
    size_t keep = 0;
    while (!queue_.empty() && std::ssize(moves_) - static_cast<int64_t>(keep) < patience) {
      const Entry entry = queue_.top();
      queue_.pop();
      if (moved_[entry.vertex] || entry.stamp != stamps_[entry.vertex]) continue;
      const Entry now = best(entry.vertex);
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
      const auto [vertex, from] = moves_.back();
      loads_.move(weights(vertex), owner_[vertex], from);
      owner_[vertex] = from;
    }
    return most;
  }

 private:
  struct Entry {
    int64_t gain;
    int64_t vertex;
    int32_t to;
    uint32_t stamp;

    // The queue has the highest gain first; of equal ones that of the lower vertex.
    bool operator<(const Entry& other) const {
      return gain != other.gain ? gain < other.gain : vertex > other.vertex;
    }
  };
  struct Moved {
    int64_t vertex;
    int32_t from;
  };

  const int64_t* weights(int64_t v) const {
    return graph_.vertex_weights + v * graph_.num_weights;
  }
  int64_t weight_of(int64_t edge) const {
    return graph_.edge_weights != nullptr ? graph_.edge_weights[edge] : 1;
  }

  void fill() {
    const Lists<Vertex>& lists = graph_.lists;
    for (int64_t v = 0; v < lists.num_vertices; ++v) {
      for (int64_t e = lists.indptr[v]; e < lists.indptr[v + 1]; ++e) {
        table_[v * num_parts_ + owner_[lists.indices[e]]] += weight_of(e);
      }
    }
    for (int64_t v = 0; v < lists.num_vertices; ++v) push(v);
  }

  Entry best(int64_t v) const {
    const int64_t* connection = &table_[v * num_parts_];
    Entry found{0, v, -1, stamps_[v]};
    for (int32_t to = 0; to < num_parts_; ++to) {
      if (to == owner_[v] || connection[to] == 0) continue;
      const int64_t gain = connection[to] - connection[owner_[v]];
      if (found.to >= 0 && gain <= found.gain) continue;
      if (loads_.fits(weights(v), to)) {
        found.gain = gain;
        found.to = to;
      }
    }
    return found;
  }

  void push(int64_t v) {
    const Entry entry = best(v);
    if (entry.to >= 0) queue_.push(entry);
  }

  void take(const Entry& entry) {
    const int64_t v = entry.vertex;
    const int32_t from = owner_[v];
    loads_.move(weights(v), from, entry.to);
    owner_[v] = entry.to;
    moved_[v] = true;
    moves_.push_back({v, from});
    for (int64_t e = graph_.lists.indptr[v]; e < graph_.lists.indptr[v + 1]; ++e) {
      const auto u = static_cast<int64_t>(graph_.lists.indices[e]);
      table_[u * num_parts_ + from] -= weight_of(e);
      table_[u * num_parts_ + entry.to] += weight_of(e);
      if (moved_[u]) continue;
      ++stamps_[u];
      push(u);
    }
  }

  const WeightedGraph<Vertex>& graph_;
  int32_t num_parts_;
  Loads& loads_;
  int32_t* owner_;
  std::vector<int64_t> table_;
  std::vector<uint32_t> stamps_;
  std::vector<bool> moved_;
  std::vector<Moved> moves_;
  std::priority_queue<Entry> queue_;
};

}  // namespace

template <typename Vertex>
int64_t climb_hills(const WeightedGraph<Vertex>& graph, int32_t num_parts, Loads* loads,
                    int32_t* owner) {
  if (graph.lists.num_vertices > kMaxTable / num_parts) return 0;
  return Climb<Vertex>(graph, num_parts, loads, owner).run();
}

template int64_t climb_hills(const WeightedGraph<int32_t>&, int32_t, Loads*, int32_t*);
template int64_t climb_hills(const WeightedGraph<int64_t>&, int32_t, Loads*, int32_t*);

}  // namespace gnnscale
