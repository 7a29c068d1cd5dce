#include "gnnscale/row_updates.hpp"

#include "border.hpp"

namespace gnnscale {
namespace {

// The elements of a contiguous float32 matrix that is written to, [num_rows, width].
float* table(const py::object& value, const char* name, int64_t num_rows, int64_t width) {
  const MutableMatrix found = mutable_matrix(value, name);
  if (found.rows.dtype != DType::float32) refuse_type(name, "another type", "float32");
  check_size(name, found.num_rows, num_rows);
  check_width(name, found.rows.length, width);
  if (found.rows.stride != width && found.num_rows > 1) {
    refuse_value(name, "rows with gaps", "contiguous arrays");
  }
  return static_cast<float*>(found.rows.data);
}

void update(const py::object& x, const py::object& means, const py::object& squares,
            const py::object& row_ids, const py::object& gradients, const py::object& rate,
            const py::object& beta1, const py::object& beta2, const py::object& epsilon,
            const py::object& num_threads) {
  const MutableMatrix rows = mutable_matrix(x, "x");
  const int64_t width = rows.rows.length, count = rows.num_rows;
  AdamRows task{};
  task.x = table(x, "x", count, width);
  task.means = table(means, "means", count, width);
  task.squares = table(squares, "squares", count, width);
  const Ids found = ids(row_ids, "ids");
  int64_t columns = width;
  task.gradients = float_table(gradients, "gradients", found.size, &columns).data;
  task.ids = found.ids;
  task.num_rows = found.size;
  task.width = width;
  task.rate = static_cast<float>(real(rate, "rate", 0, 1e30));
  task.beta1 = static_cast<float>(real(beta1, "beta1", 0, 1));
  task.beta2 = static_cast<float>(real(beta2, "beta2", 0, 1));
  task.epsilon = static_cast<float>(real(epsilon, "epsilon", 1e-30, 1));
  const int threads = thread_count(num_threads);
  NoGil released;
  found.check(found.size, count, "ids", threads);
  adam_rows(task, threads);
}

}  // namespace

void bind_row_updates(py::module_& m) {
  m.def("adam_rows", &update, "x"_a, "means"_a, "squares"_a, "ids"_a, "gradients"_a, py::kw_only(),
        "rate"_a, "beta1"_a, "beta2"_a, "epsilon"_a, "num_threads"_a);
}

}  // namespace gnnscale
