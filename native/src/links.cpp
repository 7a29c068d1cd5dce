#include "gnnscale/links.hpp"

#include "gnnscale/parallel.hpp"
#include "gnnscale/random.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kGrain = 1 << 14;

}  // namespace

Array<int64_t> draw_negatives(RowIds edges, int64_t num_edges, int64_t count, int64_t num_vertices,
                              uint64_t seed, uint64_t step, int num_threads) {
  Array<int64_t> negatives(num_edges * count);
  const uint64_t root = stream_key(Stream::negatives, seed, step, 0);
  parallel_for(num_edges, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) {
      const uint64_t key = combine(root, static_cast<uint64_t>(edges[e]));
      for (int64_t i = 0; i < count; ++i) {
        negatives.data[e * count + i] = static_cast<int64_t>(
            below(draw(key, static_cast<uint64_t>(i)), static_cast<uint64_t>(num_vertices)));
      }
    }
  });
  return negatives;
}

Array<double> draw_of_pairs(RowIds first, RowIds second, int64_t num_pairs, uint64_t seed,
                            int num_threads) {
  Array<double> numbers(num_pairs);
  const uint64_t root = stream_key(Stream::edge_split, seed, 0, 0);
  parallel_for(num_pairs, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t key = combine(root, static_cast<uint64_t>(first[i]));
      numbers.data[i] = unit(draw(key, static_cast<uint64_t>(second[i])));
    }
  });
  return numbers;
}

}  // namespace gnnscale
