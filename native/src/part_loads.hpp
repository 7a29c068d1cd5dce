// What the parts of a graph weigh, for those who move vertices between them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cluster_members.hpp"
#include "gnnscale/refine.hpp"

namespace gnnscale {

// Balance is sought this far below the limits, as a share of what lies between them and the mean,
// so that whole vertices fit.
inline constexpr double kMargin = 0.1;

// What the parts weigh, and how far that is too much.
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
    for (int64_t place = 0; place < std::ssize(loads_); ++place) {
      num_over_ += loads_[place] > limits_.most[place];
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
      const int64_t place = to * width_ + c;
      if (weights[c] > 0 && loads_[place] + weights[c] > limits_.most[place]) return false;
    }
    return true;
  }
  bool within() const { return num_over_ == 0; }
  // By how much a part is beyond its goals: the sum of squares, which is convex, so that single
  // moves lead to balance wherever vertices are small.
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
  // What a move takes from the excess.
  double relief(const int64_t* weights, int32_t from, int32_t to) const {
    double change = 0;
    for (int64_t c = 0; c < width_; ++c) {
      if (weights[c] == 0) continue;
      change += square(from, c, 0) - square(from, c, -weights[c]);
      change += square(to, c, 0) - square(to, c, weights[c]);
    }
    return change;
  }
  // How full a part is in the weight that it has most of.
  double fullness(int32_t part) const {
    double most = 0;
    for (int64_t c = 0; c < width_; ++c) {
      const int64_t place = part * width_ + c;
      most = std::max(most, static_cast<double>(loads_[place]) * scales_[place]);
    }
    return most;
  }

 private:
  void add(int64_t place, int64_t weight) {
    num_over_ -= loads_[place] > limits_.most[place];
    loads_[place] += weight;
    num_over_ += loads_[place] > limits_.most[place];
  }
  void set_goals() {
    goals_.resize(loads_.size());
    scales_.resize(loads_.size());
    for (int64_t c = 0; c < width_; ++c) {
      double total = 0, most = 0;
      for (int32_t part = 0; part < limits_.num_parts; ++part) {
        total += static_cast<double>(loads_[part * width_ + c]);
        most += static_cast<double>(limits_.most[part * width_ + c]);
      }
      for (int32_t part = 0; part < limits_.num_parts; ++part) {
        const auto limit = static_cast<double>(limits_.most[part * width_ + c]);
        const double share = most > 0 ? std::min(limit, limit * total / most) : 0;
        goals_[part * width_ + c] = limit - kMargin * (limit - share);
        scales_[part * width_ + c] = share > 0 ? 1 / share : 1;
      }
    }
  }
  double square(int32_t part, int64_t c, int64_t more) const {
    const int64_t place = part * width_ + c;
    const double over = static_cast<double>(loads_[place] + more) - goals_[place];
    return over > 0 ? over * over * scales_[place] * scales_[place] : 0;
  }

  Limits limits_;
  int64_t width_;
  std::vector<int64_t> loads_;
  int64_t num_over_ = 0;  // weights of parts that are above their limits
  std::vector<double> goals_, scales_;
};

// Lowers the cut by sequences of moves, each the best one at hand that fits, even if it raises the
// cut; what follows the lowest cut is undone (Fiduccia and Mattheyses, DAC 1982, for k parts).
// Returns by how much. Nothing is done where the table of all connections would be large.
template <typename Vertex>
int64_t climb_hills(const Units<Vertex>& units, int32_t num_parts, Loads* loads, int32_t* owner);

}  // namespace gnnscale
