// Edges drawn by weight. Compiled once per instruction set.
#include "weighted_kernels.hpp"

#include "equal_lanes.hpp"
namespace gnnscale {
namespace {

// End of a block's parts for each edge, and the parts before it.
struct Part {
  int64_t lane;
  bool is_last;  // last part of its edge
};

#if defined(__AVX2__)

class Parts {
 public:
  explicit Parts(const uint8_t* parts) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(parts));
    __m256i sums = _mm256_cvtepu8_epi16(bytes);
    sums = _mm256_add_epi16(sums, _mm256_slli_si256(sums, 2));
    sums = _mm256_add_epi16(sums, _mm256_slli_si256(sums, 4));
    sums = _mm256_add_epi16(sums, _mm256_slli_si256(sums, 8));
    // The upper half continues the sums of the lower half.
    const __m256i lower = _mm256_permute2x128_si256(sums, sums, 0x08);
    sums_ = _mm256_add_epi16(sums, _mm256_shuffle_epi8(lower, _mm256_set1_epi16(0x0f0e)));
  }
  int size() const { return _mm256_extract_epi16(sums_, kWeightBlock - 1); }
  Part at(int part) const {
    const __m256i parts = _mm256_set1_epi16(static_cast<int16_t>(part));
    const __m256i next = _mm256_set1_epi16(static_cast<int16_t>(part + 1));
    const auto ends_above =
        static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpgt_epi16(sums_, parts)));
    const auto ends = static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi16(sums_, next)));
    const int bit = __builtin_ctz(ends_above);
    return {bit / 2, (ends >> bit & 1) != 0};
  }

 private:
  __m256i sums_;
};

#else

class Parts {
 public:
  explicit Parts(const uint8_t* parts) {
    int sum = 0;
    for (int64_t lane = 0; lane < kWeightBlock; ++lane) {
      sum += parts[lane];
      sums_[lane] = sum;
    }
  }
  int size() const { return sums_[kWeightBlock - 1]; }
  Part at(int part) const {
    int64_t lane = 0;
    for (int64_t i = 0; i < kWeightBlock; ++i) lane += sums_[i] <= part;
    return {lane, sums_[lane] == part + 1};
  }

 private:
  int sums_[kWeightBlock];
};

#endif

// Reimplemented here: files of all instruction sets share the functions of WeightedList.

// As WeightedList::edge_in.
inline int64_t edge_in(const WeightedList& list, int64_t slot, uint64_t random) {
  const int64_t first = ((list.begin >> kWeightBlockBits) + slot) << kWeightBlockBits;
  const WeightSlot& slot_data = list.slots[slot];
  const Parts parts(slot_data.parts);
  if (parts.size() == 0) return -1;
  for (int i = 0; i < kMaxTries; ++i, random = next_random(random)) {
    const Part part = parts.at(part_at(random, parts.size()));
    const int64_t edge = first + part.lane;
    if (edge < list.begin || edge >= list.end) return -1;
    if (!part.is_last ||
        keeps_last(random, list.weights[edge], slot_data.largest, slot_data.parts[part.lane])) {
      return edge;
    }
  }
  return -1;
}

// As WeightedList::aliased_at.
inline int64_t aliased_at(const WeightedList& list, uint64_t random) {
  const auto size =
      static_cast<uint64_t>((list.end >> kWeightBlockBits) - (list.begin >> kWeightBlockBits) + 1);
  const uint64_t own_slot = below(random, size), alias = list.slots[own_slot].alias;
  if ((random * size >> kSlotBits) < (alias & kSlotMask)) return static_cast<int64_t>(own_slot);
  const uint64_t other = (alias & ~kSlotFilled) >> kSlotBits;
  return static_cast<int64_t>(other < size ? other : size - 1);
}

void edges_in(const WeightedList& list, uint64_t key, int64_t n, int64_t* edges) {
  for (int64_t i = 0; i < n; ++i) {
    edges[i] = edge_in(list, edges[i], edge_random(key, static_cast<uint64_t>(i)));
  }
}

// Returns a mask: bit i is set if places[i] occurs in places[0 .. i).
template <int kLanes>
inline uint32_t repeated_mask(const uint32_t* edge_keys, int64_t size) {
  uint32_t mask = 0;
#if defined(__AVX512CD__)
  if constexpr (kLanes == 16) {
    const __m512i earlier = _mm512_conflict_epi32(_mm512_load_si512(edge_keys));
    return _mm512_test_epi32_mask(earlier, earlier) & ((uint32_t{1} << size) - 1);
  }
#endif
  for (int64_t i = 1; i < size; ++i) {
    const uint32_t earlier_lanes = (uint32_t{1} << i) - 1;
    mask |= uint32_t{(equal_lanes<kLanes>(edge_keys, edge_keys[i]) & earlier_lanes) != 0} << i;
  }
  return mask;
}

template <int kLanes>
int64_t distinct_as(const WeightedList& list, uint64_t key, int64_t k, int64_t max_count,
                    int64_t* edges) {
  alignas(64) uint32_t edge_keys[kLanes] = {};
  edges_in(list, key, k, edges);
  for (int64_t i = 0; i < k; ++i) edge_keys[i] = static_cast<uint32_t>(edges[i]);
  uint32_t rejected = repeated_mask<kLanes>(edge_keys, k);
  for (int64_t i = 0; i < k; ++i) rejected |= uint32_t{edges[i] < 0} << i;
  if (rejected == 0) return k;
  int64_t size = 0;
  for (int64_t i = 0; i < k; ++i) {
    edges[size] = edges[i];
    edge_keys[size] = edge_keys[i];
    size += (rejected >> i & 1) == 0;
  }
  for (int64_t i = k; i < max_count && size < k; ++i) {
    const auto number = static_cast<uint64_t>(i);
    const int64_t slot = aliased_at(list, block_random(key, number));
    edges[size] = edge_in(list, slot, edge_random(key, number));
    edge_keys[size] = static_cast<uint32_t>(edges[size]);
    const uint32_t earlier_lanes = (uint32_t{1} << size) - 1;
    const bool is_new = (equal_lanes<kLanes>(edge_keys, edge_keys[size]) & earlier_lanes) == 0;
    size += is_new & (edges[size] >= 0);
  }
  return size;
}

int64_t distinct_in(const WeightedList& list, uint64_t key, int64_t k, int64_t max_count,
                    int64_t* edges) {
  return k <= 16 ? distinct_as<16>(list, key, k, max_count, edges)
                 : distinct_as<kCompared>(list, key, k, max_count, edges);
}

}  // namespace

namespace GNNSCALE_ISA {
extern const WeightedKernels weighted_kernels;
const WeightedKernels weighted_kernels{edges_in, distinct_in};
}  // namespace GNNSCALE_ISA

}  // namespace gnnscale
