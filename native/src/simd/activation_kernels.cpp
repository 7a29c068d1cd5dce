// ReLU with dropout and its gradient. Compiled once per instruction set.
#include "activation_kernels.hpp"

#include "gnnscale/random.hpp"
#include "vector.hpp"

namespace gnnscale {
namespace {

// Random numbers are drawn in batches that span several rows, so that vectors are full even for
// short rows. The vector width is fixed, so all instruction sets get equal results.
constexpr int kLanes = 8;
typedef uint64_t Lanes64 __attribute__((vector_size(kLanes * 8)));
constexpr int64_t kDraws = 512;
constexpr int64_t kColumns = 4;  // columns that one draw decides

struct alignas(64) Draws {
  uint64_t at[kDraws + kLanes];  // the tail beyond the last valid draw is never read
};

// Applies gnnscale::mix to the first `count`, in place.
inline void mix_all(Draws& draws, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    Lanes64 z;
    __builtin_memcpy(&z, draws.at + i, sizeof z);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z = z ^ (z >> 31);
    __builtin_memcpy(draws.at + i, &z, sizeof z);
  }
}

// Applies gnnscale::combine to the key and each vertex.
template <typename Vertex>
inline void row_keys(uint64_t key, const Vertex* vertices, int64_t num_rows, Draws& keys) {
  for (int64_t i = 0; i < num_rows; ++i) {
    keys.at[i] = key + (static_cast<uint64_t>(vertices[i]) + 1) * kGolden;
  }
  mix_all(keys, num_rows);
}

// Writes the draw counters of each row, to be mixed. The padding after a row's draws is overwritten
// by the next row.
template <int kPerRow>
inline void row_counters(const Draws& keys, int64_t num_rows, int64_t first, int64_t per_row,
                         Draws& out) {
  const Lanes64 lane = {0, 1, 2, 3, 4, 5, 6, 7};
  const Lanes64 counters = (lane + (static_cast<uint64_t>(first) + 1)) * kGolden;
  for (int64_t row = 0; row < num_rows; ++row) {
    if constexpr (kPerRow != 0) {
      for (int i = 0; i < kPerRow; ++i) out.at[row * kPerRow + i] = keys.at[row] + counters[i];
    } else {
      Lanes64 z = keys.at[row] + counters;
      for (int64_t i = 0; i < per_row; i += kLanes, z += kLanes * kGolden) {
        __builtin_memcpy(out.at + row * per_row + i, &z, sizeof z);
      }
    }
  }
}

// Removes the padding of rows whose last draw decides fewer than four columns, in place.
template <int kPerRow>
inline void pack_bits(Draws& bits, int64_t num_rows, int64_t per_row, int64_t width) {
  if constexpr (kPerRow != 0) per_row = kPerRow;
  auto* to = reinterpret_cast<char*>(bits.at);
  const auto* from = bits.at;
  for (int64_t row = 0; row < num_rows; ++row, to += 2 * width, from += per_row) {
    for (int64_t i = 0; i < per_row; ++i) {
      const uint64_t draw = from[i];
      __builtin_memcpy(to + 8 * i, &draw, 8);
    }
  }
}

// Writes the random bits of `width` columns of each row from draw `first` of its stream: 16 bits an
// element, rows without padding. In little-endian memory the bits of a draw are in column order.
template <int kPerRow>
inline void draw_bits_as(const Draws& keys, int64_t num_rows, int64_t first, int64_t width,
                         Draws& bits) {
  const int64_t per_row = (width + kColumns - 1) / kColumns;
  row_counters<kPerRow>(keys, num_rows, first, per_row, bits);
  mix_all(bits, num_rows * per_row);
  if (width != per_row * kColumns) pack_bits<kPerRow>(bits, num_rows, per_row, width);
}

inline void draw_bits(const Draws& keys, int64_t num_rows, int64_t first, int64_t width,
                      Draws& bits) {
  switch ((width + kColumns - 1) / kColumns) {
    case 1: return draw_bits_as<1>(keys, num_rows, first, width, bits);
    case 2: return draw_bits_as<2>(keys, num_rows, first, width, bits);
    case 3: return draw_bits_as<3>(keys, num_rows, first, width, bits);
    case 4: return draw_bits_as<4>(keys, num_rows, first, width, bits);
    default: return draw_bits_as<0>(keys, num_rows, first, width, bits);
  }
}

template <DType kType>
inline void relu_drop(element_t<kType>* x, const Draws& draws, int64_t size, uint32_t drop,
                      float scale) {
  const auto* bits = reinterpret_cast<const char*>(draws.at);
  int64_t i = 0;
  for (; i + kWidth <= size; i += kWidth) {
    VecU16 random;
    __builtin_memcpy(&random, bits + 2 * i, sizeof random);
    const Vec value = load<kType>(x + i);
    const VecU32 keep_mask = (VecU32)(__builtin_convertvector(random, VecU32) >= drop);
    const VecU32 pass_mask = ~(VecU32)(value <= 0);  // NaN passes
    store<kType>(x + i, (Vec)((VecU32)(value * scale) & keep_mask & pass_mask));
  }
  for (; i < size; ++i) {
    uint16_t random;
    __builtin_memcpy(&random, bits + 2 * i, sizeof random);
    const float value = load_one<kType>(x + i);
    store_one<kType>(x + i, random < drop || value <= 0 ? 0.0F : value * scale);
  }
}

template <DType kType>
void relu_dropout_typed(const ReluDropout& task, int64_t begin, int64_t end) {
  const int64_t length = task.x.length;
  const int64_t per_row = (length + kColumns - 1) / kColumns;
  const int64_t num_rows = per_row < kDraws ? kDraws / per_row : 1;
  auto* x = static_cast<element_t<kType>*>(task.x.data);
  Draws keys{}, bits{};
  for (int64_t row = begin; row < end; row += num_rows) {
    const int64_t count = row + num_rows < end ? num_rows : end - row;
    task.vertices.wide
        ? row_keys(task.key, static_cast<const int64_t*>(task.vertices.data) + row, count, keys)
        : row_keys(task.key, static_cast<const int32_t*>(task.vertices.data) + row, count, keys);
    // Loops more than once only for a single row that exceeds the batch of draws.
    for (int64_t column = 0; column < length; column += kDraws * kColumns) {
      const int64_t remaining = length - column;
      const int64_t width = remaining < kDraws * kColumns ? remaining : kDraws * kColumns;
      draw_bits(keys, count, column / kColumns, width, bits);
      relu_drop<kType>(x + row * length + column, bits, count * width, task.drop, task.scale);
    }
  }
}

template <DType kType>
void relu_typed(element_t<kType>* x, int64_t begin, int64_t end) {
  int64_t i = begin;
  for (; i + kWidth <= end; i += kWidth) {
    const Vec value = load<kType>(x + i);
    store<kType>(x + i, (Vec)((VecU32)value & ~(VecU32)(value <= 0)));  // NaN passes
  }
  for (; i < end; ++i) {
    const float value = load_one<kType>(x + i);
    store_one<kType>(x + i, value <= 0 ? 0.0F : value);
  }
}

void relu_dropout(const ReluDropout& task, int64_t begin, int64_t end) {
  const int64_t length = task.x.length;
  if (length == 0) return;
  for_computed(task.x.dtype, [&]<DType kType>() {
    auto* values = static_cast<element_t<kType>*>(task.x.data);
    task.drop != 0 ? relu_dropout_typed<kType>(task, begin, end)
                   : relu_typed<kType>(values, begin * length, end * length);
  });
}

void relu_dropout_backward(const void* y, const void* grad, void* out, DType dtype, int64_t begin,
                           int64_t end, float scale) {
  for_computed(dtype, [&]<DType kType>() {
    const auto* from = static_cast<const element_t<kType>*>(y);
    const auto* g = static_cast<const element_t<kType>*>(grad);
    auto* to = static_cast<element_t<kType>*>(out);
    int64_t i = begin;
    for (; i + kWidth <= end; i += kWidth) {
      const VecU32 pass_mask = (VecU32)(load<kType>(from + i) > 0);
      store<kType>(to + i, (Vec)((VecU32)(load<kType>(g + i) * scale) & pass_mask));
    }
    for (; i < end; ++i) {
      store_one<kType>(to + i,
                       load_one<kType>(from + i) > 0 ? load_one<kType>(g + i) * scale : 0.0F);
    }
  });
}

}  // namespace

namespace GNNSCALE_ISA {
extern const ActivationKernels activation_kernels;
const ActivationKernels activation_kernels{relu_dropout, relu_dropout_backward};
}  // namespace GNNSCALE_ISA

}  // namespace gnnscale
