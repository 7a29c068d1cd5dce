// Neighbors drawn by edge weight, bit-identical to weighted_picks.cpp.
#include "gnnscale/weighted_lists.hpp"
#include "gnnscale_cuda/doubles.hpp"
#include "gnnscale_cuda/sample.hpp"

namespace gnnscale {
namespace {

constexpr uint64_t kNever = 0x7ff0000000000000;  // infinite time
// Longer lists are shared by a block of threads, all others by a warp.
constexpr int64_t kLong = 2048;

// Returns -log(u), with the products and sums of pick_kernels.cpp in their order.
__device__ inline double minus_log(uint64_t random) {
  constexpr uint64_t kOne = 0x3ff0000000000000, kRootHalf = 0x3fe6a09e667f3bcd;
  constexpr uint64_t kFraction = 0x000fffffffffffff, kTwo52 = 0x4330000000000000;
  const double u = sum(of_bits(kOne | random >> 12), -(1.0 - 0x1.0p-53));
  const uint64_t moved = bits_of(u) + (kOne - kRootHalf);
  const double k = sum(of_bits(kTwo52 | moved >> 52), -(0x1.0p52 + 1023.0));
  const double m = of_bits((moved & kFraction) + kRootHalf);
  const double s = sum(m, -1.0) / sum(m, 1.0), z = product(s, s);
  double series = 1.0 / 15;
  series = sum(product(series, z), 1.0 / 13);
  series = sum(product(series, z), 1.0 / 11);
  series = sum(product(series, z), 1.0 / 9);
  series = sum(product(series, z), 1.0 / 7);
  series = sum(product(series, z), 1.0 / 5);
  series = sum(product(series, z), 1.0 / 3);
  series = sum(product(series, z), 1.0);
  return sum(product(k, -0.6931471805599453), -product(product(2.0, s), series));
}

// Picks k of n from a list: those with the smallest exponential times (Efraimidis and Spirakis, IPL
// 2006), ties by first position. Times are positive, so their bits are ordered; they are recomputed
// at each comparison, which needs no memory. Previously drawn positions are excluded.
struct Race {
  uint64_t key;
  const float* weights;
  int64_t n;
  const int64_t* excluded = nullptr;  // positions in the list
  int64_t num_drawn = 0;

  __device__ bool is_out(int64_t i) const {
    for (int64_t index = 0; index < num_drawn; ++index) {
      if (excluded[index] == i) return true;
    }
    return false;
  }
  __device__ uint64_t time(int64_t i) const {
    if (i >= n || !(weights[i] > 0) || is_out(i)) return kNever;
    return bits_of(minus_log(draw(key, static_cast<uint64_t>(i))) /
                   static_cast<double>(weights[i]));
  }
};

// Returns the number of times below `bound`, to all lanes of kWarps warps.
template <int kWarps>
__device__ inline int64_t num_below(const Race& race, uint64_t bound) {
  __shared__ int64_t counts[8];
  const unsigned lane = threadIdx.x & 31, warp = kWarps == 1 ? 0 : threadIdx.x >> 5;
  int64_t count = 0;
  for (int64_t first = warp * 32; first < race.n; first += kWarps * 32) {
    count += __popc(__ballot_sync(kAllLanes, race.time(first + lane) < bound ? 1 : 0));
  }
  if constexpr (kWarps > 1) {
    __syncthreads();
    if (lane == 0) counts[warp] = count;
    __syncthreads();
    count = 0;
    for (int other_warp = 0; other_warp < kWarps; ++other_warp) count += counts[other_warp];
  }
  return count;
}

// The k smallest times are those below `bound`, and the first `ties` of those equal to it.
struct Finish {
  uint64_t bound;
  int64_t ties;
};

template <int kWarps>
__device__ inline Finish finish_of(const Race& race, int64_t k) {
  Finish finish{0, k};
  for (int bit = 62; bit >= 0; --bit) {
    const uint64_t bound = finish.bound | uint64_t{1} << bit;
    const int64_t count = num_below<kWarps>(race, bound);
    if (count == k) return {bound, 0};
    if (count < k) finish = {bound, k - count};
  }
  return finish;
}

// Writes the picks in list order: the work of one warp.
template <typename Vertex>
__device__ inline void take_finished(const SamplePlan& plan, SampleState& state, int hop,
                                     const Race& race, const Finish& finish, int64_t dst) {
  const int64_t* indptr = plan.hops[hop].indptr;
  const unsigned lane = threadIdx.x & 31, earlier = (1U << lane) - 1;
  int64_t edge = indptr[dst] + race.num_drawn, ties = finish.ties;
  const int64_t end = indptr[dst + 1];
  for (int64_t first = 0; first < race.n && edge < end; first += 32) {
    const int64_t i = first + lane;
    const uint64_t time = race.time(i);
    const unsigned equal = __ballot_sync(kAllLanes, i < race.n && time == finish.bound ? 1 : 0);
    const bool wins = i < race.n && (time < finish.bound ||
                                     (time == finish.bound && __popc(equal & earlier) < ties));
    const unsigned winners = __ballot_sync(kAllLanes, wins ? 1 : 0);
    const int64_t target = edge + __popc(winners & earlier);
    if (wins && target < end) take<Vertex>(plan, state, hop, target, dst, i);
    edge += __popc(winners);
    ties -= __popc(equal);
  }
}

// Counts the positive-weight neighbors that each destination keeps, for sample_count: one warp a
// list.
template <typename Vertex>
__device__ void sample_weigh(const SamplePlan& plan, SampleState& state, int hop) {
  const SampleHop& out = plan.hops[hop];
  const bool replace = plan.replace != 0 && out.fanout >= 0;
  const unsigned lane = threadIdx.x & 31;
  const int64_t num_warps = gridDim.x * int64_t{kThreads / 32};
  for (int64_t dst = (blockIdx.x * int64_t{kThreads} + threadIdx.x) >> 5;
       dst < state.num_vertices[hop]; dst += num_warps) {
    List list;
    if (lane == 0) list = open_list<Vertex>(plan, state, hop, dst);
    list.begin = __shfl_sync(kAllLanes, list.begin, 0);
    list.degree = __shfl_sync(kAllLanes, list.degree, 0);
    const int64_t max_count = out.fanout < 0 ? list.degree : replace ? 1 : out.fanout;
    int64_t count = 0;
    for (int64_t first = 0; first < list.degree && count < max_count; first += 32) {
      const int64_t i = first + lane;
      const bool is_positive = i < list.degree && plan.weights[list.begin + i] > 0;
      count += __popc(__ballot_sync(kAllLanes, is_positive ? 1 : 0));
    }
    if (count > max_count) count = max_count;
    if (lane == 0) out.indptr[dst] = replace && count > 0 ? out.fanout : count;
  }
}

// The draws of a destination, and its list.
struct WeightedDraws {
  uint64_t key;
  WeightedList list;

  __device__ int64_t degree() const { return list.end - list.begin; }
  // Returns the position of a draw in the list; negative if the draw is invalid.
  __device__ int64_t place(uint64_t i) const {
    const int64_t edge = list.edge_in(list.aliased_at(block_random(key, i)), edge_random(key, i));
    return edge < 0 ? -1 : edge - list.begin;
  }
};

template <typename Vertex>
__device__ inline WeightedDraws weighted_draws_of(const SamplePlan& plan, const SampleState& state,
                                                  int hop, int64_t dst) {
  const auto v = static_cast<int64_t>(static_cast<const Vertex*>(plan.vertices)[dst]);
  return {combine(state.keys[hop], static_cast<uint64_t>(v)),
          weighted_list(plan.weights, plan.weight_slots, v, plan.begins[dst], plan.degrees[dst])};
}

// Returns the scratch memory of a list's draws, eight bytes an edge, where they are compared.
__device__ inline int64_t* drawn_of(const SamplePlan& plan, int64_t edge) {
  return reinterpret_cast<int64_t*>(plan.slots) + edge;
}

// Draws k of a list, rejecting repeated draws: the work of one warp, one lane a draw. Missing picks
// are -1. Returns the number of picks.
template <typename Vertex>
__device__ inline int64_t take_drawn(const SamplePlan& plan, SampleState& state, int hop,
                                     int64_t dst, int64_t k) {
  const int64_t first = plan.hops[hop].indptr[dst];
  int64_t* drawn = drawn_of(plan, first);
  const int lane = static_cast<int>(threadIdx.x & 31);
  const unsigned earlier = (1U << lane) - 1;
  const auto max_tries = static_cast<int>(max_draws(plan.degrees[dst], k));  // below 2^30
  int count = 0;
  for (int begin = 0; begin < max_tries && count < k; begin += 32) {
    const int64_t position = begin + lane < max_tries
                                 ? weighted_draws_of<Vertex>(plan, state, hop, dst)
                                       .place(static_cast<uint64_t>(begin + lane))
                                 : -1;
    const unsigned equal = __match_any_sync(kAllLanes, position);
    bool is_new = position >= 0 && (equal & earlier) == 0;
    for (int index = 0; index < count; ++index) is_new = is_new && drawn[index] != position;
    const unsigned new_mask = __ballot_sync(kAllLanes, is_new ? 1 : 0);
    const int number = count + __popc(new_mask & earlier);
    if (is_new && number < k) {
      drawn[number] = position;
      take<Vertex>(plan, state, hop, first + number, dst, position);
    }
    count += __popc(new_mask);
    __syncwarp();
  }
  for (int64_t index = count + lane; index < k; index += 32) drawn[index] = -1;
  __syncwarp();
  return count < k ? count : k;
}

// Returns the number of completed draws of a list with missing picks.
__device__ inline int64_t num_drawn(const int64_t* drawn) {
  int64_t count = 0;
  while (drawn[count] >= 0) ++count;
  return count;
}

// Picks from lists that kWarps warps share. The one-warp kernel first draws from lists of every
// length; long lists are shared afterwards.
template <int kWarps, typename Vertex>
__device__ inline void pick_weighted(const SamplePlan& plan, SampleState& state, int hop) {
  const int64_t* indptr = plan.hops[hop].indptr;
  if (state.num_edges[hop] == 0) return;
  const unsigned warp = threadIdx.x >> 5;
  const int64_t group = kWarps > 1 ? blockIdx.x : blockIdx.x * int64_t{kThreads / 32} + warp;
  const int64_t num_groups = kWarps > 1 ? gridDim.x : gridDim.x * int64_t{kThreads / 32};
  for (int64_t dst = group; dst < state.num_vertices[hop]; dst += num_groups) {
    const int64_t k = indptr[dst + 1] - indptr[dst], n = plan.degrees[dst];
    if (k == 0 || (kWarps > 1 && n <= kLong)) continue;
    const bool draws = draws_from_slots(n, k);
    int64_t count = 0;
    if (draws && kWarps == 1) {
      count = take_drawn<Vertex>(plan, state, hop, dst, k);
    } else if (draws) {
      const int64_t* drawn = drawn_of(plan, indptr[dst]);
      count = drawn[k - 1] >= 0 ? k : num_drawn(drawn);
    }
    if (count == k || (n > kLong) != (kWarps > 1)) continue;
    const WeightedDraws list = weighted_draws_of<Vertex>(plan, state, hop, dst);
    const Race race{times_key(list.key), plan.weights + list.list.begin, n,
                    drawn_of(plan, indptr[dst]), count};
    // If all counted edges are kept, an edge whose weight has since become 0 is kept, too.
    const Finish finish =
        k == n ? Finish{~uint64_t{0}, 0} : finish_of<kWarps>(race, k - race.num_drawn);
    if (kWarps == 1 || warp == 0) take_finished<Vertex>(plan, state, hop, race, finish, dst);
  }
}

template <typename Vertex>
__device__ void sample_pick_weighted(const SamplePlan& plan, SampleState& state, int hop) {
  reset_tiles(plan.edge_tiles, &state.edge_ticket, state.num_edges[hop]);
  pick_weighted<1, Vertex>(plan, state, hop);
}

template <typename Vertex>
__device__ void sample_pick_weighted_long(const SamplePlan& plan, SampleState& state, int hop) {
  pick_weighted<kThreads / 32, Vertex>(plan, state, hop);
}

// With replacement: one thread a draw.
template <typename Vertex>
__device__ void sample_pick_weighted_each(const SamplePlan& plan, SampleState& state, int hop) {
  const int64_t* indptr = plan.hops[hop].indptr;
  const int64_t num_edges = state.num_edges[hop];
  reset_tiles(plan.edge_tiles, &state.edge_ticket, num_edges);
  for_edges(indptr, state.num_vertices[hop], num_edges, [&](int64_t edge, int64_t dst) {
    const WeightedDraws draws = weighted_draws_of<Vertex>(plan, state, hop, dst);
    const int64_t position = draws.place(static_cast<uint64_t>(edge - indptr[dst]));
    take<Vertex>(plan, state, hop, edge, dst, position < 0 ? 0 : position);
  });
}

}  // namespace
}  // namespace gnnscale

GNNSCALE_SAMPLE_KERNEL(sample_weigh);
GNNSCALE_SAMPLE_KERNEL(sample_pick_weighted);
GNNSCALE_SAMPLE_KERNEL(sample_pick_weighted_long);
GNNSCALE_SAMPLE_KERNEL(sample_pick_weighted_each);

// Fills the slots of weighted_lists.hpp, as the native sampler does. Runs once a graph, one thread
// a list.
extern "C" __global__ void __launch_bounds__(256)
    sample_fill_slots(const int64_t* indptr, const float* weights, gnnscale::WeightSlot* slots,
                      int64_t num_vertices, int64_t num_edges) {
  for (int64_t v = blockIdx.x * int64_t{256} + threadIdx.x; v < num_vertices;
       v += gridDim.x * int64_t{256}) {
    const int64_t begin = indptr[v], end = indptr[v + 1];
    if (begin < 0 || end < begin || end > num_edges) continue;
    const auto list = gnnscale::weighted_list(weights, slots, v, begin, end - begin);
    gnnscale::SlotFiller(list, slots + (list.slots - slots)).fill();
  }
}
GNNSCALE_EXPORT(sample_fill_slots);
