#include "gnnscale/refine.hpp"

#include <algorithm>
#include <numeric>

#include "cluster_members.hpp"
#include "gnnscale/parallel.hpp"
#include "part_loads.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kGrain = 4096;
constexpr int64_t kMaxPasses = 64;
// A balancing pass ends when the excess has fallen to this share of its start: the precomputed
// order of moves is outdated by then.
constexpr double kPassEnds = 0.25;
// Refinement ends after a round that lowers the cut by less than this share.
constexpr double kLeastGain = 0.0005;

struct Move {
  int64_t unit;
  int32_t to;
  double score;
};

// Returns whether move a goes before b: best first, ties by lower unit.
bool precedes(const Move& a, const Move& b) {
  return a.score != b.score ? a.score > b.score : a.unit < b.unit;
}

// Weights of a unit's edges to each part.
class Connection {
 public:
  explicit Connection(int32_t num_parts) : weights_(num_parts) {}

  void clear() {
    for (const int32_t part : parts_) weights_[part] = 0;
    parts_.clear();
  }
  void add(int32_t part, int64_t weight) {
    if (weights_[part] == 0) parts_.push_back(part);
    weights_[part] += weight;
  }
  int64_t to(int32_t part) const { return weights_[part]; }
  // Returns the parts of the unit's neighbors, in the order of discovery.
  const std::vector<int32_t>& parts() const { return parts_; }

 private:
  std::vector<int64_t> weights_;
  std::vector<int32_t> parts_;
};

template <typename Vertex>
class Refinement {
 public:
  Refinement(const WeightedGraph<Vertex>& graph, const Limits& limits, const Together& clusters,
             int32_t* owner, int num_threads, const Poll& poll)
      : graph_(graph),
        num_parts_(limits.num_parts),
        owner_(owner),
        num_threads_(num_threads),
        poll_(poll),
        loads_(graph, limits, owner),
        units_(graph, clusters, owner),
        connection_(limits.num_parts) {}

  bool within() const { return loads_.within(); }

  int64_t cut() const {
    const int64_t num_vertices = graph_.lists.num_vertices;
    std::vector<int64_t> sums(num_vertices / kGrain + 1);
    parallel_for(num_vertices, kGrain, num_threads_, poll_, [&](int64_t begin, int64_t end) {
      int64_t sum = 0;
      for (int64_t v = begin; v < end; ++v) {
        for (int64_t e = graph_.lists.indptr[v]; e < graph_.lists.indptr[v + 1]; ++e) {
          if (owner_[graph_.lists.indices[e]] == owner_[v]) continue;
          sum += graph_.edge_weights != nullptr ? graph_.edge_weights[e] : 1;
        }
      }
      sums[begin / kGrain] = sum;
    });
    return std::accumulate(sums.begin(), sums.end(), int64_t{0}) / 2;
  }

  // Applies moves that reduce the excess, cheapest in cut first.
  void balance() {
    bool any = false;  // whether moves may cost more than when they were found
    for (int64_t pass = 0; pass < kMaxPasses && !loads_.within(); ++pass) {
      double excess = loads_.excess();
      const double ends = kPassEnds * excess;
      find_roomy();
      const std::vector<Move> moves = find_moves([&](int64_t unit, const Connection& connection) {
        return best_relief(unit, connection);
      });
      bool moved = false;
      for (const Move& move : moves) {
        if (poll_) poll_();
        find(move.unit, &connection_);
        const Move now = best_relief(move.unit, connection_);
        if (now.to < 0 || (!any && now.score < worse(move.score))) continue;
        excess -= loads_.relief(units_.weights(now.unit), owner_of(now.unit), now.to);
        apply(now);
        moved = true;
        if (loads_.within() || excess < ends) break;
      }
      if (!moved && any) break;
      any = !moved;
    }
  }

  // Runs one round of fitting moves that lower the cut. Returns the reduction of the cut.
  int64_t lower_cut() {
    int64_t lowered = 0;
    const std::vector<Move> moves = find_moves(
        [&](int64_t unit, const Connection& connection) { return best_gain(unit, connection); });
    for (const Move& move : moves) {
      if (poll_) poll_();
      find(move.unit, &connection_);
      const Move now = best_gain(move.unit, connection_);
      if (now.to < 0) continue;
      apply(now);
      lowered += static_cast<int64_t>(now.score);
    }
    return lowered;
  }

  int64_t climb() { return climb_hills(units_, num_parts_, &loads_, owner_); }

 private:
  // Number of least loaded parts that receive units without a neighbor in any part that has
  // capacity.
  static constexpr int32_t kRoomy = 8;

  int32_t owner_of(int64_t unit) const { return owner_[units_.first(unit)]; }
  void find(int64_t unit, Connection* connection) const {
    connection->clear();
    units_.for_edges(unit, [&](int64_t u, int64_t weight) { connection->add(owner_[u], weight); });
  }
  void apply(const Move& move) {
    loads_.move(units_.weights(move.unit), owner_of(move.unit), move.to);
    units_.for_vertices(move.unit, [&](int64_t v) { owner_[v] = move.to; });
  }

  // Returns the current best move of every unit that has one, best first.
  template <typename Best>
  std::vector<Move> find_moves(const Best& best) const {
    std::vector<std::vector<Move>> chunks(units_.size() / kGrain + 1);
    parallel_for(units_.size(), kGrain, num_threads_, poll_, [&](int64_t begin, int64_t end) {
      Connection connection(num_parts_);
      for (int64_t unit = begin; unit < end; ++unit) {
        if (units_.empty(unit)) continue;
        find(unit, &connection);
        const Move move = best(unit, connection);
        if (move.to >= 0) chunks[begin / kGrain].push_back(move);
      }
    });
    size_t size = 0;
    for (const std::vector<Move>& chunk : chunks) size += chunk.size();
    std::vector<Move> moves;
    moves.reserve(size);
    for (std::vector<Move>& chunk : chunks) {
      moves.insert(moves.end(), chunk.begin(), chunk.end());
      chunk = {};
    }
    std::sort(moves.begin(), moves.end(), precedes);
    return moves;
  }

  void find_roomy() {
    roomy_.resize(num_parts_);
    std::iota(roomy_.begin(), roomy_.end(), 0);
    std::stable_sort(roomy_.begin(), roomy_.end(),
                     [&](int32_t a, int32_t b) { return loads_.fullness(a) < loads_.fullness(b); });
    if (num_parts_ > kRoomy) roomy_.resize(kRoomy);
  }

  // Score of a move: cut lost for each unit of balance gained; without loss, more gain of both is
  // better.
  static double score(int64_t gain, double relief) {
    const auto cut = static_cast<double>(gain);
    return gain < 0 ? cut / relief : (cut + 1) * relief;
  }
  static double worse(double score) { return score < 0 ? 2 * score : score / 2; }

  Move best_relief(int64_t unit, const Connection& connection) const {
    const int32_t from = owner_of(unit);
    Move best{unit, -1, 0};
    if (loads_.excess(from) <= 0) return best;
    const auto consider = [&](int32_t to) {
      if (to == from) return;
      const double relief = loads_.relief(units_.weights(unit), from, to);
      if (relief <= 0) return;
      const double move_score = score(connection.to(to) - connection.to(from), relief);
      if (best.to < 0 || move_score > best.score || (move_score == best.score && to < best.to)) {
        best = {unit, to, move_score};
      }
    };
    for (const int32_t to : connection.parts()) consider(to);
    for (const int32_t to : roomy_) consider(to);
    return best;
  }

  Move best_gain(int64_t unit, const Connection& connection) const {
    const int32_t from = owner_of(unit);
    Move best{unit, -1, 0};
    for (const int32_t to : connection.parts()) {
      const auto gain = static_cast<double>(connection.to(to) - connection.to(from));
      if (to == from || gain <= 0 || gain < best.score) continue;
      if (gain == best.score && to > best.to) continue;
      if (loads_.fits(units_.weights(unit), to)) best = {unit, to, gain};
    }
    return best;
  }

  WeightedGraph<Vertex> graph_;
  int32_t num_parts_;
  int32_t* owner_;
  int num_threads_;
  const Poll& poll_;
  Loads loads_;
  Units<Vertex> units_;
  Connection connection_;
  std::vector<int32_t> roomy_;
};

}  // namespace

template <typename Vertex>
Refined refine(const WeightedGraph<Vertex>& graph, const Limits& limits, const Together& clusters,
               int64_t num_rounds, int32_t* owner, int num_threads, const Poll& poll) {
  Refinement<Vertex> refinement(graph, limits, clusters, owner, num_threads, poll);
  Refined result;
  result.cut_before = refinement.cut();
  refinement.balance();
  result.cut_balanced = refinement.cut();
  result.cut = result.cut_balanced;
  for (int64_t round = 0; round < num_rounds; ++round) {
    const int64_t lowered = refinement.lower_cut() + refinement.climb();
    result.cut -= lowered;
    if (static_cast<double>(lowered) <= kLeastGain * static_cast<double>(result.cut)) break;
  }
  result.within = refinement.within();
  return result;
}

template Refined refine(const WeightedGraph<int32_t>&, const Limits&, const Together&, int64_t,
                        int32_t*, int, const Poll&);
template Refined refine(const WeightedGraph<int64_t>&, const Limits&, const Together&, int64_t,
                        int32_t*, int, const Poll&);

}  // namespace gnnscale
