#include "argument_checks.hpp"
#include "gnnscale/maxima.hpp"
#include "gnnscale/pair_scores.hpp"

namespace gnnscale {
namespace {

// Returns the input rows of a max aggregation.
Matrix computed_matrix(const py::object& value, const char* name) {
  const Matrix rows = matrix(value, name);
  if (rows.rows.dtype != DType::float32 && rows.rows.dtype != DType::bfloat16) {
    refuse_type(name, "another type", "float32 or bfloat16");
  }
  return rows;
}

void check_type(const char* name, DType actual, DType expected, const char* allowed) {
  if (actual != expected) refuse_type(name, "another type", allowed);
}

py::object maxima(const py::object& x, const py::object& indptr, const py::object& indices,
                  const py::object& out, const py::object& counts, const py::object& num_threads) {
  const Matrix from = computed_matrix(x, "x");
  const auto offsets = vector<int64_t>(indptr, "indptr");
  const auto sources = vector<int32_t>(indices, "indices");
  const int64_t num_dst = num_lists(offsets, "destinations");
  const MutableMatrix to = mutable_matrix(out, "out");
  check_type("out", to.rows.dtype, from.rows.dtype, "the type of x");
  check_size("out", to.num_rows, num_dst);
  check_width("out", to.rows.length, from.rows.length);
  AggregateMax task{from.rows, offsets.data, sources.data, num_dst, to.rows};
  if (!counts.is_none()) {
    const MutableMatrix shared = mutable_matrix(counts, "counts");
    check_type("counts", shared.rows.dtype, DType::float32, "float32");
    check_size("counts", shared.num_rows, num_dst);
    check_width("counts", shared.rows.length, from.rows.length);
    task.counts = shared.rows;
  }
  const int threads = thread_count(num_threads);
  {
    NoGil released;
    check_offsets(offsets.data, num_dst, sources.size, "indptr", threads);
    check_below(sources.data, sources.size, from.num_rows, "indices", threads);
    aggregate_max(task, threads);
  }
  return out;
}

py::object maxima_backward(const py::object& x, const py::object& largest, const py::object& shares,
                           const py::object& indptr, const py::object& indices,
                           const py::object& out, const py::object& num_threads) {
  const Matrix from = computed_matrix(x, "x"), largest_rows = matrix(largest, "largest");
  check_type("largest", largest_rows.rows.dtype, from.rows.dtype, "the type of x");
  check_width("largest", largest_rows.rows.length, from.rows.length);
  const Matrix parts = matrix(shares, "shares");
  check_type("shares", parts.rows.dtype, DType::float32, "float32");
  check_size("shares", parts.num_rows, largest_rows.num_rows);
  check_width("shares", parts.rows.length, from.rows.length);
  const auto offsets = vector<int64_t>(indptr, "indptr", from.num_rows + 1);
  const auto destinations = vector<int32_t>(indices, "indices");
  const MutableMatrix to = mutable_matrix(out, "out");
  check_size("out", to.num_rows, from.num_rows);
  check_width("out", to.rows.length, from.rows.length);
  const int threads = thread_count(num_threads);
  {
    NoGil released;
    check_offsets(offsets.data, from.num_rows, destinations.size, "indptr", threads);
    check_below(destinations.data, destinations.size, largest_rows.num_rows, "indices", threads);
    aggregate_max_backward({from.rows, largest_rows.rows, parts.rows, offsets.data,
                            destinations.data, from.num_rows, to.rows},
                           threads);
  }
  return out;
}

// Views of the shared arguments of pair_scores and its backward function.
struct PairTask {
  PairTask(const py::object& own, const py::object& z, const py::object& attention,
           const py::object& indptr, const py::object& indices, const py::object& slope,
           const py::object& num_threads)
      : indices(vector<int32_t>(indices, "indices")), threads(thread_count(num_threads)) {
    int64_t length = kAnySize;
    const auto weights = float_table(attention, "attention", kAnySize, &length);
    task.num_heads = weights.size;
    task.width = length;
    task.attention = weights.data;
    length *= weights.size;
    const auto sources = float_table(z, "z", kAnySize, &length);
    const auto targets = float_table(own, "own", kAnySize, &length);
    task.z = sources.data;
    task.num_src = sources.size;
    task.own = targets.data;
    task.num_dst = targets.size;
    task.indptr = vector<int64_t>(indptr, "indptr", task.num_dst + 1).data;
    task.indices = this->indices.data;
    task.slope = static_cast<float>(real(slope, "slope", -1, 1));
  }

  // Throws invalid_argument if an offset or an id is out of range.
  void check() const {
    check_offsets(task.indptr, task.num_dst, indices.size, "indptr", threads);
    check_below(indices.data, indices.size, task.num_src, "indices", threads);
  }

  Vector<const int32_t> indices;
  int threads;
  PairScores task{};
};

py::object scores(const py::object& own, const py::object& z, const py::object& attention,
                  const py::object& indptr, const py::object& indices, const py::object& out,
                  const py::object& slope, const py::object& num_threads) {
  const PairTask views(own, z, attention, indptr, indices, slope, num_threads);
  const MutableMatrix to = mutable_matrix(out, "out");
  check_type("out", to.rows.dtype, DType::float32, "float32");
  check_size("out", to.num_rows, views.indices.size);
  check_width("out", to.rows.length, views.task.num_heads);
  {
    NoGil released;
    views.check();
    pair_scores(views.task, to.rows, views.threads);
  }
  return out;
}

py::tuple scores_backward(const py::object& own, const py::object& z, const py::object& attention,
                          const py::object& indptr, const py::object& indices,
                          const py::object& grad, const py::object& slope,
                          const py::object& num_threads) {
  const PairTask views(own, z, attention, indptr, indices, slope, num_threads);
  int64_t heads = views.task.num_heads;
  const auto gradient = float_table(grad, "grad", views.indices.size, &heads);
  const NewTensor of_own = new_tensor_like(own, "own"), of_z = new_tensor_like(z, "z");
  const NewTensor of_attention = new_tensor_like(attention, "attention");
  {
    NoGil released;
    views.check();
    pair_scores_backward(views.task, gradient.data,
                         {static_cast<float*>(of_own.data), static_cast<float*>(of_z.data),
                          static_cast<float*>(of_attention.data)},
                         views.threads);
  }
  return py::make_tuple(of_own.tensor, of_z.tensor, of_attention.tensor);
}

}  // namespace

void bind_neighbors(py::module_& m) {
  m.def("aggregate_max", &maxima, "x"_a, "indptr"_a, "indices"_a, py::kw_only(), "out"_a,
        "counts"_a, "num_threads"_a);
  m.def("aggregate_max_backward", &maxima_backward, "x"_a, "largest"_a, "shares"_a, "indptr"_a,
        "indices"_a, py::kw_only(), "out"_a, "num_threads"_a);
  m.def("pair_scores", &scores, "own"_a, "z"_a, "attention"_a, "indptr"_a, "indices"_a,
        py::kw_only(), "out"_a, "slope"_a, "num_threads"_a);
  m.def("pair_scores_backward", naming<1>("z", &scores_backward), "own"_a, "z"_a, "attention"_a,
        "indptr"_a, "indices"_a, "grad"_a, py::kw_only(), "slope"_a, "num_threads"_a);
}

}  // namespace gnnscale
