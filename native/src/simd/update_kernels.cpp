// Updates of rows of a table. Compiled once per instruction set; all of them give identical bits.
#include "update_kernels.hpp"

#include "partial_sums.hpp"
#include "prefetch_rows.hpp"

namespace gnnscale {
namespace {

// Prefetch distance in bytes of the tables.
constexpr int64_t kUpdatedBytes = 12288;

// Calls update(place, gradient) for rows [begin, end), with the index of each row's first element,
// and prefetch(place) some rows earlier, including rows of the next call.
template <typename Prefetch, typename Update>
inline void for_rows(const RowUpdates& task, int64_t row_bytes, const float* gradients,
                     int64_t begin, int64_t end, Prefetch&& prefetch, Update&& update) {
  const int64_t distance = 1 + kUpdatedBytes / (row_bytes + 1);
  for (int64_t i = begin; i < end; ++i, gradients += task.width) {
    if (i + distance < task.gradients.num_dst)
      prefetch(static_cast<int64_t>(task.ids[i + distance]));
    update(static_cast<int64_t>(task.ids[i]), gradients);
  }
}

inline void adam_row(float* __restrict x, float* __restrict mean, float* __restrict square,
                     const float* __restrict gradient, const AdamRows& task) {
  const float rate = task.rate, epsilon = task.epsilon;
  const float new1 = 1.0F - task.beta1, new2 = 1.0F - task.beta2;
  for (int64_t column = 0; column < task.width; ++column) {
    const float g = gradient[column];
    const float m = mean[column] + (g - mean[column]) * new1;
    const float v = square[column] + (g * g - square[column]) * new2;
    mean[column] = m;
    square[column] = v;
    x[column] -= rate * m / (__builtin_sqrtf(v) + epsilon);
  }
}

void adam(const AdamRows& task, const float* gradients, int64_t begin, int64_t end) {
  const int64_t width = task.width, row_bytes = 4 * width;
  for_rows(
      task, 3 * row_bytes, gradients, begin, end,
      [&](int64_t row) {
        for (const float* table : {task.x, task.means, task.squares}) {
          prefetch_bytes(table + row * width, row_bytes);
        }
      },
      [&](int64_t row, const float* gradient) {
        const int64_t offset = row * width;
        adam_row(task.x + offset, task.means + offset, task.squares + offset, gradient, task);
      });
}

inline void subtract(float* __restrict x, const float* __restrict gradient, float rate,
                     int64_t width) {
  for (int64_t column = 0; column < width; ++column) x[column] -= rate * gradient[column];
}

void adagrad(const AdagradRows& task, const float* gradients, int64_t begin, int64_t end) {
  const int64_t width = task.width, row_bytes = 4 * width;
  const float share = 1.0F / static_cast<float>(width);
  for_rows(
      task, row_bytes, gradients, begin, end,
      [&](int64_t row) {
        prefetch_bytes(task.x + row * width, row_bytes);
        __builtin_prefetch(task.sums + row, 0, 2);
      },
      [&](int64_t row, const float* gradient) {
        const float sum = task.sums[row] + dot(gradient, gradient, width) * share;
        task.sums[row] = sum;
        const float rate = task.rate / (__builtin_sqrtf(sum) + task.epsilon);
        subtract(task.x + row * width, gradient, rate, width);
      });
}

}  // namespace

namespace GNNSCALE_ISA {
extern const UpdateKernels update_kernels;
const UpdateKernels update_kernels{adam, adagrad};
}  // namespace GNNSCALE_ISA

}  // namespace gnnscale
