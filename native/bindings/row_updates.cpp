#include "gnnscale/row_updates.hpp"

#include "aggregate_task.hpp"
#include "argument_checks.hpp"

namespace gnnscale {
namespace {

// Returns the elements of a writable contiguous float32 matrix [num_rows, width].
float* table(const py::object& value, const char* name, int64_t num_rows, int64_t width) {
  const MutableMatrix view = mutable_matrix(value, name);
  if (view.rows.dtype != DType::float32) refuse_type(name, "another type", "float32");
  check_size(name, view.num_rows, num_rows);
  check_width(name, view.rows.length, width);
  if (view.rows.stride != width && view.num_rows > 1) {
    refuse_value(name, "rows with gaps", "contiguous arrays");
  }
  return static_cast<float*>(view.rows.data);
}

// Arguments that all updates share, by name.
struct UpdateArguments {
  const py::object &x, &row_ids, &gradients, &indptr, &indices, &weights, &self_rows, &self_scale,
      &num_self, &rate, &epsilon, &num_threads;
};

// Views of an update's arguments.
struct UpdateViews {
  explicit UpdateViews(const UpdateArguments& arguments)
      : x(mutable_matrix(arguments.x, "x")),
        row_ids(ids(arguments.row_ids, "ids")),
        sums("gradients", {arguments.gradients, arguments.indptr, arguments.indices, none, no,
                           arguments.weights, none, arguments.self_rows, none, arguments.self_scale,
                           arguments.num_self, arguments.num_threads}) {
    const Rows& of_gradients = sums.x.rows;
    if (!has_scale(of_gradients.dtype)) check_width("gradients", of_gradients.length, width());
    sums.take_width(width(), "x");
    check_size("ids", row_ids.size, sums.num_dst());
    task.x = table(arguments.x, "x", x.num_rows, width());
    task.ids = row_ids.ids;
    task.width = width();
    task.gradients = sums.task;
    task.rate = static_cast<float>(real(arguments.rate, "rate", 0, 1e30));
    task.epsilon = static_cast<float>(real(arguments.epsilon, "epsilon", 1e-30, 1));
  }

  int64_t width() const { return x.rows.length; }

  // Throws invalid_argument if an offset or an id is out of range.
  void check() const {
    sums.check();
    row_ids.check(row_ids.size, x.num_rows, "ids", sums.threads);
  }

  const py::object none = py::none(), no = py::bool_(false);
  MutableMatrix x;
  Ids row_ids;
  AggregateTask sums;
  RowUpdates task{};
};

void adam(const py::object& x, const py::object& means, const py::object& squares,
          const py::object& row_ids, const py::object& gradients, const py::object& indptr,
          const py::object& indices, const py::object& rate, const py::object& beta1,
          const py::object& beta2, const py::object& epsilon, const py::object& num_threads,
          const py::object& weights, const py::object& self_rows, const py::object& self_scale,
          const py::object& num_self) {
  const UpdateViews views({x, row_ids, gradients, indptr, indices, weights, self_rows, self_scale,
                           num_self, rate, epsilon, num_threads});
  AdamRows task{views.task};
  task.means = table(means, "means", views.x.num_rows, views.width());
  task.squares = table(squares, "squares", views.x.num_rows, views.width());
  task.beta1 = static_cast<float>(real(beta1, "beta1", 0, 1));
  task.beta2 = static_cast<float>(real(beta2, "beta2", 0, 1));
  NoGil released;
  views.check();
  adam_rows(task, views.sums.threads);
}

void adagrad(const py::object& x, const py::object& sums, const py::object& row_ids,
             const py::object& gradients, const py::object& indptr, const py::object& indices,
             const py::object& rate, const py::object& epsilon, const py::object& num_threads,
             const py::object& weights, const py::object& self_rows, const py::object& self_scale,
             const py::object& num_self) {
  const UpdateViews views({x, row_ids, gradients, indptr, indices, weights, self_rows, self_scale,
                           num_self, rate, epsilon, num_threads});
  AdagradRows task{views.task};
  task.sums = mutable_vector<float>(sums, "sums", views.x.num_rows).data;
  NoGil released;
  views.check();
  adagrad_rows(task, views.sums.threads);
}

}  // namespace

void bind_row_updates(py::module_& m) {
  m.def("adam_rows", &adam, "x"_a, "means"_a, "squares"_a, "ids"_a, "gradients"_a, "indptr"_a,
        "indices"_a, py::kw_only(), "rate"_a, "beta1"_a, "beta2"_a, "epsilon"_a, "num_threads"_a,
        "weights"_a = py::none(), "self_rows"_a = py::none(), "self_scale"_a = py::none(),
        "num_self"_a = 0);
  m.def("adagrad_rows", &adagrad, "x"_a, "sums"_a, "ids"_a, "gradients"_a, "indptr"_a, "indices"_a,
        py::kw_only(), "rate"_a, "epsilon"_a, "num_threads"_a, "weights"_a = py::none(),
        "self_rows"_a = py::none(), "self_scale"_a = py::none(), "num_self"_a = 0);
}

}  // namespace gnnscale
