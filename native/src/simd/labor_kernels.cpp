// Search of adjacency lists for vertices with small random numbers. Compiled once per instruction
// set.
#include "labor_kernels.hpp"

#if defined(__AVX512DQ__)
#include <immintrin.h>
#endif

#include "gnnscale/random.hpp"

namespace gnnscale {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 8;
#elif defined(__AVX2__)
constexpr int kLanes = 4;
#else
constexpr int kLanes = 2;
#endif
typedef uint64_t Words __attribute__((vector_size(8 * kLanes)));

template <typename Vertex>
inline void search_one(uint64_t key, const Vertex* list, uint64_t bound, Candidates& candidates) {
  const int64_t position = candidates.next++;
  candidates.copy = position > 0 && list[position] == list[position - 1] ? candidates.copy + 1 : 0;
  uint64_t number = draw(key, static_cast<uint64_t>(list[position]));
  if (candidates.copy > 0) number = draw(number, candidates.copy);
  candidates.numbers[candidates.size] = number;
  candidates.places[candidates.size] = position;
  candidates.size += number <= bound;
}

#if defined(__AVX512DQ__)

// Loads eight ids of a list, or those in `lanes` and 0 in all other lanes.
inline __m512i eight(const int32_t* ids, __mmask8 lanes) {
  return _mm512_cvtepi32_epi64(_mm256_maskz_loadu_epi32(lanes, ids));
}
inline __m512i eight(const int64_t* ids, __mmask8 lanes) {
  return _mm512_maskz_loadu_epi64(lanes, ids);
}

inline __m512i times(__m512i words, uint64_t factor) {
  return _mm512_mullo_epi64(words, _mm512_set1_epi64(static_cast<int64_t>(factor)));
}

template <int kShift>
inline __m512i fold(__m512i words) {
  return _mm512_xor_si512(words, _mm512_srli_epi64(words, kShift));
}

// As gnnscale::draw. `key` is advanced by one step, so that the index needs no increment.
inline __m512i draw_eight(uint64_t key, __m512i indices) {
  const auto moved = static_cast<int64_t>(key + kGolden);
  __m512i words = _mm512_add_epi64(times(indices, kGolden), _mm512_set1_epi64(moved));
  words = times(fold<30>(words), 0xbf58476d1ce4e5b9);
  words = times(fold<27>(words), 0x94d049bb133111eb);
  return fold<31>(words);
}

inline void append(Candidates& candidates, __mmask8 small, __m512i numbers, int64_t first) {
  const __m512i positions =
      _mm512_add_epi64(_mm512_set1_epi64(first), _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
  _mm512_storeu_si512(candidates.numbers + candidates.size,
                      _mm512_maskz_compress_epi64(small, numbers));
  _mm512_storeu_si512(candidates.places + candidates.size,
                      _mm512_maskz_compress_epi64(small, positions));
  candidates.size += __builtin_popcount(small);
}

// Searches kCandidates neighbors, or with kEnds fewer or the start of a list. Returns false if a
// neighbor repeats the previous one. Small numbers are unpredictable, so there is at most one
// branch for all of them.
template <bool kEnds, typename Vertex>
inline bool search_some(uint64_t key, const Vertex* list, int64_t count, uint64_t bound,
                        Candidates& candidates) {
  constexpr int kVectors = kCandidates / 8;
  const uint32_t lanes = kEnds && count < kCandidates ? (uint32_t{1} << count) - 1 : ~uint32_t{0};
  const Vertex* from = list + candidates.next;
  const __m512i bounds = _mm512_set1_epi64(static_cast<int64_t>(bound));
  __m512i numbers[kVectors];
  __mmask8 small[kVectors];
  int any = 0, copies = 0;
  for (int i = 0; i < kVectors; ++i) {
    const auto valid = static_cast<__mmask8>(lanes >> (8 * i));
    // The first neighbor of a list has no predecessor.
    const auto follows =
        static_cast<__mmask8>(kEnds && candidates.next + i == 0 ? valid & ~1 : valid);
    const __m512i ids = eight(from + 8 * i, valid), previous = eight(from + 8 * i - 1, follows);
    copies |= _mm512_mask_cmpeq_epi64_mask(follows, ids, previous);
    numbers[i] = draw_eight(key, ids);
    small[i] = _mm512_mask_cmple_epu64_mask(valid, numbers[i], bounds);
    any |= small[i];
  }
  if (copies != 0) return false;
  // Above this bound, more than one in four groups has a small number.
  constexpr uint64_t kDense = uint64_t{1} << 57;
  if (bound >= kDense || any != 0) {
    for (int i = 0; i < kVectors; ++i)
      append(candidates, small[i], numbers[i], candidates.next + 8 * i);
  }
  candidates.next += count;
  candidates.copy = 0;
  return true;
}

#else

// Scalar 64-bit products are faster than vectorized ones.
template <bool kEnds, typename Vertex>
inline bool search_some(uint64_t, const Vertex*, int64_t, uint64_t, Candidates&) {
  return false;
}

#endif

template <typename Vertex>
void search(uint64_t key, const Vertex* list, int64_t size, uint64_t bound, Candidates& into) {
  Candidates candidates = into;
  while (candidates.next < size && candidates.size + kCandidates <= candidates.room) {
    const int64_t remaining = size - candidates.next;
    const int64_t count = remaining < kCandidates ? remaining : kCandidates;
    const bool ends = candidates.next == 0 || remaining < kCandidates;
    if (ends ? search_some<true>(key, list, count, bound, candidates)
             : search_some<false>(key, list, count, bound, candidates)) {
      continue;
    }
    const int64_t end = candidates.next + count;
    while (candidates.next < end) search_one(key, list, bound, candidates);
  }
  into = candidates;
}

// A number's rank is the count of smaller numbers, found by vectorized comparison.
void keep_few(const uint64_t* numbers, const int64_t* positions, int64_t size, int64_t k,
              int64_t begin, int64_t* out) {
  int64_t num_kept = 0;
  for (int64_t first = 0; first < size; first += kLanes) {
    Words values, ranks = {};
    __builtin_memcpy(&values, numbers + first, sizeof values);
    for (int64_t i = 0; i < size; ++i) ranks -= (Words)(numbers[i] < values);
    const int64_t lanes = size - first < kLanes ? size - first : kLanes;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      out[num_kept] = begin + positions[first + lane];
      num_kept += (ranks[lane] < static_cast<uint64_t>(k)) & (num_kept < k);
    }
  }
}

}  // namespace

namespace GNNSCALE_ISA {
extern const LaborKernels labor_kernels;
const LaborKernels labor_kernels{search<int32_t>, search<int64_t>, keep_few};
}  // namespace GNNSCALE_ISA

}  // namespace gnnscale
