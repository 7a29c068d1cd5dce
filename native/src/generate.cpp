#include "gnnscale/generate.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "gnnscale/checks.hpp"
#include "gnnscale/parallel.hpp"
#include "gnnscale/random.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kGrain = 1 << 16;

// Maximum draws for each requested edge; beyond it the parameters are hopeless.
constexpr int64_t kMaxAttempts = 1000;

// One R-MAT edge as a key (smaller id << 32 | larger id); 0, the self-loop 0-0, for every
// self-loop.
class RmatEdge {
 public:
  RmatEdge(int64_t num_vertices, double a, double b, double c, uint64_t seed)
      : num_vertices_(num_vertices),
        levels_(std::bit_width(static_cast<uint64_t>(num_vertices - 1))),
        a_(threshold(a)),
        ab_(threshold(a + b)),
        abc_(threshold(a + b + c)),
        seed_(seed) {}

  uint64_t operator()(uint64_t number) const {
    const uint64_t key = combine(seed_, number);
    uint64_t row = 0, column = 0;
    for (int level = 0; level < levels_; ++level) {
      const auto random = static_cast<uint32_t>(draw(key, level / 2) >> (32 * (level % 2)));
      const uint64_t lower = random >= ab_;
      const uint64_t right = lower ? random >= abc_ : random >= a_;
      row = 2 * row + lower;
      column = 2 * column + right;
    }
    // The recursion covers 2^levels ids; scale them down to num_vertices.
    row = row * num_vertices_ >> levels_;
    column = column * num_vertices_ >> levels_;
    return row == column ? 0 : std::min(row, column) << 32 | std::max(row, column);
  }

 private:
  static uint32_t threshold(double probability) {
    return static_cast<uint32_t>(std::min(probability * 0x1p32, 0x1p32 - 1));
  }

  uint64_t num_vertices_;
  int levels_;
  uint32_t a_, ab_, abc_;
  uint64_t seed_;
};

// Radix sort from the least significant digit, 11 bits a pass, only over bits that occur.
void radix_sort(std::vector<uint64_t>& keys, int num_bits) {
  constexpr int kDigit = 11;
  std::vector<uint64_t> other(keys.size());
  for (int shift = 0; shift < num_bits; shift += kDigit) {
    std::vector<int64_t> start((1 << kDigit) + 1, 0);
    const auto digit = [&](uint64_t key) { return key >> shift & ((1 << kDigit) - 1); };
    for (const uint64_t key : keys) ++start[digit(key) + 1];
    std::partial_sum(start.begin(), start.end(), start.begin());
    for (const uint64_t key : keys) other[start[digit(key)]++] = key;
    keys.swap(other);
  }
}

void sort_distinct(std::vector<uint64_t>& keys, int vertex_bits) {
  // Ids use `vertex_bits` of either half: close the gap between the halves, which saves passes.
  const uint64_t low = (uint64_t{1} << vertex_bits) - 1;
  for (uint64_t& key : keys) key = key >> 32 << vertex_bits | (key & low);
  radix_sort(keys, 2 * vertex_bits);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  for (uint64_t& key : keys) key = key >> vertex_bits << 32 | (key & low);
}

void check_rmat(int64_t num_vertices, double a, double b, double c) {
  if (num_vertices < 2 || num_vertices > kMaxLocal) {
    throw std::invalid_argument("num_vertices: " + std::to_string(num_vertices) +
                                ", allowed are 2 to 2^31 - 1");
  }
  if (!(a >= 0 && b >= 0 && c >= 0 && a + b + c <= 1 + 1e-9)) {
    throw std::invalid_argument("a, b, c: probabilities, with a sum of at most 1");
  }
}

}  // namespace

EdgeList rmat_draws(int64_t num_vertices, double a, double b, double c, uint64_t seed,
                    uint64_t first, int64_t num_draws, int num_threads) {
  check_rmat(num_vertices, a, b, c);
  const RmatEdge edge_of(num_vertices, a, b, c, stream_key(Stream::rmat, seed, 0, 0));
  EdgeList edges{Array<int32_t>(num_draws), Array<int32_t>(num_draws)};
  parallel_for(num_draws, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t key = edge_of(first + i);
      edges.src.data[i] = static_cast<int32_t>(key >> 32);
      edges.dst.data[i] = static_cast<int32_t>(key & 0xffffffff);
    }
  });
  return edges;
}

Array<int32_t> rmat_numbering(int64_t num_vertices, uint64_t seed) {
  const uint64_t key = stream_key(Stream::rmat, seed, 0, 1);
  Array<int32_t> number(num_vertices);
  int32_t* to = number.data.get();
  std::iota(to, to + num_vertices, 0);
  for (int64_t i = num_vertices - 1; i > 0; --i) std::swap(to[i], to[below(draw(key, i), i + 1)]);
  return number;
}

EdgeList rmat_edges(int64_t num_vertices, int64_t num_edges, double a, double b, double c,
                    uint64_t seed, int num_threads) {
  check_rmat(num_vertices, a, b, c);
  if (num_edges < 0 || num_edges > num_vertices * (num_vertices - 1) / 4) {
    throw std::invalid_argument("num_edges: " + std::to_string(num_edges) +
                                ", at most half of all possible edges are allowed");
  }
  const RmatEdge edge_of(num_vertices, a, b, c, stream_key(Stream::rmat, seed, 0, 0));
  const int bits = std::bit_width(static_cast<uint64_t>(num_vertices - 1));
  std::vector<uint64_t> keys;
  uint64_t next_draw = 0;
  int64_t num_known = 0;
  // Hubs are drawn repeatedly, so some draws repeat edges: draw until enough are distinct.
  while (num_known < num_edges) {
    const int64_t missing = num_edges - num_known;
    const int64_t more = missing + missing / 8 + 1024;
    keys.resize(num_known + more);
    parallel_for(more, kGrain, num_threads, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) keys[num_known + i] = edge_of(next_draw + i);
    });
    next_draw += more;
    sort_distinct(keys, bits);
    if (!keys.empty() && keys.front() == 0) keys.erase(keys.begin());
    // If most draws repeat edges, finding the last edges would take forever.
    if (static_cast<int64_t>(keys.size()) - num_known < more / 10000 + 1) {
      throw std::invalid_argument("a, b, c: they leave too few different edges");
    }
    num_known = static_cast<int64_t>(keys.size());
  }
  // Drop the surplus evenly over the sorted list.
  const Array<int32_t> numbering = rmat_numbering(num_vertices, seed);
  const int32_t* number = numbering.data.get();
  EdgeList edges{Array<int32_t>(num_edges), Array<int32_t>(num_edges)};
  for (int64_t i = 0; i < num_edges; ++i) {
    const auto key_index = static_cast<int64_t>(static_cast<__int128>(i) * num_known / num_edges);
    const int32_t u = number[keys[key_index] >> 32], v = number[keys[key_index] & 0xffffffff];
    edges.src.data[i] = std::min(u, v);
    edges.dst.data[i] = std::max(u, v);
  }
  return edges;
}

namespace {

void check_communities(const int32_t* community, const float* weight, int64_t num_vertices) {
  check_below(community, num_vertices, std::max<int64_t>(num_vertices, 1), "community");
  std::vector<int64_t> sizes(num_vertices, 0);
  for (int64_t i = 0; i < num_vertices; ++i) {
    ++sizes[community[i]];
    if (!(weight[i] > 0 && weight[i] <= std::numeric_limits<float>::max())) {
      throw std::invalid_argument("weight: " + std::to_string(weight[i]) + " of vertex " +
                                  std::to_string(i) + ", allowed are finite numbers above 0");
    }
  }
  for (int64_t i = 0; i < num_vertices; ++i) {
    if (sizes[i] == 1) {
      throw std::invalid_argument("community: " + std::to_string(i) +
                                  " has one vertex, at least 2 are needed");
    }
  }
}

}  // namespace

EdgeList planted_partition_edges(const int32_t* community, const float* weight,
                                 int64_t num_vertices, int64_t num_edges, double within,
                                 uint64_t seed) {
  check_communities(community, weight, num_vertices);
  if (num_edges < 0 || (num_edges > 0 && num_vertices < 2)) {
    throw std::invalid_argument("num_edges: " + std::to_string(num_edges) + " between " +
                                std::to_string(num_vertices) + " vertices");
  }
  // Vertices sorted by community with running weights: a draw is a binary search in the range of
  // one community, or of all.
  std::vector<int32_t> order(num_vertices);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t u, int32_t v) { return community[u] < community[v]; });
  std::vector<double> running(num_vertices + 1, 0.0);
  std::vector<int64_t> start;  // [community] first index in `order`
  for (int64_t i = 0; i < num_vertices; ++i) {
    while (static_cast<int64_t>(start.size()) <= community[order[i]]) start.push_back(i);
    running[i + 1] = running[i] + weight[order[i]];
  }
  start.push_back(num_vertices);
  const auto pick = [&](int64_t first, int64_t last, uint64_t random) {
    const double target = running[first] + unit(random) * (running[last] - running[first]);
    const auto at = std::upper_bound(running.begin() + first + 1, running.begin() + last, target);
    return order[std::min<int64_t>(at - running.begin() - 1, last - 1)];
  };
  const uint64_t key = stream_key(Stream::planted_partition, seed, 0, 0);
  EdgeList edges{Array<int32_t>(num_edges), Array<int32_t>(num_edges)};
  for (int64_t i = 0, attempt = 0; i < num_edges; ++attempt) {
    if (attempt > kMaxAttempts * (num_edges + 1)) {
      throw std::invalid_argument("weight: so uneven that nearly every edge drawn is a loop");
    }
    const uint64_t stream = combine(key, attempt);
    const int32_t u = pick(0, num_vertices, draw(stream, 0));
    const bool inside = unit(draw(stream, 1)) < within;
    const int64_t first = inside ? start[community[u]] : 0;
    const int64_t last = inside ? start[community[u] + 1] : num_vertices;
    const int32_t v = pick(first, last, draw(stream, 2));
    if (u == v) continue;
    edges.src.data[i] = u;
    edges.dst.data[i++] = v;
  }
  return edges;
}

}  // namespace gnnscale
