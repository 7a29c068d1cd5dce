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
void adam_by_definition(Tables& t) {
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < t.width; ++j) {
      const int64_t index = t.ids[i] * t.width + j;
      const float g = t.gradients[i * t.width + j];
      t.means[index] += (g - t.means[index]) * (1.0F - 0.9F);
      t.squares[index] += (g * g - t.squares[index]) * (1.0F - 0.999F);
      t.x[index] -= 0.03F * t.means[index] / (std::sqrt(t.squares[index]) + 1e-8F);
    }
  }
}

void test_adam() {
  for (const Kernels& kernels : available_kernels()) {
    for (const int64_t width : {1, 7, 16, 37, 128}) {
      Tables tables(width), expected(width);
      AdamRows task{tables.updates()};
      task.means = tables.means.data();
      task.squares = tables.squares.data();
      task.beta1 = 0.9F;
      task.beta2 = 0.999F;
      kernels.update->adam(task, tables.gradients.data(), 0, 2);
      kernels.update->adam(task, tables.gradients.data() + 2 * width, 2, 3);
      adam_by_definition(expected);
      CHECK(tables.x == expected.x);
      CHECK(tables.means == expected.means);
      CHECK(tables.squares == expected.squares);
    }
  }
}

void test_adagrad() {
  const std::vector<Kernels> all_kernels = available_kernels();
  for (const int64_t width : {1, 7, 16, 37, 128}) {
    std::vector<Tables> tables(all_kernels.size(), Tables(width));
    for (size_t level = 0; level < all_kernels.size(); ++level) {
      AdagradRows task{tables[level].updates()};
      task.sums = tables[level].sums.data();
      all_kernels[level].update->adagrad(task, tables[level].gradients.data(), 0, 3);
      CHECK(tables[level].sums == tables[0].sums);
      CHECK(tables[level].x == tables[0].x);
    }
    const Tables initial(width);
    CHECK(tables[0].sums[1] == 0.2F && tables[0].sums[2] == 0.3F);
    for (int64_t i = 0; i < 3; ++i) {
      double square = 0;
      for (int64_t j = 0; j < width; ++j) square += std::pow(initial.gradients[i * width + j], 2.0);
      const double sum = initial.sums[initial.ids[i]] + square / static_cast<double>(width);
      CHECK(std::abs(tables[0].sums[initial.ids[i]] - sum) < 1e-6);
      for (int64_t j = 0; j < width; ++j) {
        const int64_t index = initial.ids[i] * width + j;
        const double step = 0.03 / std::sqrt(sum) * initial.gradients[i * width + j];
        CHECK(std::abs(tables[0].x[index] - (initial.x[index] - step)) < 1e-5);
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
