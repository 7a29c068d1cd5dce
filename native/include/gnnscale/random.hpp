// Counter-based random numbers: every draw is a pure function of its purpose, the seed and a few
// counters, such as (seed, step, hop, vertex, index) for neighbors.
//
// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a Weyl sequence and a 64-bit finalizer. It needs
// no state, so results do not depend on threads, workers or devices. GPU kernels include this file:
// all functions are constexpr, which lets NVRTC compile them for a device.
#pragma once

#include <cstdint>

namespace gnnscale {

inline constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

constexpr uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

constexpr uint64_t combine(uint64_t key, uint64_t word) { return mix(key + (word + 1) * kGolden); }

// Purpose of random numbers in native code, and the tag of each. `mix` is a bijection, so purposes
// of different tags never have the same root for one seed. The first four purposes predate tags and
// share one, since a new tag would change every sample and every graph; the counters after the key
// keep their streams apart. A new purpose gets a tag of its own. tests/test_random_streams.py pins
// all tags.
enum class Stream : uint64_t {
  neighbors = kGolden,              // (step, hop), then vertex and index
  layerwise = kGolden,              // (step, hop), then vertex; a run has one sampler
  rmat = kGolden,                   // (0, 0), then edge and level; (0, 1), then vertex
  planted_partition = kGolden,      // (0, 0), then attempt and index
  dropout = 0xd1342543de82ef95,     // (step, layer), then vertex and column / 4
  partition = 0xaef17502108ef2d9,   // (0, 0), then vertex
  negatives = 0x8bb84b93962eacc9,   // (step, 0), then edge and index
  edge_split = 0x2d358dccaa6c78a5,  // (0, 0), then both ends
  weighted = 0x8cb92ba72f3d8dd7,    // (step, hop), then vertex and position in its list
  labor = 0xbe4ba423396cfeb9,       // (step, hop), or (step, 0) for all, then neighbor and copy
  timed = 0x7c1d9f4e2ab86d35        // (step, hop), then vertex, bounds, and index or place
};

// The key of a stream's draws at two counters.
constexpr uint64_t stream_key(Stream stream, uint64_t seed, uint64_t first, uint64_t second) {
  return combine(combine(mix(seed ^ static_cast<uint64_t>(stream)), first), second);
}

// The `index`-th 64-bit draw of the stream `key`.
constexpr uint64_t draw(uint64_t key, uint64_t index) { return mix(key + (index + 1) * kGolden); }

// Uniform integer in [0, n), by the high half of a 128-bit product: bias at most n / 2^64.
constexpr uint64_t below(uint64_t random, uint64_t n) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(random) * n) >> 64);
}

// Uniform double in (0, 1).
constexpr double unit(uint64_t random) {
  return (static_cast<double>(random >> 11) + 0.5) * 0x1.0p-53;
}

}  // namespace gnnscale
