#include "row_kernels.hpp"

#include "partial_sums.hpp"
#include "prefetch_rows.hpp"
#include "stored_row.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#ifndef GNNSCALE_ISA
#error "GNNSCALE_ISA names the instruction set this file is compiled for"
#endif
#define GNNSCALE_STRING_(x) #x
#define GNNSCALE_STRING(x) GNNSCALE_STRING_(x)

namespace gnnscale {
namespace {

// Calls use.operator()<Type>() with the dtype as a template argument.
template <typename Use>
inline void for_stored(DType dtype, Use&& use) {
  switch (dtype) {
    case DType::float32: return use.template operator()<DType::float32>();
    case DType::float16: return use.template operator()<DType::float16>();
    case DType::bfloat16: return use.template operator()<DType::bfloat16>();
    case DType::uint8: return use.template operator()<DType::uint8>();
    case DType::int8: return use.template operator()<DType::int8>();
    case DType::int4: return use.template operator()<DType::int4>();
  }
}

// Converts columns [first, last) of a row.
template <DType kIn, DType kOut>
inline void convert_row(const element_t<kIn>* from, element_t<kOut>* to, int64_t first,
                        int64_t last) {
  if constexpr (kIn == kOut) {
    __builtin_memcpy(to, from + first, (last - first) * sizeof(element_t<kOut>));
    return;
  }
  const StoredRow<kIn> row(from);
  int64_t j = first;
  for (; j + kWidth <= last; j += kWidth, to += kWidth) store<kOut>(to, row.load(j));
  for (; j < last; ++j, ++to) store_one<kOut>(to, row.load_one(j));
}

// Prefetch distance of copies in bytes: copies compute nothing while they wait.
constexpr int64_t kCopyAheadBytes = 2 * kAheadBytes;

// Calls use(row_at(i)) for every row in [begin, end), in order, prefetching `row_bytes` of later
// rows.
template <typename RowAt, typename Use>
inline void read_ahead(int64_t begin, int64_t end, int64_t row_bytes, RowAt&& row_at, Use&& use) {
  const int64_t distance = 1 + kCopyAheadBytes / (row_bytes + 1);
  for (int64_t i = begin; i < begin + distance && i < end; ++i) {
    prefetch_bytes(row_at(i), row_bytes);
  }
  for (int64_t i = begin; i < end; ++i) {
    if (i + distance < end) prefetch_bytes(row_at(i + distance), row_bytes);
    use(row_at(i));
  }
}

// Copies or converts rows to out. row_at is called with the type of the elements.
template <typename RowAt>
inline void convert_rows(const Gather& task, int64_t begin, int64_t end, RowAt&& row_at) {
  for_stored(task.x.dtype, [&]<DType kIn>() {
    for_computed(task.out.dtype, [&]<DType kOut>() {
      using In = element_t<kIn>;
      auto* out = static_cast<element_t<kOut>*>(task.out.data) + begin * task.out.stride;
      read_ahead(
          begin, end, row_bytes(kIn, task.x.length),
          [&](int64_t i) { return row_at.template operator()<In>(i); },
          [&](const In* row) {
            convert_row<kIn, kOut>(row, out, 0, task.x.length);
            out += task.out.stride;
          });
    });
  });
}

// Bytes of an output that the second-level cache cannot hold. Stores around the caches then save
// reads of the output's lines, and keep these from evicting prefetched rows.
constexpr int64_t kStreamedBytes = int64_t{4} << 20;
// Bytes of the smallest store around the caches, and its alignment.
constexpr int64_t kStreamBytes = 16;

// Returns whether rows are copied as they are to a large output without gaps.
inline bool is_streamed(const Gather& task) {
#if defined(__SSE2__)
  const int64_t num_bytes = row_bytes(task.x.dtype, task.x.length);
  return task.x.dtype == task.out.dtype && task.out.stride == task.x.length &&
         num_bytes * task.num_rows >= kStreamedBytes && num_bytes % kStreamBytes == 0 &&
         reinterpret_cast<uintptr_t>(task.out.data) % kStreamBytes == 0;
#else
  return false;
#endif
}

// Copies bytes to aligned memory, around the caches.
inline void stream_bytes([[maybe_unused]] const char* from, [[maybe_unused]] char* to,
                         [[maybe_unused]] int64_t num_bytes) {
#if defined(__SSE2__)
  const auto copy_word = [&] {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    from += kStreamBytes, to += kStreamBytes, num_bytes -= kStreamBytes;
  };
#if defined(__AVX512F__)
  while (num_bytes > 0 && reinterpret_cast<uintptr_t>(to) % kCacheLine != 0) copy_word();
  for (; num_bytes >= kCacheLine; from += kCacheLine, to += kCacheLine, num_bytes -= kCacheLine) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
  }
#endif
  while (num_bytes > 0) copy_word();
#endif
}

// Makes streamed stores visible before all later stores.
inline void end_stream() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

void stream(const Gather& task, int64_t begin, int64_t end) {
  const int64_t num_bytes = row_bytes(task.x.dtype, task.x.length);
  char* out = static_cast<char*>(task.out.data) + begin * num_bytes;
  const int64_t stride = task.x.stride * element_bytes(task.x.dtype);
  read_ahead(
      begin, end, num_bytes,
      [&](int64_t i) { return static_cast<const char*>(task.x.data) + task.ids[i] * stride; },
      [&](const char* row) {
        stream_bytes(row, out, num_bytes);
        out += num_bytes;
      });
  end_stream();
}

void gather(const Gather& task, int64_t begin, int64_t end) {
  if (is_streamed(task)) return stream(task, begin, end);
  convert_rows(task, begin, end,
               [&]<typename In>(int64_t i) { return row_of<In>(task.x, task.ids[i]); });
}

void gather_columns(const GatherColumns& task, int64_t begin, int64_t end) {
  const int64_t num_whole = task.x.length / kWordColumns;
  const int64_t rest = task.x.length % kWordColumns;
  for_stored(task.x.dtype, [&]<DType kIn>() {
    using In = element_t<kIn>;
    float* out = task.out + begin * kWordColumns;
    read_ahead(
        begin, end, row_bytes(kIn, task.x.length),
        [&](int64_t i) { return row_of<In>(task.x, task.ids[i]); },
        [&](const In* row) {
          float* word = out;
          for (int64_t c = 0; c < task.num_words; ++c, word += task.num_rows * kWordColumns) {
            if (c < num_whole) {
              convert_row<kIn, DType::float32>(row, word, c * kWordColumns, (c + 1) * kWordColumns);
            } else {
              __builtin_memset(word, 0, kWordColumns * sizeof(float));
              if (c == num_whole && rest != 0) {
                convert_row<kIn, DType::float32>(row, word, c * kWordColumns, task.x.length);
              }
            }
          }
          out += kWordColumns;
        });
  });
}

void gather_at(const Gather& task, const void* const* rows, int64_t begin, int64_t end) {
  convert_rows(task, begin, end,
               [&]<typename In>(int64_t i) { return static_cast<const In*>(rows[i - begin]); });
}

void copy_at(const void* const* rows, void* const* to, int64_t row_bytes, int64_t num_rows) {
  read_ahead(
      0, num_rows, row_bytes, [&](int64_t i) { return rows[i]; },
      [&](const void* row) { __builtin_memcpy(*to++, row, row_bytes); });
}

// Calls use(rows) with the rows of x that the edges read. The caller (gnnscale::aggregate) has
// mapped rows of sources to rows of edges.
template <typename Use>
inline void for_edge_rows(const Aggregate& task, Use&& use) {
  if (task.ids.data == nullptr) return use(task.indices);
  task.ids.wide ? use(static_cast<const int64_t*>(task.ids.data))
                : use(static_cast<const int32_t*>(task.ids.data));
}

// Returns the start of vector k of a group: contiguous from column `first`, except that the last
// one starts at column `last` (it may overlap its predecessor; both compute equal values).
template <int kVectors>
struct Columns {
  int64_t first, last;
  int64_t operator()(int k) const { return k == kVectors - 1 ? last : first + k * kWidth; }
};

template <DType kOut>
inline element_t<kOut>* out_row(const Aggregate& task, int64_t dst) {
  const int64_t row = task.out_ids != nullptr ? task.out_ids[dst] : dst;
  return static_cast<element_t<kOut>*>(task.out.data) + row * task.out.stride;
}

// Reads the sums that edges are added to. This function and finish_sums are out of line: they
// depend on the number of vectors only, and inlined they would dominate the code of every kernel
// below, and its compilation.
template <int kVectors>
[[gnu::noinline]] void start_sums(const Aggregate& task, int64_t dst, Vec* sum,
                                  Columns<kVectors> column) {
  for_computed(task.out.dtype, [&]<DType kOut>() {
    for (int k = 0; k < kVectors; ++k) sum[k] = load<kOut>(out_row<kOut>(task, dst) + column(k));
  });
}

// Scales sums over edges, adds a destination's own row, applies the gate, and writes the output:
// all that aggregate_columns does not do itself for most destinations.
template <int kVectors>
[[gnu::noinline]] void finish_sums(const Aggregate& task, int64_t dst, Vec* sum,
                                   Columns<kVectors> column) {
  const float scale = task.dst_scale != nullptr ? task.dst_scale[dst] : 1.0F;
  for (int k = 0; k < kVectors; ++k) sum[k] *= scale;
  if (dst < task.num_self) {
    const float self_scale = task.self_scale != nullptr ? task.self_scale[dst] : 1.0F;
    for_stored(task.self.dtype, [&]<DType kSelf>() {
      const StoredRow<kSelf> self(row_of<element_t<kSelf>>(task.self, task.self_ids[dst]));
      for (int k = 0; k < kVectors; ++k) sum[k] += self.load(column(k)) * self_scale;
    });
  }
  if (task.gate.data != nullptr) {
    for_computed(task.gate.dtype, [&]<DType kGate>() {
      const auto* gate = row_of<element_t<kGate>>(task.gate, dst);
      for (int k = 0; k < kVectors; ++k) {
        const Vec open = load<kGate>(gate + column(k));
        sum[k] = (Vec)((VecU32)sum[k] & (VecU32)(open > 0));
      }
    });
  }
  for_computed(task.out.dtype, [&]<DType kOut>() {
    for (int k = 0; k < kVectors; ++k) store<kOut>(out_row<kOut>(task, dst) + column(k), sum[k]);
  });
}

// The same for one column.
[[gnu::noinline]] void finish_one(const Aggregate& task, int64_t dst, int64_t j, float sum) {
  if (task.dst_scale != nullptr) sum *= task.dst_scale[dst];
  if (dst < task.num_self) {
    const float scale = task.self_scale != nullptr ? task.self_scale[dst] : 1.0F;
    for_stored(task.self.dtype, [&]<DType kSelf>() {
      const StoredRow<kSelf> self(row_of<element_t<kSelf>>(task.self, task.self_ids[dst]));
      sum += self.load_one(j) * scale;
    });
  }
  if (task.gate.data != nullptr) {
    for_computed(task.gate.dtype, [&]<DType kGate>() {
      if (!(load_one<kGate>(row_of<element_t<kGate>>(task.gate, dst) + j) > 0)) sum = 0.0F;
    });
  }
  for_computed(task.out.dtype,
               [&]<DType kOut>() { store_one<kOut>(out_row<kOut>(task, dst) + j, sum); });
}

// Computes kVectors vectors of one destination's output. The accumulators stay in registers over
// all edges.
template <DType kIn, int kVectors, bool kWeighted, typename EdgeRows>
inline void aggregate_columns(const Aggregate& task, EdgeRows rows, int64_t dst, int64_t end_edge,
                              Columns<kVectors> column) {
  using In = element_t<kIn>;
  constexpr int64_t kBytes = row_bytes(kIn, kVectors * kWidth);
  constexpr int64_t kDistance = 1 + kAheadBytes / kBytes;  // edges
  const int64_t first_of_row = first_byte<kIn>(column.first);
  Vec sum[kVectors] = {};
  if (task.out_ids != nullptr) {
    Vec whole[kVectors];  // a copy: variables whose address is taken do not stay in registers
    start_sums<kVectors>(task, dst, whole, column);
    for (int k = 0; k < kVectors; ++k) sum[k] = whole[k];
  }
  for (int64_t edge = task.indptr[dst]; edge < task.indptr[dst + 1]; ++edge) {
    if (edge + kDistance < end_edge) {
      const auto* later_row = row_of<In>(task.x, rows[edge + kDistance]);
      prefetch_bytes(reinterpret_cast<const char*>(later_row) + first_of_row, kBytes);
    }
    const StoredRow<kIn> row(row_of<In>(task.x, rows[edge]));
    for (int k = 0; k < kVectors; ++k) {
      Vec value = row.load(column(k));
      if constexpr (kWeighted) value *= task.weights[edge * task.weight_stride];
      sum[k] += value;
    }
  }
  if (task.out.dtype == DType::float32 && dst >= task.num_self && task.gate.data == nullptr) {
    const float scale = task.dst_scale != nullptr ? task.dst_scale[dst] : 1.0F;
    auto* out = out_row<DType::float32>(task, dst);
    for (int k = 0; k < kVectors; ++k) store<DType::float32>(out + column(k), sum[k] * scale);
    return;
  }
  Vec whole[kVectors];
  for (int k = 0; k < kVectors; ++k) whole[k] = sum[k];
  finish_sums<kVectors>(task, dst, whole, column);
}

// Computes fewer columns than a vector has, one at a time.
template <DType kIn, typename EdgeRows>
void aggregate_scalar(const Aggregate& task, EdgeRows rows, int64_t dst) {
  using In = element_t<kIn>;
  for (int64_t j = task.first_column; j < task.x.length; ++j) {
    float sum = 0.0F;
    for (int64_t edge = task.indptr[dst]; edge < task.indptr[dst + 1]; ++edge) {
      const float value = StoredRow<kIn>(row_of<In>(task.x, rows[edge])).load_one(j);
      sum += task.weights != nullptr ? task.weights[edge * task.weight_stride] * value : value;
    }
    finish_one(task, dst, j, sum);
  }
}

// Prefetches the own rows of destinations once each, at the distance of the edges' rows.
class OwnRows {
 public:
  OwnRows(const Aggregate& task, int64_t begin, int64_t end)
      : task_(task), next_(begin), end_(end < task.num_self ? end : task.num_self) {
    row_bytes_ = row_bytes(task.self.dtype, task.self.length);
    stride_bytes_ = task.self.stride * element_bytes(task.self.dtype);
    distance_ = 1 + kAheadBytes / (row_bytes_ + 1);
  }

  // Call before the edges of a destination are read; its own row is read after them.
  void before(int64_t dst) {
    const int64_t last_row = task_.indptr[dst] + dst + distance_;
    for (; next_ < end_ && task_.indptr[next_] + next_ <= last_row; ++next_) {
      const int64_t row = task_.self_ids[next_];
      prefetch_bytes(static_cast<const char*>(task_.self.data) + row * stride_bytes_, row_bytes_);
    }
  }

 private:
  const Aggregate& task_;
  int64_t next_, end_, row_bytes_, stride_bytes_, distance_;
};

// Splits a row into groups of up to eight vectors.
template <DType kIn, bool kWeighted, typename EdgeRows>
void aggregate_rows(const Aggregate& task, EdgeRows rows, int64_t begin, int64_t end) {
  const int64_t length = task.x.length;
  const int64_t end_edge = task.indptr[end];
  OwnRows own_rows(task, begin, end);
  for (int64_t dst = begin; dst < end; ++dst) {
    own_rows.before(dst);
    int64_t first = task.first_column;
    if (length - first < kWidth) {
      aggregate_scalar<kIn>(task, rows, dst);
      continue;
    }
    const auto group = [&]<int kVectors>() {
      const int64_t last = first + (kVectors - 1) * kWidth;
      const Columns<kVectors> column = {first, last + kWidth <= length ? last : length - kWidth};
      aggregate_columns<kIn, kVectors, kWeighted>(task, rows, dst, end_edge, column);
      first += kVectors * kWidth;
    };
    while (first + 7 * kWidth < length) group.template operator()<8>();
    switch ((length - first + kWidth - 1) / kWidth) {
      case 1: group.template operator()<1>(); break;
      case 2: group.template operator()<2>(); break;
      case 3: group.template operator()<3>(); break;
      case 4: group.template operator()<4>(); break;
      case 5: group.template operator()<5>(); break;
      case 6: group.template operator()<6>(); break;
      case 7: group.template operator()<7>(); break;
      default: break;  // no columns remain
    }
  }
}

void aggregate(const Aggregate& task, int64_t begin, int64_t end) {
  for_stored(task.x.dtype, [&]<DType kIn>() {
    for_edge_rows(task, [&](auto rows) {
      task.weights != nullptr ? aggregate_rows<kIn, true>(task, rows, begin, end)
                              : aggregate_rows<kIn, false>(task, rows, begin, end);
    });
  });
}

}  // namespace

namespace GNNSCALE_ISA {
extern const RowKernels row_kernels;
const RowKernels row_kernels{
    GNNSCALE_STRING(GNNSCALE_ISA), gather, gather_columns, gather_at, copy_at, aggregate, dot};
}  // namespace GNNSCALE_ISA

}  // namespace gnnscale
