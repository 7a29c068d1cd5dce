// Adds values to in-neighbors by propagation blocking (Beamer, Asanović and Patterson, IPDPS 2017):
// edges are binned by source, then one thread reduces each bin, whose sources stay in its cache.
// Edges keep their order, so every sum is deterministic.
#include <algorithm>
#include <bit>

#include "gnnscale/hotness.hpp"

namespace gnnscale {
namespace {

// At most 1024 bins.
constexpr int kBinBits = 10;
// Edges of one work item, and the items of all threads between two reductions.
constexpr int64_t kTaskEdges = 1 << 16;
constexpr int64_t kMinTasks = 64, kMaxTasks = 1024;
constexpr int64_t kGrain = 1 << 16;

// Binned edge: the source relative to the bin, and the destination relative to the slice.
struct Edge {
  uint32_t source, destination;
};

template <typename Vertex, typename Value>
class Scatter {
 public:
  Scatter(const Topology<Vertex>& graph, const Value* values, Value* out)
      : graph_(graph),
        values_(values),
        out_(out),
        shift_(shift_of(graph.num_vertices)),
        num_bins_((std::max<int64_t>(graph.num_vertices - 1, 0) >> shift_) + 1),
        num_tasks_(std::clamp(graph.num_vertices / 4 / kTaskEdges, kMinTasks, kMaxTasks)),
        edges_(std::min(num_tasks_ * kTaskEdges, graph.num_edges)),
        ends_(num_tasks_ * (num_bins_ + 1)),
        first_(num_tasks_) {}

  void run(int num_threads, const Poll& poll) {
    // Reports damaged lists even if no edge leads to them.
    parallel_for(graph_.num_vertices, kGrain, num_threads, [&](int64_t begin, int64_t end) {
      for (int64_t v = begin; v < end; ++v) graph_.list(static_cast<Vertex>(v));
    });
    for (int64_t edge = 0; edge < graph_.num_edges; edge += num_tasks_ * kTaskEdges) {
      const int64_t remaining = graph_.num_edges - edge;
      const int64_t num_tasks = std::min(num_tasks_, (remaining + kTaskEdges - 1) / kTaskEdges);
      parallel_for(num_tasks, 1, num_threads, poll, [&](int64_t first, int64_t last) {
        Scratch<Read> scratch;
        for (int64_t task = first; task < last; ++task) {
          const int64_t begin = edge + task * kTaskEdges;
          bin(task, begin, std::min(begin + kTaskEdges, graph_.num_edges), scratch);
        }
      });
      parallel_for(num_bins_, 1, num_threads, poll, [&](int64_t first, int64_t last) {
        for (int64_t bin = first; bin < last; ++bin) add(bin, num_tasks);
      });
    }
  }

 private:
  // An edge as read. Nothing is read twice, since memory may change in between.
  struct Read {
    Vertex source;
    uint32_t destination;
  };

  // Returns the number of bits of a vertex within its bin.
  static int shift_of(int64_t num_vertices) {
    const uint64_t last = std::max<int64_t>(num_vertices - 1, 0);
    return std::max(0, static_cast<int>(std::bit_width(last) - kBinBits));
  }

  // Puts the edges begin to end into the bins of a task.
  void bin(int64_t task, int64_t begin, int64_t end, Scratch<Read>& scratch) {
    int32_t* const ends = ends_.data() + task * (num_bins_ + 1);
    std::fill_n(ends, num_bins_ + 1, 0);
    Read* const read = scratch.reserve(kTaskEdges);
    int64_t size = 0;
    first_[task] = list_of(begin);
    int64_t v = first_[task];
    for (int64_t edge = begin; edge < end; ++v) {
      if (v >= graph_.num_vertices) break;  // the offsets changed
      const auto [list, degree] = graph_.list(static_cast<Vertex>(v));
      const int64_t last = std::min(list + degree, end);
      if (values_[v] != Value{0}) {
        for (int64_t entry = std::max(list, edge); entry < last; ++entry) {
          const Vertex u = graph_.neighbor(entry);
          ++ends[(u >> shift_) + 1];
          read[size++] = {u, static_cast<uint32_t>(v - first_[task])};
        }
      }
      edge = std::max(edge, last);
    }
    for (int64_t i = 0; i < num_bins_; ++i) ends[i + 1] += ends[i];
    Edge* const edges = edges_.data() + task * kTaskEdges;
    const Vertex mask = (Vertex{1} << shift_) - 1;
    // ends[i] serves as the cursor of bin i and finally is its end.
    for (int64_t i = 0; i < size; ++i) {
      edges[ends[read[i].source >> shift_]++] = {static_cast<uint32_t>(read[i].source & mask),
                                                 read[i].destination};
    }
  }

  void add(int64_t bin, int64_t num_tasks) {
    Value* const out = out_ + (bin << shift_);
    for (int64_t task = 0; task < num_tasks; ++task) {
      const Edge* const edges = edges_.data() + task * kTaskEdges;
      const int32_t* const ends = ends_.data() + task * (num_bins_ + 1);
      const Value* const values = values_ + first_[task];
      for (int64_t i = bin == 0 ? 0 : ends[bin - 1]; i < ends[bin]; ++i) {
        out[edges[i].source] += values[edges[i].destination];
      }
    }
  }

  // Returns the vertex whose list has an edge; always a vertex, whatever the offsets hold.
  int64_t list_of(int64_t edge) const {
    const int64_t* const ends = graph_.indptr + 1;
    const int64_t v = std::upper_bound(ends, ends + graph_.num_vertices, edge) - ends;
    return std::min(v, graph_.num_vertices - 1);
  }

  const Topology<Vertex>& graph_;
  const Value* values_;
  Value* out_;
  int shift_;
  int64_t num_bins_, num_tasks_;
  HugeArray<Edge> edges_;
  std::vector<int32_t> ends_;   // [num_tasks, num_bins + 1]
  std::vector<int64_t> first_;  // [num_tasks] first destination, subtracted from the task's edges
};

}  // namespace

template <typename Vertex, typename Value>
void scatter_to_neighbors(const Topology<Vertex>& graph, const Value* values, Value* out,
                          int num_threads, const Poll& poll) {
  Scatter(graph, values, out).run(num_threads, poll);
}

template void scatter_to_neighbors(const Topology<int32_t>&, const float*, float*, int,
                                   const Poll&);
template void scatter_to_neighbors(const Topology<int32_t>&, const double*, double*, int,
                                   const Poll&);
template void scatter_to_neighbors(const Topology<int64_t>&, const float*, float*, int,
                                   const Poll&);
template void scatter_to_neighbors(const Topology<int64_t>&, const double*, double*, int,
                                   const Poll&);

}  // namespace gnnscale
