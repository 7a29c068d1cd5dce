#include "gnnscale/rows.hpp"

#include "aggregate_task.hpp"
#include "argument_checks.hpp"
#include "gnnscale/read_ahead.hpp"

namespace gnnscale {
namespace {

py::object gathered(const py::object& x, const py::object& row_ids, const py::object& out,
                    const py::object& num_threads) {
  const Matrix from = stored_matrix(x, "x");
  const Ids rows = ids(row_ids, "ids");
  const MutableMatrix to = mutable_matrix(out, "out");
  check_size("out", to.num_rows, rows.size);
  const Rows source = decoded(from, to.rows.length, "out");
  const int threads = thread_count(num_threads);
  {
    NoGil released;
    rows.check(rows.size, from.num_rows, "ids", threads);
    gather({source, rows.ids, rows.size, to.rows}, threads);
  }
  return out;
}

void ask_for(const py::object& x, const py::object& row_ids, const py::object& num_threads) {
  const Matrix from = stored_matrix(x, "x");
  const Ids rows = ids(row_ids, "ids");
  const int threads = thread_count(num_threads);
  NoGil released;
  rows.check(rows.size, from.num_rows, "ids", threads);
  read_ahead(as_bytes(from.rows), rows.ids, rows.size, threads);
}

py::object aggregated(const py::object& x, const py::object& indptr, const py::object& indices,
                      const py::object& out, const py::object& num_threads,
                      const py::object& row_ids, const py::object& ids_per_edge,
                      const py::object& weights, const py::object& dst_scale,
                      const py::object& self_rows, const py::object& self_ids,
                      const py::object& self_scale, const py::object& num_self,
                      const py::object& gate) {
  AggregateTask views("x", {x, indptr, indices, row_ids, ids_per_edge, weights, dst_scale,
                            self_rows, self_ids, self_scale, num_self, num_threads});
  views.take_out(out);
  if (!gate.is_none()) views.take_gate(gate);
  {
    NoGil released;
    views.check();
    aggregate(views.task, views.threads);
  }
  return out;
}

// Throws invalid_argument unless ids ascend strictly and are below `num_rows`.
void check_rising(const Vector<const int32_t>& ids, int64_t num_rows, const char* name) {
  int64_t least = 0;
  for (int64_t i = 0; i < ids.size; ++i) {
    const int64_t id = ids.data[i];
    if (id < least || id >= num_rows) {
      refuse_value(name, std::to_string(id) + " at place " + std::to_string(i),
                   std::to_string(least) + " to " + std::to_string(num_rows - 1));
    }
    least = id + 1;
  }
}

void add(const py::object& x, const py::object& row_ids, const py::object& indptr,
         const py::object& out_ids, const py::object& out, const py::object& num_threads,
         const py::object& weights) {
  const Matrix from = matrix(x, "x");
  if (from.rows.length % kWordColumns != 0) {
    refuse_value("x", std::to_string(from.rows.length) + " columns", "a multiple of 16");
  }
  const Ids rows = ids(row_ids, "ids");
  const auto targets = vector<int32_t>(out_ids, "out_ids");
  const auto offsets = vector<int64_t>(indptr, "indptr", targets.size + 1);
  const auto factors = optional_vector<float>(weights, "weights", rows.size);
  const MutableMatrix to = mutable_matrix(out, "out");
  if (to.rows.dtype != DType::float32) refuse_type("out", "another type", "float32");
  check_width("out", to.rows.length, from.rows.length);
  const int threads = thread_count(num_threads);
  check_rising(targets, to.num_rows, "out_ids");
  NoGil released;
  check_offsets(offsets.data, targets.size, rows.size, "indptr", threads);
  rows.check(rows.size, from.num_rows, "ids", threads);
  Aggregate task{from.rows, rows.ids, offsets.data, nullptr, targets.size};
  task.ids_per_edge = true;
  task.weights = factors.data;
  task.out = to.rows;
  task.out_ids = targets.data;
  aggregate(task, threads);
}

void dots(const py::object& a, const py::object& x, const py::object& indptr,
          const py::object& indices, const py::object& out, const py::object& num_threads) {
  const Matrix target_rows = matrix(a, "a"), input_rows = matrix(x, "x");
  if (target_rows.rows.dtype != DType::float32) refuse_type("a", "another type", "float32");
  if (input_rows.rows.dtype != DType::float32) refuse_type("x", "another type", "float32");
  check_width("x", input_rows.rows.length, target_rows.rows.length);
  const auto offsets = vector<int64_t>(indptr, "indptr", target_rows.num_rows + 1);
  const auto sources = vector<int32_t>(indices, "indices");
  const auto to = mutable_column(out, "out", sources.size);
  const int threads = thread_count(num_threads);
  NoGil released;
  check_offsets(offsets.data, target_rows.num_rows, sources.size, "indptr", threads);
  check_below(sources.data, sources.size, input_rows.num_rows, "indices", threads);
  edge_dot(target_rows.rows, input_rows.rows, offsets.data, sources.data, target_rows.num_rows,
           to.data, to.stride, threads);
}

}  // namespace

void bind_rows(py::module_& m) {
  m.def("gather", &gathered, "x"_a, "ids"_a, py::kw_only(), "out"_a, "num_threads"_a);
  m.def("read_ahead", &ask_for, "x"_a, "ids"_a, py::kw_only(), "num_threads"_a);
  m.def("aggregate", &aggregated, "x"_a, "indptr"_a, "indices"_a, py::kw_only(), "out"_a,
        "num_threads"_a, "ids"_a = py::none(), "ids_per_edge"_a = false, "weights"_a = py::none(),
        "dst_scale"_a = py::none(), "self_rows"_a = py::none(), "self_ids"_a = py::none(),
        "self_scale"_a = py::none(), "num_self"_a = 0, "gate"_a = py::none());
  m.def("add_rows", &add, "x"_a, "ids"_a, "indptr"_a, py::kw_only(), "out_ids"_a, "out"_a,
        "num_threads"_a, "weights"_a = py::none());
  m.def("edge_dot", &dots, "a"_a, "x"_a, "indptr"_a, "indices"_a, py::kw_only(), "out"_a,
        "num_threads"_a);
}

}  // namespace gnnscale
