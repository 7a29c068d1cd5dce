#include "gnnscale/row_updates.hpp"

#include <cmath>
#include <vector>

#include "check.hpp"
#include "kernels.hpp"

using namespace gnnscale;

namespace {

// A table of five rows with its optimizer state, and gradients of three of its rows.
struct Tables {
  explicit Tables(int64_t width) : width(width), x(5 * width), gradients(3 * width) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = 0.37F * static_cast<float>(i % 23) - 3.1F;
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = 0.013F * static_cast<float>(i % 29) - 0.17F;
    }
    means = squares = x;
    for (float& square : squares) square *= square;
  }

  RowUpdates updates() {
    RowUpdates task{x.data(), {ids.data(), false}, width, {}, 0.03F, 1e-8F};
    task.gradients.num_dst = 3;
    return task;
  }

  int64_t width;
  std::vector<float> x, gradients, means, squares, sums{0.1F, 0.2F, 0.3F, 0.4F, 0.5F};
  std::vector<int32_t> ids{3, 0, 4};
};

// Adam by plain loops, in the documented order of operations.
void adam_slowly(Tables& t) {
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < t.width; ++j) {
      const int64_t place = t.ids[i] * t.width + j;
      const float g = t.gradients[i * t.width + j];
      t.means[place] += (g - t.means[place]) * (1.0F - 0.9F);
      t.squares[place] += (g * g - t.squares[place]) * (1.0F - 0.999F);
      t.x[place] -= 0.03F * t.means[place] / (std::sqrt(t.squares[place]) + 1e-8F);
    }
  }
}

void test_adam() {
  for (const Kernels& kernels : available_kernels()) {
    for (const int64_t width : {1, 7, 16, 37, 128}) {
      Tables found(width), expected(width);
      AdamRows task{found.updates()};
      task.means = found.means.data();
      task.squares = found.squares.data();
      task.beta1 = 0.9F;
      task.beta2 = 0.999F;
      kernels.update->adam(task, found.gradients.data(), 0, 2);
      kernels.update->adam(task, found.gradients.data() + 2 * width, 2, 3);
      adam_slowly(expected);
      CHECK(found.x == expected.x);
      CHECK(found.means == expected.means);
      CHECK(found.squares == expected.squares);
    }
  }
}

void test_adagrad() {
  const std::vector<Kernels> every = available_kernels();
  for (const int64_t width : {1, 7, 16, 37, 128}) {
    std::vector<Tables> found(every.size(), Tables(width));
    for (size_t level = 0; level < every.size(); ++level) {
      AdagradRows task{found[level].updates()};
      task.sums = found[level].sums.data();
      every[level].update->adagrad(task, found[level].gradients.data(), 0, 3);
      CHECK(found[level].sums == found[0].sums);
      CHECK(found[level].x == found[0].x);
    }
    const Tables before(width);
    CHECK(found[0].sums[1] == 0.2F && found[0].sums[2] == 0.3F);
    for (int64_t i = 0; i < 3; ++i) {
      double square = 0;
      for (int64_t j = 0; j < width; ++j) square += std::pow(before.gradients[i * width + j], 2.0);
      const double sum = before.sums[before.ids[i]] + square / static_cast<double>(width);
      CHECK(std::abs(found[0].sums[before.ids[i]] - sum) < 1e-6);
      for (int64_t j = 0; j < width; ++j) {
        const int64_t place = before.ids[i] * width + j;
        const double step = 0.03 / std::sqrt(sum) * before.gradients[i * width + j];
        CHECK(std::abs(found[0].x[place] - (before.x[place] - step)) < 1e-5);
      }
    }
  }
}

}  // namespace

int main() {
  test_adam();
  test_adagrad();
  return check_result();
}
