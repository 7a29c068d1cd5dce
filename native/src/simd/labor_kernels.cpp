// Small random numbers of the vertices of neighbour lists. Compiled once per instruction set.
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
inline void search_one(uint64_t key, const Vertex* list, uint64_t bound, Candidates& found) {
  const int64_t place = found.next++;
  found.copy = place > 0 && list[place] == list[place - 1] ? found.copy + 1 : 0;
  uint64_t number = draw(key, static_cast<uint64_t>(list[place]));
  if (found.copy > 0) number = draw(number, found.copy);
  found.numbers[found.size] = number;
  found.places[found.size] = place;
  found.size += number <= bound;
}

#if defined(__AVX512DQ__)

// Eight ids of a list, or those that `lanes` says, and 0 in place of others.
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

// As gnnscale::draw. With `key` moved by one step, the index needs none to be added.
inline __m512i draw_eight(uint64_t key, __m512i indices) {
  const auto moved = static_cast<int64_t>(key + kGolden);
  __m512i words = _mm512_add_epi64(times(indices, kGolden), _mm512_set1_epi64(moved));
  words = times(fold<30>(words), 0xbf58476d1ce4e5b9);
  words = times(fold<27>(words), 0x94d049bb133111eb);
  return fold<31>(words);
}

inline void append(Candidates& found, __mmask8 small, __m512i numbers, int64_t first) {
  const __m512i places =
      _mm512_add_epi64(_mm512_set1_epi64(first), _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
  _mm512_storeu_si512(found.numbers + found.size, _mm512_maskz_compress_epi64(small, numbers));
  _mm512_storeu_si512(found.places + found.size, _mm512_maskz_compress_epi64(small, places));
  found.size += __builtin_popcount(small);
}

// Searches kCandidates neighbours, or with kEnds fewer or the first of a list, unless one is a copy
// of the one before it: then returns false. Which of them are small is unpredictable, so that there
// is at most one branch for all.
template <bool kEnds, typename Vertex>
inline bool search_some(uint64_t key, const Vertex* list, int64_t count, uint64_t bound,
                        Candidates& found) {
  constexpr int kVectors = kCandidates / 8;
  const uint32_t lanes = kEnds && count < kCandidates ? (uint32_t{1} << count) - 1 : ~uint32_t{0};
  const Vertex* from = list + found.next;
  const __m512i bounds = _mm512_set1_epi64(static_cast<int64_t>(bound));
  __m512i numbers[kVectors];
  __mmask8 small[kVectors];
  int any = 0, copies = 0;
  for (int i = 0; i < kVectors; ++i) {
    const auto here = static_cast<__mmask8>(lanes >> (8 * i));
    // Nothing is before the first of a list.
    const auto follows = static_cast<__mmask8>(kEnds && found.next + i == 0 ? here & ~1 : here);
    const __m512i ids = eight(from + 8 * i, here), before = eight(from + 8 * i - 1, follows);
    copies |= _mm512_mask_cmpeq_epi64_mask(follows, ids, before);
    numbers[i] = draw_eight(key, ids);
    small[i] = _mm512_mask_cmple_epu64_mask(here, numbers[i], bounds);
    any |= small[i];
  }
  if (copies != 0) return false;
  // Above this some of them are small more often than in one case of four.
  constexpr uint64_t kDense = uint64_t{1} << 57;
  if (bound >= kDense || any != 0) {
    for (int i = 0; i < kVectors; ++i) append(found, small[i], numbers[i], found.next + 8 * i);
  }
  found.next += count;
  found.copy = 0;
  return true;
}

#else

// Products of 64 bits are faster one by one than side by side.
template <bool kEnds, typename Vertex>
inline bool search_some(uint64_t, const Vertex*, int64_t, uint64_t, Candidates&) {
  return false;
}

#endif

template <typename Vertex>
void search(uint64_t key, const Vertex* list, int64_t size, uint64_t bound, Candidates& into) {
  Candidates found = into;
  while (found.next < size && found.size + kCandidates <= found.room) {
    const int64_t left = size - found.next;
    const int64_t count = left < kCandidates ? left : kCandidates;
    const bool ends = found.next == 0 || left < kCandidates;
    if (ends ? search_some<true>(key, list, count, bound, found)
             : search_some<false>(key, list, count, bound, found)) {
      continue;
    }
    const int64_t end = found.next + count;
    while (found.next < end) search_one(key, list, bound, found);
  }
  into = found;
}

// A number's rank is how many are smaller: each is compared with some at once.
void keep_few(const uint64_t* numbers, const int64_t* places, int64_t size, int64_t k,
              int64_t begin, int64_t* out) {
  int64_t kept = 0;
  for (int64_t first = 0; first < size; first += kLanes) {
    Words mine, ranks = {};
    __builtin_memcpy(&mine, numbers + first, sizeof mine);
    for (int64_t i = 0; i < size; ++i) ranks -= (Words)(numbers[i] < mine);
    const int64_t lanes = size - first < kLanes ? size - first : kLanes;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      out[kept] = begin + places[first + lane];
      kept += (ranks[lane] < static_cast<uint64_t>(k)) & (kept < k);
    }
  }
}

}  // namespace

namespace GNNSCALE_ISA {
extern const LaborKernels labor_kernels;
const LaborKernels labor_kernels{search<int32_t>, search<int64_t>, keep_few};
}  // namespace GNNSCALE_ISA

}  // namespace gnnscale
