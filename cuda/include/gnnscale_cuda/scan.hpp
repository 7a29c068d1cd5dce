// Prefix sums over a whole grid, in one kernel: decoupled look-back (Merrill and Garland, 2016).
//
// A ticket hands out tiles in order, so all tiles before one are finished or in progress. A tile's
// word is 0, its own sum with the flag `kOwn`, or the sum of all tiles up to it with the flag
// `kUpTo`.
#pragma once

#include "gnnscale_cuda/device.hpp"

namespace gnnscale {

constexpr uint64_t kOwn = uint64_t{1} << 62;
constexpr uint64_t kUpTo = uint64_t{2} << 62;

// Resets the tiles of a scan of up to n numbers, at least kThreads a tile; the scan is another
// kernel.
__device__ inline void reset_tiles(uint64_t* tiles, int64_t* ticket, int64_t n) {
  const int64_t thread = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  for (int64_t tile = thread; tile * kThreads < n; tile += gridDim.x * int64_t{kThreads}) {
    tiles[tile] = 0;
  }
  if (thread == 0) *ticket = 0;
}

// Returns the inclusive prefix sum over the lanes of a warp.
__device__ inline int64_t warp_sum_up_to(int64_t value) {
  const unsigned lane = threadIdx.x % 32;
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    const int64_t other = __shfl_up_sync(kAllLanes, value, distance);
    if (lane >= distance) value += other;
  }
  return value;
}

// Returns the sum of the tiles before `tile`, whose own sum is `total`, for the lanes of the
// block's first warp. Reads 32 tiles at a time: serial look-back would make a tile wait for tens of
// loads when hundreds of tiles begin together.
__device__ inline int64_t look_back(uint64_t* tiles, int64_t tile, int64_t total) {
  const unsigned lane = threadIdx.x;
  if (tile > 0 && lane == 0) store_release(&tiles[tile], kOwn | static_cast<uint64_t>(total));
  int64_t sum_before = 0;
  for (int64_t end = tile; end > 0;) {
    const int64_t other = end - 1 - lane;
    const uint64_t word = other < 0 ? kUpTo : load_acquire(&tiles[other]);
    const unsigned ready = __ballot_sync(kAllLanes, word != 0);
    const unsigned ends = __ballot_sync(kAllLanes, (word & kUpTo) != 0);
    // Up to the first tile that has its inclusive prefix.
    const unsigned needed = ends == 0 ? kAllLanes : (ends & (0 - ends)) * 2 - 1;
    if ((needed & ~ready) != 0) {
      spin();
      continue;
    }
    const bool counts = (needed >> lane & 1) != 0;
    const int64_t sum = warp_sum_up_to(counts ? static_cast<int64_t>(word & (kOwn - 1)) : 0);
    sum_before += __shfl_sync(kAllLanes, sum, 31);
    end = ends == 0 ? end - 32 : 0;
  }
  if (lane == 0) store_release(&tiles[tile], kUpTo | static_cast<uint64_t>(sum_before + total));
  return sum_before;
}

// Scans n non-negative numbers, kItems a thread. Calls use(i, sum before i, value(i)) for each
// number, and done(total) once. Tiles must have been reset.
template <int kItems, class Value, class Use, class Done>
__device__ inline void scan_tiles(uint64_t* tiles, int64_t* ticket, int64_t n, Value&& value,
                                  Use&& use, Done&& done) {
  __shared__ int64_t sums[kWarps];
  __shared__ int64_t shared_tile, shared_before;
  constexpr int64_t kTile = int64_t{kItems} * kThreads;
  if (n <= 0) {
    if (blockIdx.x == 0 && threadIdx.x == 0) done(int64_t{0});
    return;
  }
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (;;) {
    if (threadIdx.x == 0) {
      auto* next = reinterpret_cast<unsigned long long*>(ticket);
      shared_tile = static_cast<int64_t>(atomicAdd(next, 1ULL));
    }
    __syncthreads();
    const int64_t tile = shared_tile;
    if (tile * kTile >= n) return;
    const int64_t first = tile * kTile + threadIdx.x * int64_t{kItems};
    int64_t values[kItems], sum = 0;
    for (int item = 0; item < kItems; ++item) {
      values[item] = first + item < n ? value(first + item) : 0;
      sum += values[item];
    }
    const int64_t up_to = warp_sum_up_to(sum);
    if (lane == 31) sums[warp] = up_to;
    __syncthreads();
    int64_t sum_before = up_to - sum, total = 0;
    for (unsigned other = 0; other < kWarps; ++other) {
      if (other < warp) sum_before += sums[other];
      total += sums[other];
    }
    if (warp == 0) {
      const int64_t tile_sum = look_back(tiles, tile, total);
      if (lane == 0) shared_before = tile_sum;
    }
    __syncthreads();
    sum_before += shared_before;
    for (int item = 0; item < kItems && first + item < n; ++item) {
      use(first + item, sum_before, values[item]);
      sum_before += values[item];
      if (first + item == n - 1) done(sum_before);
    }
    __syncthreads();  // the next tile overwrites shared memory
  }
}

}  // namespace gnnscale
