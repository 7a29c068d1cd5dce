#include <algorithm>

#include "gnnscale/parallel.hpp"
#include "gnnscale/partition.hpp"

namespace gnnscale {
namespace {

// A cache line of bits for each vertex at a time.
constexpr int64_t kWords = 8;
constexpr int64_t kGrain = 1024;
constexpr int64_t kDistance = 16;

struct Line {
  uint64_t words[kWords] = {};

  void set(int64_t bit) { words[bit / 64] |= uint64_t{1} << (bit % 64); }
  void add(const Line& other) {
    for (int64_t i = 0; i < kWords; ++i) words[i] |= other.words[i];
  }
};

// The sample a slice of 512 at a time: what every vertex reaches in one hop, then in two, up to one
// hop less than asked for; the last hop is walked from the given vertices alone.
template <typename Vertex>
class Slices {
 public:
  Slices(const Topology<Vertex>& graph, const std::vector<Vertex>& sample, int64_t num_hops,
         int num_threads, const Poll& poll)
      : graph_(graph),
        num_hops_(num_hops),
        num_threads_(num_threads),
        poll_(poll),
        slots_(graph.num_vertices),
        even_(num_hops > 2 ? graph.num_vertices : 0),
        odd_(num_hops > 1 ? graph.num_vertices : 0) {
    for (size_t i = 0; i < sample.size(); ++i) {
      slots_.data()[sample[i]] = static_cast<uint32_t>(i) + 1;
    }
  }

  void write(int64_t slice, const std::vector<Vertex>& vertices, ReachRows& rows) {
    first_slot_ = slice * kWords * 64 + 1;
    for (int64_t hop = 1; hop < num_hops_; ++hop) {
      for_each(graph_.num_vertices,
               [&](int64_t v) { lines(hop)[v] = reached(static_cast<Vertex>(v), hop); });
    }
    const int64_t num_words = std::min(kWords, rows.words_per_row - slice * kWords);
    uint64_t* const to = rows.words.data.get() + slice * kWords;
    for_each(static_cast<int64_t>(vertices.size()), [&](int64_t i) {
      const Line line = reached(vertices[i], num_hops_);
      std::copy_n(line.words, num_words, to + i * rows.words_per_row);
    });
  }

 private:
  template <typename Body>
  void for_each(int64_t count, Body&& body) {
    parallel_for(count, kGrain, num_threads_, poll_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) body(i);
    });
  }

  Line* lines(int64_t hop) const { return (hop % 2 == 0 ? even_ : odd_).data(); }

  Line reached(Vertex v, int64_t hop) const {
    return hop == 1 ? reached_at_once(v) : reached_through(v, lines(hop - 1));
  }

  Line reached_at_once(Vertex v) const {
    Line line;
    const auto add = [&](Vertex u) {
      // What is of no slice, or of an earlier one, wraps around.
      const uint32_t bit = slots_.data()[u] - static_cast<uint32_t>(first_slot_);
      if (bit < kWords * 64) line.set(bit);
    };
    add(v);
    const auto [begin, degree] = graph_.list(v);
    for (int64_t place = begin; place < begin + degree; ++place) add(graph_.neighbor(place));
    return line;
  }

  Line reached_through(Vertex v, const Line* before) const {
    Line line = before[v];
    const auto [begin, degree] = graph_.list(v);
    const int64_t end = begin + degree;
    for (int64_t place = begin; place < end; ++place) {
      if (place + kDistance < end) {
        __builtin_prefetch(before + graph_.neighbor(place + kDistance));
      }
      line.add(before[graph_.neighbor(place)]);
    }
    return line;
  }

  const Topology<Vertex>& graph_;
  int64_t num_hops_;
  int num_threads_;
  const Poll& poll_;
  int64_t first_slot_ = 1;
  HugeArray<uint32_t> slots_;  // from 1 on; 0 for who is not in the sample
  HugeArray<Line> even_, odd_;
};

}  // namespace

template <typename Vertex>
ReachRows reach_rows(const Topology<Vertex>& graph, const std::vector<Vertex>& vertices,
                     const std::vector<Vertex>& sample, int64_t num_hops, int num_threads,
                     const Poll& poll) {
  ReachRows rows;
  rows.words_per_row = (static_cast<int64_t>(sample.size()) + 63) / 64;
  rows.words = Array<uint64_t>(static_cast<int64_t>(vertices.size()) * rows.words_per_row);
  Slices<Vertex> slices(graph, sample, num_hops, num_threads, poll);
  for (int64_t slice = 0; slice * kWords < rows.words_per_row; ++slice) {
    slices.write(slice, vertices, rows);
  }
  return rows;
}

template ReachRows reach_rows(const Topology<int32_t>&, const std::vector<int32_t>&,
                              const std::vector<int32_t>&, int64_t, int, const Poll&);
template ReachRows reach_rows(const Topology<int64_t>&, const std::vector<int64_t>&,
                              const std::vector<int64_t>&, int64_t, int, const Poll&);

}  // namespace gnnscale
