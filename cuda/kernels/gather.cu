// Row gather by ids, from device memory or, over the link, from host memory: in the stored type or
// converted (PyTorch-Direct, section 4).
#include "gnnscale_cuda/rows.hpp"

namespace gnnscale {
namespace {

// Rows that a group of threads has in flight, in the stored type and converted: they hide the
// link's latency. More rows would exceed the registers.
constexpr int kStoredRows = 4, kConvertedRows = 2;

// All members have 64 bits: the host writes them as an array of words, see
// gnnscale/backend/cuda/row_gather.py.
struct GatherTask {
  const uint8_t* table;
  int64_t num_rows, row_bytes;
  uint8_t* out;
  int64_t out_row_bytes;
  int64_t from, to;  // RowType; equal: rows are copied as stored
  int64_t shifts;    // whether reads are aligned to lines

  // Slots of rows in the caches of a clique's members, numbered consecutively member by member.
  const int32_t* slots;  // [num_rows of the table], -1: not cached; null without a cache
  int64_t num_members;
  int64_t first_slots[kMaxMembers + 1];
  const uint8_t* kept[kMaxMembers];
  uint64_t* found;  // [num_members + 1] rows read at each member, and in the table
};

// A row's address, and the member that has it.
struct Row {
  const uint8_t* address;
  int member;
};
__device__ inline Row find_row(const GatherTask& task, int64_t id) {
  const int64_t slot = task.slots == nullptr ? -1 : int64_t{task.slots[id]};
  if (slot < 0 || slot >= task.first_slots[task.num_members]) {
    return {task.table + id * task.row_bytes, static_cast<int>(task.num_members)};
  }
  int member = 0;
  while (slot >= task.first_slots[member + 1]) ++member;
  return {task.kept[member] + (slot - task.first_slots[member]) * task.row_bytes, member};
}

// Returns four bytes of a word, or all bytes of a shorter word. `part` must be a constant, since
// registers are not addressable.
__device__ inline uint32_t part_of(const uint4& word, int part) {
  return part == 0 ? word.x : part == 1 ? word.y : part == 2 ? word.z : word.w;
}
__device__ inline uint32_t part_of(const uint2& word, int part) {
  return part == 0 ? word.x : word.y;
}
template <typename Word>
__device__ inline uint32_t part_of(const Word& word, int) {
  return word;
}

// Returns element `i` of a word with `kBytes` an element.
template <int kBytes, typename Word>
__device__ inline float element_of(const Word& word, RowType type, int i) {
  constexpr int kEach = 4 / kBytes;
  const uint32_t part = part_of(word, i / kEach) >> 8 * kBytes * (i % kEach);
  if (kBytes == 4) return __uint_as_float(part);
  if (kBytes == 1) return static_cast<float>(part & 0xff);
  return type == RowType::float16 ? half_to_float(static_cast<uint16_t>(part))
                                  : __uint_as_float(part << 16);
}

// Writes word `at` of a row with `kBytes` an element, converted.
template <int kBytes, typename Word>
__device__ inline void convert(const GatherTask& task, const Word& word, int64_t at, uint8_t* out) {
  constexpr int kCount = static_cast<int>(sizeof(Word)) / kBytes;
  GNNSCALE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const float value = element_of<kBytes>(word, static_cast<RowType>(task.from), i);
    if (static_cast<RowType>(task.to) == RowType::float32) {
      reinterpret_cast<float*>(out)[at * kCount + i] = value;
    } else {
      reinterpret_cast<uint16_t*>(out)[at * kCount + i] = to_bfloat16(value);
    }
  }
}

template <bool kConverts, typename Word>
__device__ inline void write(const GatherTask& task, const Word& word, int64_t at, uint8_t* out) {
  const auto from = static_cast<RowType>(task.from);
  if constexpr (!kConverts) {
    reinterpret_cast<Word*>(out)[at] = word;
  } else if (from == RowType::float32) {
    convert<4>(task, word, at, out);
  } else if (from == RowType::uint8) {
    convert<1>(task, word, at, out);
  } else {
    convert<2>(task, word, at, out);
  }
}

template <bool kConverts, typename Word, typename Id>
__device__ void gather(const GatherTask& task, const Id* ids, int64_t num_ids, const int64_t* count,
                       uint64_t* wrong) {
  constexpr int kRows = kConverts ? kConvertedRows : kStoredRows;
  __shared__ unsigned long long counts[kMaxMembers + 1];
  if (task.slots != nullptr) {
    if (threadIdx.x <= kMaxMembers) counts[threadIdx.x] = 0;
    __syncthreads();
  }
  const int64_t num_words = task.row_bytes / int64_t{sizeof(Word)};
  const unsigned size = group_of(num_words), lane = threadIdx.x % size;
  const int64_t group = (blockIdx.x * int64_t{kThreads} + threadIdx.x) / size;
  const int64_t num_groups = gridDim.x * int64_t{kThreads} / size;
  const int64_t n = *count < num_ids ? *count : num_ids;
  for (int64_t first = group * kRows; first < n; first += num_groups * kRows) {
    const Word* rows[kRows];
    int64_t shifts[kRows];
    GNNSCALE_UNROLL
    for (int k = 0; k < kRows; ++k) {
      const int64_t id = first + k < n ? static_cast<int64_t>(ids[first + k]) : 0;
      const bool good = static_cast<uint64_t>(id) < static_cast<uint64_t>(task.num_rows);
      const bool exists = first + k < n;
      Row source{task.table, 0};
      if (good && exists) source = find_row(task, id);
      const uint8_t* row = source.address;
      rows[k] = good && exists ? reinterpret_cast<const Word*>(row) : nullptr;
      if (task.slots != nullptr && good && exists && lane == 0)
        atomicAdd(&counts[source.member], 1ULL);
      shifts[k] = task.shifts == 0 ? 0
                                   : circular_shift(reinterpret_cast<uintptr_t>(row),
                                                    int{sizeof(Word)}, num_words);
      if (!good && lane == 0) {
        atomicMin(reinterpret_cast<unsigned long long*>(wrong),
                  static_cast<unsigned long long>(first + k));
      }
    }
    for (int64_t i = lane; i < num_words; i += size) {
      Word words[kRows];
      GNNSCALE_UNROLL
      for (int k = 0; k < kRows; ++k) {
        words[k] = Word{};
        if (rows[k] != nullptr) words[k] = __ldcs(rows[k] + shifted(i, shifts[k], num_words));
      }
      GNNSCALE_UNROLL
      for (int k = 0; k < kRows; ++k) {
        if (first + k >= n) break;
        const int64_t at = shifted(i, shifts[k], num_words);
        uint8_t* out = task.out + (first + k) * task.out_row_bytes;
        write<kConverts>(task, words[k], at, out);
      }
    }
  }
  if (task.slots == nullptr) return;
  __syncthreads();
  if (threadIdx.x <= task.num_members && counts[threadIdx.x] != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&task.found[threadIdx.x]), counts[threadIdx.x]);
  }
}

}  // namespace
}  // namespace gnnscale

// Resets the error and the row counts.
extern "C" __global__ void __launch_bounds__(256)
    gather_begin(const gnnscale::GatherTask* task, uint64_t* wrong) {
  if (threadIdx.x == 0) *wrong = ~uint64_t{0};
  if (task->slots != nullptr && threadIdx.x <= task->num_members) task->found[threadIdx.x] = 0;
}
GNNSCALE_EXPORT(gather_begin);

#define GNNSCALE_GATHER(kernel, converts, word, id)                            \
  extern "C" __global__ void __launch_bounds__(256, 3)                         \
      kernel(const gnnscale::GatherTask* task, const id* ids, int64_t num_ids, \
             const int64_t* count, uint64_t* wrong) {                          \
    gnnscale::gather<converts, word, id>(*task, ids, num_ids, count, wrong);   \
  }                                                                            \
  GNNSCALE_EXPORT(kernel)

GNNSCALE_GATHER(gather_16_int32, false, uint4, int32_t);
GNNSCALE_GATHER(gather_16_int64, false, uint4, int64_t);
GNNSCALE_GATHER(gather_8_int32, false, uint2, int32_t);
GNNSCALE_GATHER(gather_8_int64, false, uint2, int64_t);
GNNSCALE_GATHER(gather_4_int32, false, uint32_t, int32_t);
GNNSCALE_GATHER(gather_4_int64, false, uint32_t, int64_t);
GNNSCALE_GATHER(gather_2_int32, false, uint16_t, int32_t);
GNNSCALE_GATHER(gather_2_int64, false, uint16_t, int64_t);
GNNSCALE_GATHER(gather_1_int32, false, uint8_t, int32_t);
GNNSCALE_GATHER(gather_1_int64, false, uint8_t, int64_t);
GNNSCALE_GATHER(gather_converted_16_int32, true, uint4, int32_t);
GNNSCALE_GATHER(gather_converted_16_int64, true, uint4, int64_t);
GNNSCALE_GATHER(gather_converted_8_int32, true, uint2, int32_t);
GNNSCALE_GATHER(gather_converted_8_int64, true, uint2, int64_t);
GNNSCALE_GATHER(gather_converted_4_int32, true, uint32_t, int32_t);
GNNSCALE_GATHER(gather_converted_4_int64, true, uint32_t, int64_t);
GNNSCALE_GATHER(gather_converted_2_int32, true, uint16_t, int32_t);
GNNSCALE_GATHER(gather_converted_2_int64, true, uint16_t, int64_t);
GNNSCALE_GATHER(gather_converted_1_int32, true, uint8_t, int32_t);
GNNSCALE_GATHER(gather_converted_1_int64, true, uint8_t, int64_t);
