// Entry points of the kernels that search adjacency lists for small random numbers, one set for
// each instruction set.
#pragma once

#include <cstdint>

namespace gnnscale {

// The neighbors of a list with small numbers, in list order, and the search's progress.
struct Candidates {
  uint64_t* numbers;
  int64_t* places;  // positions in the list
  int64_t size;
  int64_t room;   // capacity of both arrays, a multiple of kCandidates
  int64_t next;   // position at which the search continues
  uint64_t copy;  // occurrences of the neighbor before `next` up to it, minus 1
};

// The search stops if the remaining capacity is below this.
inline constexpr int64_t kCandidates = 32;

struct LaborKernels {
  // Appends the neighbors whose numbers are at most `bound`, until the list of `size` ends or
  // capacity runs out. The number of vertex t is draw(key, t); its c-th repetition in the list has
  // draw(draw(key, t), c).
  void (*search32)(uint64_t key, const int32_t* list, int64_t size, uint64_t bound,
                   Candidates& found);
  void (*search64)(uint64_t key, const int64_t* list, int64_t size, uint64_t bound,
                   Candidates& found);

  // Writes out[i] = begin + the i-th position of the k smallest of `size` numbers, in order. Takes
  // O(size^2) time. May write one entry and read kCandidates numbers past the end.
  void (*keep_few)(const uint64_t* numbers, const int64_t* places, int64_t size, int64_t k,
                   int64_t begin, int64_t* out);
};

namespace baseline {
extern const LaborKernels labor_kernels;
}
namespace v3 {
extern const LaborKernels labor_kernels;
}
namespace v4 {
extern const LaborKernels labor_kernels;
}

}  // namespace gnnscale
