#include "gnnscale/row_updates.hpp"

#include <algorithm>
#include <cmath>

#include "gnnscale/parallel.hpp"

namespace gnnscale {
namespace {

// Rows ahead that are asked for: each thread waits for memory otherwise.
constexpr int64_t kAhead = 4;
constexpr int64_t kLineFloats = 16;

void ask_for(const float* row, int64_t width) {
  for (int64_t column = 0; column < width; column += kLineFloats) {
    __builtin_prefetch(row + column, 1);
  }
}

void update_row(float* __restrict x, float* __restrict mean, float* __restrict square,
                const float* __restrict gradient, const AdamRows& task) {
  const float new1 = 1.0F - task.beta1, new2 = 1.0F - task.beta2;
  for (int64_t column = 0; column < task.width; ++column) {
    const float g = gradient[column];
    const float m = mean[column] + (g - mean[column]) * new1;
    const float v = square[column] + (g * g - square[column]) * new2;
    mean[column] = m;
    square[column] = v;
    x[column] -= task.rate * m / (std::sqrt(v) + task.epsilon);
  }
}

}  // namespace

void adam_rows(const AdamRows& task, int num_threads) {
  const int64_t grain = std::max<int64_t>(16, 16384 / (task.width + 1));
  parallel_for(task.num_rows, grain, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) {
        const int64_t next = task.ids[i + kAhead] * task.width;
        for (float* table : {task.x, task.means, task.squares}) ask_for(table + next, task.width);
      }
      const int64_t place = task.ids[i] * task.width;
      update_row(task.x + place, task.means + place, task.squares + place,
                 task.gradients + i * task.width, task);
    }
  });
}

}  // namespace gnnscale
