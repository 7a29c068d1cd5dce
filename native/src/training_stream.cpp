#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <utility>

#include "gnnscale/partition.hpp"
#include "gnnscale/random.hpp"
#include "walk.hpp"

namespace gnnscale {
namespace {

// Sizes of the parts while the stream fills them: |TV_i| and |PV_i|.
class Growing {
 public:
  Growing(int64_t num_vertices, int64_t num_parts)
      : total_(num_vertices),
        floor_(num_vertices / num_parts),
        num_larger_(num_vertices % num_parts),
        num_training_(num_parts),
        num_vertices_(num_parts) {}

  int64_t num_parts() const { return static_cast<int64_t>(num_training_.size()); }

  // Returns the part with the best score among the parts that are not full.
  int64_t best(const std::vector<int64_t>& overlaps) const {
    int64_t best = -1;
    for (int64_t part = 0; part < num_parts(); ++part) {
      if (!full(part) && (best < 0 || beats(part, best, overlaps))) best = part;
    }
    return best;
  }

  void add(int64_t part, int64_t num_new_vertices) {
    if (++num_training_[part] > floor_) --num_larger_;
    num_vertices_[part] += num_new_vertices;
  }

 private:
  bool full(int64_t part) const {
    return num_training_[part] > floor_ || (num_training_[part] == floor_ && num_larger_ == 0);
  }

  // Compares equation 1 as cross-multiplied integers, which is exact; the common factor 1 / K
  // cancels.
  bool beats(int64_t part, int64_t other, const std::vector<int64_t>& overlaps) const {
    const auto numerator = [&](int64_t i) {
      return static_cast<__int128>(overlaps[i]) * (total_ - num_parts() * num_training_[i]);
    };
    const auto denominator = [&](int64_t i) { return std::max<int64_t>(num_vertices_[i], 1); };
    const __int128 part_score = numerator(part) * denominator(other),
                   other_score = numerator(other) * denominator(part);
    if (part_score != other_score) return part_score > other_score;
    return std::pair(num_training_[part], num_vertices_[part]) <
           std::pair(num_training_[other], num_vertices_[other]);
  }

  int64_t total_, floor_;
  int64_t num_larger_;  // parts that may still get one more than floor_
  std::vector<int64_t> num_training_, num_vertices_;
};

// Rejects a repeated vertex, whose overlaps would be counted twice.
template <typename Vertex>
void check_distinct(const TrainingStream<Vertex>& stream) {
  std::vector<bool> is_present(stream.graph.num_vertices);
  for (int64_t i = 0; i < stream.num_vertices; ++i) {
    if (is_present[stream.vertices[i]]) {
      throw std::invalid_argument("vertices: " + std::to_string(stream.vertices[i]) +
                                  " appears twice");
    }
    is_present[stream.vertices[i]] = true;
  }
}

// Returns stream positions of the vertices for estimated overlaps: those with the smallest draws.
template <typename Vertex>
std::vector<int64_t> sampled_places(const TrainingStream<Vertex>& stream) {
  const uint64_t key = stream_key(Stream::partition, stream.seed, 0, 0);
  std::vector<std::pair<uint64_t, int64_t>> order(stream.num_vertices);
  for (int64_t i = 0; i < stream.num_vertices; ++i) order[i] = {draw(key, stream.vertices[i]), i};
  const int64_t size = std::min(stream.num_vertices, stream.max_sampled);
  if (size < stream.num_vertices) {
    std::nth_element(order.begin(), order.begin() + size, order.end());
  }
  std::vector<int64_t> positions(size);
  for (int64_t i = 0; i < size; ++i) positions[i] = order[i].second;
  std::sort(positions.begin(), positions.end());
  return positions;
}

// |TV_i & IN(v)| for every part i: by a walk if it is short, otherwise estimated from the sample.
template <typename Vertex>
class Overlaps {
 public:
  Overlaps(const TrainingStream<Vertex>& stream, int num_threads, const Poll& poll)
      : stream_(stream),
        long_(long_walks(stream.graph, stream.vertices, stream.num_vertices, stream.num_hops,
                         stream.max_walked, num_threads, poll)),
        walk_(stream.graph, stream.num_hops),
        part_of_(stream.graph.num_vertices, -1),
        counts_(stream.num_parts) {
    if (long_.empty()) return;
    sampled_ = sampled_places(stream);
    part_of_slot_.assign(sampled_.size(), -1);
    rows_ = reach_rows(stream.graph, vertices_at(long_), vertices_at(sampled_), stream.num_hops,
                       num_threads, poll);
  }

  int64_t num_estimated() const {
    return static_cast<int64_t>(sampled_.size()) < stream_.num_vertices
               ? static_cast<int64_t>(long_.size())
               : 0;
  }

  // Returns the overlaps of the vertex at `position`; calls must be in stream order.
  const std::vector<int64_t>& count(int64_t position) {
    std::fill(counts_.begin(), counts_.end(), 0);
    if (next_long_ < long_.size() && long_[next_long_] == position) {
      count_bits(rows_.row(static_cast<int64_t>(next_long_++)));
    } else {
      walk_.visit(stream_.vertices[position], [&](Vertex u) { add(part_of_[u]); });
    }
    return counts_;
  }

  void assign(int64_t position, int16_t part) {
    part_of_[stream_.vertices[position]] = part;
    if (next_sampled_ < sampled_.size() && sampled_[next_sampled_] == position) {
      part_of_slot_[next_sampled_++] = part;
    }
  }

 private:
  void add(int16_t part) {
    if (part >= 0) ++counts_[part];
  }

  void count_bits(const uint64_t* row) {
    for (size_t first = 0; first < part_of_slot_.size(); first += 64) {
      for (uint64_t word = row[first / 64]; word != 0; word &= word - 1) {
        add(part_of_slot_[first + std::countr_zero(word)]);
      }
    }
  }

  std::vector<Vertex> vertices_at(const std::vector<int64_t>& positions) const {
    std::vector<Vertex> vertices;
    vertices.reserve(positions.size());
    for (const int64_t position : positions) vertices.push_back(stream_.vertices[position]);
    return vertices;
  }

  const TrainingStream<Vertex>& stream_;
  std::vector<int64_t> long_, sampled_;  // stream positions
  size_t next_long_ = 0, next_sampled_ = 0;
  ReachRows rows_;
  Walk<Vertex> walk_;
  std::vector<int16_t> part_of_;       // [num_vertices]
  std::vector<int16_t> part_of_slot_;  // [sampled_.size()]
  std::vector<int64_t> counts_;
};

}  // namespace

template <typename Vertex>
int64_t assign_stream(const TrainingStream<Vertex>& stream, int16_t* part_of, uint8_t* hops,
                      int num_threads, const Poll& poll) {
  const Topology<Vertex>& graph = stream.graph;
  check_distinct(stream);
  std::fill_n(hops, stream.num_parts * graph.num_vertices, kUnreached);
  Overlaps<Vertex> overlaps(stream, num_threads, poll);
  Growing parts(stream.num_vertices, stream.num_parts);
  for (int64_t i = 0; i < stream.num_vertices; ++i) {
    if (poll) poll();
    const int64_t part = parts.best(overlaps.count(i));
    part_of[i] = static_cast<int16_t>(part);
    overlaps.assign(i, part_of[i]);
    parts.add(part, hops_from(graph, stream.vertices + i, 1, stream.num_hops,
                              hops + part * graph.num_vertices, 1, poll));
  }
  return overlaps.num_estimated();
}

template int64_t assign_stream(const TrainingStream<int32_t>&, int16_t*, uint8_t*, int,
                               const Poll&);
template int64_t assign_stream(const TrainingStream<int64_t>&, int16_t*, uint8_t*, int,
                               const Poll&);

}  // namespace gnnscale
