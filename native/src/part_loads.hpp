// Weights of a graph's parts, maintained while vertices move between parts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cluster_members.hpp"
#include "gnnscale/refine.hpp"

namespace gnnscale {

// Balancing aims this far below the limits, as a share of the gap between limit and mean, to leave
// slack for the granularity of whole vertices.
inline constexpr double kMargin = 0.1;

// Loads of the parts, and their excess over the goals.
class Loads {
 public:
  template <typename Vertex>
  Loads(const WeightedGraph<Vertex>& graph, const Limits& limits, const int32_t* owner)
      : limits_(limits), width_(graph.num_weights), loads_(limits.num_parts * width_) {
    for (int64_t v = 0; v < graph.lists.num_vertices; ++v) {
      for (int64_t c = 0; c < width_; ++c) {
        loads_[owner[v] * width_ + c] += graph.vertex_weights[v * width_ + c];
      }
    }
    for (int64_t index = 0; index < std::ssize(loads_); ++index) {
      num_over_ += loads_[index] > limits_.most[index];
    }
    set_goals();
  }

  void move(const int64_t* weights, int32_t from, int32_t to) {
    for (int64_t c = 0; c < width_; ++c) {
      add(from * width_ + c, -weights[c]);
      add(to * width_ + c, weights[c]);
    }
  }
  bool fits(const int64_t* weights, int32_t to) const {
    for (int64_t c = 0; c < width_; ++c) {
      const int64_t index = to * width_ + c;
      if (weights[c] > 0 && loads_[index] + weights[c] > limits_.most[index]) return false;
    }
    return true;
  }
  bool within() const { return num_over_ == 0; }
  // Returns a part's excess over its goals: a sum of squares, which is convex, so that single moves
  // lead to balance wherever vertices are small.
  double excess(int32_t part) const {
    double sum = 0;
    for (int64_t c = 0; c < width_; ++c) sum += square(part, c, 0);
    return sum;
  }
  double excess() const {
    double sum = 0;
    for (int32_t part = 0; part < limits_.num_parts; ++part) sum += excess(part);
    return sum;
  }
  // Returns the reduction of the excess by a move.
  double relief(const int64_t* weights, int32_t from, int32_t to) const {
    double change = 0;
    for (int64_t c = 0; c < width_; ++c) {
      if (weights[c] == 0) continue;
      change += square(from, c, 0) - square(from, c, -weights[c]);
      change += square(to, c, 0) - square(to, c, weights[c]);
    }
    return change;
  }
  // Returns how full a part is in its fullest weight.
  double fullness(int32_t part) const {
    double fullest = 0;
    for (int64_t c = 0; c < width_; ++c) {
      const int64_t index = part * width_ + c;
      fullest = std::max(fullest, static_cast<double>(loads_[index]) * scales_[index]);
    }
    return fullest;
  }

 private:
  void add(int64_t index, int64_t weight) {
    num_over_ -= loads_[index] > limits_.most[index];
    loads_[index] += weight;
    num_over_ += loads_[index] > limits_.most[index];
  }
  void set_goals() {
    goals_.resize(loads_.size());
    scales_.resize(loads_.size());
    for (int64_t c = 0; c < width_; ++c) {
      double total = 0, capacity = 0;
      for (int32_t part = 0; part < limits_.num_parts; ++part) {
        total += static_cast<double>(loads_[part * width_ + c]);
        capacity += static_cast<double>(limits_.most[part * width_ + c]);
      }
      for (int32_t part = 0; part < limits_.num_parts; ++part) {
        const auto limit = static_cast<double>(limits_.most[part * width_ + c]);
        const double share = capacity > 0 ? std::min(limit, limit * total / capacity) : 0;
        goals_[part * width_ + c] = limit - kMargin * (limit - share);
        scales_[part * width_ + c] = share > 0 ? 1 / share : 1;
      }
    }
  }
  double square(int32_t part, int64_t c, int64_t more) const {
    const int64_t index = part * width_ + c;
    const double over = static_cast<double>(loads_[index] + more) - goals_[index];
    return over > 0 ? over * over * scales_[index] * scales_[index] : 0;
  }

  Limits limits_;
  int64_t width_;
  std::vector<int64_t> loads_;
  int64_t num_over_ = 0;  // number of part weights above their limits
  std::vector<double> goals_, scales_;
};

// Lowers the cut by sequences of moves, each the best available move that fits, even if it raises
// the cut; the moves after the lowest cut are undone (Fiduccia and Mattheyses, DAC 1982, for k
// parts). Returns the reduction of the cut. No-op if the table of all connections would be large.
template <typename Vertex>
int64_t climb_hills(const Units<Vertex>& units, int32_t num_parts, Loads* loads, int32_t* owner);

}  // namespace gnnscale
