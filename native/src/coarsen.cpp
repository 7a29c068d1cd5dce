#include "gnnscale/coarsen.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>
#include <stdexcept>
#include <vector>

#include "cluster_members.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/random.hpp"

namespace gnnscale {
namespace {

constexpr int32_t kNone = -1;

// Sums by key, cleared between vertices.
class Sums {
 public:
  explicit Sums(int64_t num_keys) : sums_(num_keys) {}

  void add(int32_t key, int64_t weight) {
    if (sums_[key] == 0) keys_.push_back(key);
    sums_[key] += weight;
  }
  int64_t operator[](int32_t key) const { return sums_[key]; }
  const std::vector<int32_t>& keys() const { return keys_; }
  void clear() {
    for (const int32_t key : keys_) sums_[key] = 0;
    keys_.clear();
  }

 private:
  std::vector<int64_t> sums_;
  std::vector<int32_t> keys_;
};

template <typename Vertex>
int64_t weight_of(const WeightedGraph<Vertex>& graph, int64_t edge) {
  return graph.edge_weights != nullptr ? graph.edge_weights[edge] : 1;
}

// Returns the vertices by the magnitude of their degrees, shuffled within each magnitude.
template <typename Vertex>
std::vector<int32_t> low_degrees_first(const Lists<Vertex>& lists) {
  const auto magnitude = [&](int64_t v) {
    return std::bit_width(static_cast<uint64_t>(lists.indptr[v + 1] - lists.indptr[v]));
  };
  int64_t starts[66] = {};
  for (int64_t v = 0; v < lists.num_vertices; ++v) ++starts[magnitude(v) + 1];
  for (int i = 1; i < 66; ++i) starts[i] += starts[i - 1];
  std::vector<int32_t> order(lists.num_vertices);
  int64_t slots[65];
  std::copy_n(starts, 65, slots);
  for (int64_t v = 0; v < lists.num_vertices; ++v) {
    order[slots[magnitude(v)]++] = static_cast<int32_t>(v);
  }
  for (int i = 0; i < 65; ++i) {
    std::sort(order.begin() + starts[i], order.begin() + starts[i + 1],
              [](int32_t a, int32_t b) { return mix(a) < mix(b); });
  }
  return order;
}

template <typename Vertex>
class Clustering {
 public:
  Clustering(const WeightedGraph<Vertex>& graph, const int64_t* max_weights, const int32_t* owner,
             int32_t* labels, const Poll& poll)
      : graph_(graph),
        poll_(poll),
        width_(graph.num_weights),
        max_weights_(max_weights),
        owner_(owner),
        labels_(labels),
        weights_(graph.vertex_weights,
                 graph.vertex_weights + graph.lists.num_vertices * graph.num_weights),
        sums_(graph.lists.num_vertices) {
    for (int64_t v = 0; v < num_vertices(); ++v) labels_[v] = static_cast<int32_t>(v);
  }

  // Runs one round. Returns the number of vertices that changed their cluster.
  int64_t propagate(const std::vector<int32_t>& order) {
    int64_t moved = 0;
    for (const int32_t v : order) {
      now_and_then();
      const int32_t to = favourite(v, true);
      if (to == kNone || to == labels_[v]) continue;
      move(v, to);
      ++moved;
    }
    return moved;
  }

  // Merges single-vertex clusters.
  void join_lonely(const std::vector<int32_t>& order) {
    std::vector<int32_t> sizes(num_vertices());
    for (int64_t v = 0; v < num_vertices(); ++v) ++sizes[labels_[v]];
    // Cluster being filled for each favorite cluster; the last entry serves vertices without
    // neighbors. With parts, each part would need its own last entry.
    std::vector<int32_t> filled(num_vertices() + 1, kNone);
    for (const int32_t v : order) {
      now_and_then();
      if (sizes[v] != 1 || labels_[v] != v) continue;
      const int32_t liked = favourite(v, false);
      int32_t& open = filled[liked == kNone ? num_vertices() : liked];
      if (open != kNone && fits(v, open) && allowed(v, open)) {
        move(v, open);
      } else {
        open = v;
      }
    }
  }

  int64_t number() {
    std::vector<int32_t> numbers(num_vertices(), kNone);
    int32_t count = 0;
    for (int64_t v = 0; v < num_vertices(); ++v) {
      int32_t& number = numbers[labels_[v]];
      if (number == kNone) number = count++;
      labels_[v] = number;
    }
    return count;
  }

 private:
  static constexpr uint64_t kPolled = 256;  // vertices between two polls

  int64_t num_vertices() const { return graph_.lists.num_vertices; }
  void now_and_then() {
    if (poll_ && ++num_seen_ % kPolled == 0) poll_();
  }
  bool allowed(int64_t v, int64_t u) const { return owner_ == nullptr || owner_[v] == owner_[u]; }
  bool fits(int64_t v, int32_t cluster) const {
    for (int64_t c = 0; c < width_; ++c) {
      const int64_t more = graph_.vertex_weights[v * width_ + c];
      if (more > 0 && weights_[cluster * width_ + c] + more > max_weights_[c]) return false;
    }
    return true;
  }
  void move(int64_t v, int32_t to) {
    for (int64_t c = 0; c < width_; ++c) {
      weights_[labels_[v] * width_ + c] -= graph_.vertex_weights[v * width_ + c];
      weights_[to * width_ + c] += graph_.vertex_weights[v * width_ + c];
    }
    labels_[v] = to;
  }
  // Returns the cluster with most edges to v; ties prefer v's own cluster, then a hash of the pair.
  int32_t favourite(int64_t v, bool must_fit) {
    for (int64_t e = graph_.lists.indptr[v]; e < graph_.lists.indptr[v + 1]; ++e) {
      const auto u = static_cast<int64_t>(graph_.lists.indices[e]);
      if (allowed(v, u)) sums_.add(labels_[u], weight_of(graph_, e));
    }
    int32_t best = kNone;
    for (const int32_t cluster : sums_.keys()) {
      if (best != kNone && sums_[cluster] < sums_[best]) continue;
      if (best != kNone && sums_[cluster] == sums_[best] && !preferred(v, cluster, best)) continue;
      if (!must_fit || cluster == labels_[v] || fits(v, cluster)) best = cluster;
    }
    sums_.clear();
    return best;
  }
  bool preferred(int64_t v, int32_t a, int32_t b) const {
    if (a == labels_[v] || b == labels_[v]) return a == labels_[v];
    return combine(v, a) < combine(v, b);
  }

  const WeightedGraph<Vertex>& graph_;
  const Poll& poll_;
  uint64_t num_seen_ = 0;
  int64_t width_;
  const int64_t* max_weights_;
  const int32_t* owner_;
  int32_t* labels_;
  std::vector<int64_t> weights_;  // [num_clusters]
  Sums sums_;
};

// Calls use(cluster, sums) for every cluster, with its edge weights to other clusters.
template <typename Vertex, typename Use>
void for_clusters(const WeightedGraph<Vertex>& graph, const int32_t* labels, const Members& members,
                  int num_threads, const Use& use) {
  constexpr int64_t kGrain = 64;
  const int64_t num_clusters = std::ssize(members.starts) - 1;
  std::atomic<int64_t> next{0};
  run_threads(num_threads, [&] {
    Sums sums(num_clusters);
    for (int64_t first; (first = next.fetch_add(kGrain)) < num_clusters;) {
      for (int64_t i = first; i < std::min(num_clusters, first + kGrain); ++i) {
        for (int64_t m = members.starts[i]; m < members.starts[i + 1]; ++m) {
          const int64_t v = members.vertices[m];
          for (int64_t e = graph.lists.indptr[v]; e < graph.lists.indptr[v + 1]; ++e) {
            const int32_t other = labels[graph.lists.indices[e]];
            if (other != i) sums.add(other, weight_of(graph, e));
          }
        }
        use(i, sums);
        sums.clear();
      }
    }
  });
}

}  // namespace

template <typename Vertex>
int64_t find_clusters(const WeightedGraph<Vertex>& graph, const int64_t* max_weights,
                      int64_t num_rounds, const int32_t* owner, int32_t* labels, const Poll& poll) {
  Clustering<Vertex> clustering(graph, max_weights, owner, labels, poll);
  const std::vector<int32_t> order = low_degrees_first(graph.lists);
  for (int64_t round = 0; round < num_rounds; ++round) {
    if (clustering.propagate(order) == 0) break;
  }
  clustering.join_lonely(order);
  return clustering.number();
}

template <typename Vertex>
Coarse contract(const WeightedGraph<Vertex>& graph, const int32_t* labels, int64_t num_clusters,
                int64_t threshold, int num_threads) {
  const int64_t width = graph.num_weights;
  const Members members(labels, graph.lists.num_vertices, num_clusters);
  // Returns an edge's weight after sampling, 0 if dropped; symmetric in both directions.
  const auto sampled_weight = [&](int64_t a, int64_t b, int64_t weight) {
    if (weight >= threshold) return weight;
    const uint64_t number = combine(combine(mix(threshold), std::min(a, b)), std::max(a, b));
    return below(number, threshold) < static_cast<uint64_t>(weight) ? threshold : int64_t{0};
  };
  Coarse coarse;
  coarse.indptr = Array<int64_t>(num_clusters + 1);
  int64_t* indptr = coarse.indptr.data.get();
  indptr[0] = 0;
  for_clusters(graph, labels, members, num_threads, [&](int64_t i, const Sums& sums) {
    indptr[i + 1] = 0;
    for (const int32_t other : sums.keys())
      indptr[i + 1] += sampled_weight(i, other, sums[other]) > 0;
  });
  for (int64_t i = 0; i < num_clusters; ++i) indptr[i + 1] += indptr[i];
  coarse.indices = Array<int32_t>(indptr[num_clusters]);
  coarse.edge_weights = Array<int32_t>(indptr[num_clusters]);
  for_clusters(graph, labels, members, num_threads, [&](int64_t i, const Sums& sums) {
    int64_t slot = indptr[i];
    for (const int32_t other : sums.keys()) {
      const int64_t weight = sampled_weight(i, other, sums[other]);
      if (weight == 0) continue;
      if (weight > std::numeric_limits<int32_t>::max()) {
        throw std::overflow_error(
            "labels: edges between two clusters weigh more than 32 bits hold");
      }
      coarse.indices.data[slot] = other;
      coarse.edge_weights.data[slot++] = static_cast<int32_t>(weight);
    }
  });
  coarse.vertex_weights = Array<int64_t>(num_clusters * width);
  std::fill_n(coarse.vertex_weights.data.get(), num_clusters * width, 0);
  for (int64_t v = 0; v < graph.lists.num_vertices; ++v) {
    for (int64_t c = 0; c < width; ++c) {
      coarse.vertex_weights.data[labels[v] * width + c] += graph.vertex_weights[v * width + c];
    }
  }
  return coarse;
}

template int64_t find_clusters(const WeightedGraph<int32_t>&, const int64_t*, int64_t,
                               const int32_t*, int32_t*, const Poll&);
template int64_t find_clusters(const WeightedGraph<int64_t>&, const int64_t*, int64_t,
                               const int32_t*, int32_t*, const Poll&);
template Coarse contract(const WeightedGraph<int32_t>&, const int32_t*, int64_t, int64_t, int);
template Coarse contract(const WeightedGraph<int64_t>&, const int32_t*, int64_t, int64_t, int);

}  // namespace gnnscale
