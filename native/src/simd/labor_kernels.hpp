// Entry points of the kernels that search neighbour lists for small random numbers, one set for
// each instruction set.
#pragma once

#include <cstdint>

namespace gnnscale {

// The neighbours of a list whose numbers are small, in its order, and how far it was searched.
struct Candidates {
  uint64_t* numbers;
  int64_t* places;  // in the list
  int64_t size;
  int64_t room;   // of both arrays, a multiple of kCandidates
  int64_t next;   // the place at which the search continues
  uint64_t copy;  // which copy of its vertex the neighbour before `next` is, from 0
};

// The search stops if fewer places than this are left.
inline constexpr int64_t kCandidates = 32;

struct LaborKernels {
  // Appends the neighbours whose numbers are at most `bound`, until the list of `size` ends or
  // there is no room. The number of vertex t is draw(key, t), that of its copy c, which follow it
  // in the list, draw(draw(key, t), c).
  void (*search32)(uint64_t key, const int32_t* list, int64_t size, uint64_t bound,
                   Candidates& found);
  void (*search64)(uint64_t key, const int64_t* list, int64_t size, uint64_t bound,
                   Candidates& found);

  // out[i] = begin + i-th of the places of the k smallest of `size` numbers, in order. Takes time
  // of the square of their size. Writes one more place, and reads kCandidates more numbers at most.
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
