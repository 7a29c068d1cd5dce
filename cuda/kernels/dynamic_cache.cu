// Updates of the dynamic cache: the host determines which rows of a mini-batch enter which slots
// (Belady 1966), and the previous mini-batch's rows are reused once (FastGL, Match). See
// gnnscale/backend/cuda/row_gather.py.
#include "gnnscale_cuda/rows.hpp"

namespace gnnscale {
namespace {

// Cache updates of a step: the record at the step's index.
struct Replaced {
  int64_t count;
  const int32_t *positions, *slots;
};
__device__ inline Replaced replaced_at(const int32_t* records, int64_t size, int64_t capacity,
                                       const int64_t* place) {
  const int32_t* record = records + *place * size;
  const int64_t count = record[0];
  return {count < capacity ? count : capacity, record + 1, record + 1 + capacity};
}

__device__ inline int64_t vertex_at(const void* vertices, int wide, int64_t i) {
  return wide != 0 ? static_cast<const int64_t*>(vertices)[i]
                   : int64_t{static_cast<const int32_t*>(vertices)[i]};
}

// Copies one lane's part of a row; `size` lanes share it.
template <typename Word>
__device__ inline void copy_row(const uint8_t* from, uint8_t* to, int64_t num_bytes, unsigned lane,
                                unsigned size) {
  for (int64_t i = lane; i < num_bytes / int64_t{sizeof(Word)}; i += size) {
    reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const Word*>(from)[i];
  }
}

}  // namespace
}  // namespace gnnscale

// Invalidates the previous mini-batch's rows, in the slots from `first` on.
extern "C" __global__ void __launch_bounds__(256)
    rows_forget(const void* vertices, int wide, const int64_t* count, int32_t* slot_of,
                int64_t first) {
  using namespace gnnscale;
  const int64_t stride = gridDim.x * int64_t{kThreads};
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < *count; i += stride) {
    const int64_t v = vertex_at(vertices, wide, i);
    if (slot_of[v] >= first) slot_of[v] = -1;
  }
}
GNNSCALE_EXPORT(rows_forget);

// Evicts the previous rows of the updated slots.
extern "C" __global__ void __launch_bounds__(256)
    rows_leave(const int32_t* records, int64_t size, int64_t capacity, const int64_t* place,
               int32_t* slot_of, int64_t* vertex_in) {
  using namespace gnnscale;
  const Replaced replaced = replaced_at(records, size, capacity, place);
  const int64_t stride = gridDim.x * int64_t{kThreads};
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < replaced.count; i += stride) {
    const int32_t slot = replaced.slots[i];
    const int64_t v = vertex_in[slot];
    if (v >= 0 && slot_of[v] == slot) slot_of[v] = -1;
    vertex_in[slot] = -1;
  }
}
GNNSCALE_EXPORT(rows_leave);

// Copies rows of the mini-batch into the cache, one warp a row. Positions beyond the mini-batch are
// skipped.
extern "C" __global__ void __launch_bounds__(256)
    rows_enter(const int32_t* records, int64_t size, int64_t capacity, const int64_t* place,
               const void* vertices, int wide, const int64_t* count, const uint8_t* out,
               uint8_t* rows, int64_t row_bytes, int32_t* slot_of, int64_t* vertex_in) {
  using namespace gnnscale;
  const Replaced replaced = replaced_at(records, size, capacity, place);
  const unsigned lane = threadIdx.x % 32;
  const int64_t num_warps = gridDim.x * int64_t{kThreads / 32};
  for (int64_t i = (blockIdx.x * int64_t{kThreads} + threadIdx.x) / 32; i < replaced.count;
       i += num_warps) {
    const int64_t position = replaced.positions[i], slot = replaced.slots[i];
    if (position >= *count) continue;
    const uint8_t* from = out + position * row_bytes;
    uint8_t* to = rows + slot * row_bytes;
    if (row_bytes % 16 == 0) {
      copy_row<uint4>(from, to, row_bytes, lane, 32);
    } else if (row_bytes % 4 == 0) {
      copy_row<uint32_t>(from, to, row_bytes, lane, 32);
    } else {
      copy_row<uint8_t>(from, to, row_bytes, lane, 32);
    }
    if (lane != 0) continue;
    const int64_t v = vertex_at(vertices, wide, position);
    slot_of[v] = static_cast<int32_t>(slot);
    vertex_in[slot] = v;
  }
}
GNNSCALE_EXPORT(rows_enter);

// Maps rows of a mini-batch that are not cached to the gathered rows: slots from `first` on.
extern "C" __global__ void __launch_bounds__(256)
    rows_remember(const void* vertices, int wide, const int64_t* count, int32_t* slot_of,
                  int64_t first) {
  using namespace gnnscale;
  const int64_t stride = gridDim.x * int64_t{kThreads};
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < *count; i += stride) {
    const int64_t v = vertex_at(vertices, wide, i);
    if (slot_of[v] < 0) slot_of[v] = static_cast<int32_t>(first + i);
  }
}
GNNSCALE_EXPORT(rows_remember);
