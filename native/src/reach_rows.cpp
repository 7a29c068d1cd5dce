#include <algorithm>

#include "gnnscale/parallel.hpp"
#include "gnnscale/partition.hpp"

namespace gnnscale {
namespace {

// Words of a vertex's bitmap that are processed together: one cache line.
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

// Walks the sample in slices of 512: the bits that every vertex reaches in one hop, then in two, up
// to num_hops - 1; the last hop is walked from the given vertices only.
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
               [&](int64_t v) { lines(hop)[v] = reach(static_cast<Vertex>(v), hop); });
    }
    const int64_t num_words = std::min(kWords, rows.words_per_row - slice * kWords);
    uint64_t* const to = rows.words.data.get() + slice * kWords;
    for_each(static_cast<int64_t>(vertices.size()), [&](int64_t i) {
      const Line line = reach(vertices[i], num_hops_);
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

  Line reach(Vertex v, int64_t hop) const {
    return hop == 1 ? reached_at_once(v) : reach_through(v, lines(hop - 1));
  }

  Line reached_at_once(Vertex v) const {
    Line line;
    const auto add = [&](Vertex u) {
      // Vertices outside of the sample or of earlier slices wrap around to large numbers.
      const uint32_t bit = slots_.data()[u] - static_cast<uint32_t>(first_slot_);
      if (bit < kWords * 64) line.set(bit);
    };
    add(v);
    const auto [begin, degree] = graph_.list(v);
    for (int64_t entry = begin; entry < begin + degree; ++entry) add(graph_.neighbor(entry));
    return line;
  }

  Line reach_through(Vertex v, const Line* previous) const {
    Line line = previous[v];
    const auto [begin, degree] = graph_.list(v);
    const int64_t end = begin + degree;
    for (int64_t entry = begin; entry < end; ++entry) {
      if (entry + kDistance < end) {
        __builtin_prefetch(previous + graph_.neighbor(entry + kDistance));
      }
      line.add(previous[graph_.neighbor(entry)]);
    }
    return line;
  }

  const Topology<Vertex>& graph_;
  int64_t num_hops_;
  int num_threads_;
  const Poll& poll_;
  int64_t first_slot_ = 1;
  HugeArray<uint32_t> slots_;  // from 1 on; 0: not in the sample
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
