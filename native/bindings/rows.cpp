#include "gnnscale/rows.hpp"

#include "border.hpp"
#include "gnnscale/read_ahead.hpp"

namespace gnnscale {
namespace {

py::object gathered(const py::object& x, const py::object& row_ids, const py::object& out,
                    const py::object& num_threads) {
  const Matrix from = matrix(x, "x");
  const Ids rows = ids(row_ids, "ids");
  const MutableMatrix to = mutable_matrix(out, "out");
  check_size("out", to.num_rows, rows.size);
  check_width("out", to.rows.length, from.rows.length);
  const int threads = thread_count(num_threads);
  {
    NoGil released;
    rows.check(rows.size, from.num_rows, "ids", threads);
    gather({from.rows, rows.ids, rows.size, to.rows}, threads);
  }
  return out;
}

void ask_for(const py::object& x, const py::object& row_ids, const py::object& num_threads) {
  const Matrix from = matrix(x, "x");
  const Ids rows = ids(row_ids, "ids");
  const int threads = thread_count(num_threads);
  NoGil released;
  rows.check(rows.size, from.num_rows, "ids", threads);
  read_ahead(from.rows, rows.ids, rows.size, threads);
}

// What `aggregate` is called with, by name.
struct AggregateArguments {
  const py::object &x, &indptr, &indices, &row_ids, &ids_per_edge, &weights, &dst_scale, &self_rows,
      &self_ids, &self_scale, &num_self, &gate, &out, &num_threads;
};

// Views of the arguments of `aggregate`, and the sizes by which what they hold is checked.
struct AggregateTask {
  explicit AggregateTask(const AggregateArguments& given)
      : x(matrix(given.x, "x")),
        indptr(vector<int64_t>(given.indptr, "indptr")),
        indices(vector<int32_t>(given.indices, "indices")),
        row_ids(optional_ids(given.row_ids, "ids")),
        self_ids(optional_ids(given.self_ids, "self_ids")),
        threads(thread_count(given.num_threads)) {
    num_lists(indptr, "destinations");
    const MutableMatrix out = mutable_matrix(given.out, "out");
    check_size("out", out.num_rows, num_dst());
    check_width("out", out.rows.length, x.rows.length);
    task = {x.rows, row_ids.ids, indptr.data, indices.data, num_dst()};
    task.out = out.rows;
    task.ids_per_edge = flag(given.ids_per_edge, "ids_per_edge");
    if (task.ids_per_edge && given.row_ids.is_none()) {
      refuse_type("ids", "None", "an id for each edge, as ids_per_edge says");
    }
    if (task.ids_per_edge) check_size("ids", row_ids.size, indices.size);
    const auto weights = optional_column(given.weights, "weights", indices.size);
    task.weights = weights.data;
    task.weight_stride = weights.stride;
    task.dst_scale = optional_vector<float>(given.dst_scale, "dst_scale", num_dst()).data;
    take_self(given);
    if (!given.gate.is_none()) take_gate(given.gate);
  }

  int64_t num_dst() const { return indptr.size - 1; }

  // Throws invalid_argument if an offset or an id points outside of what it points into.
  void check() const {
    check_offsets(indptr.data, num_dst(), indices.size, "indptr", threads);
    if (row_ids.ids.data == nullptr) {
      check_below(indices.data, indices.size, x.num_rows, "indices", threads);
    } else {
      row_ids.check(row_ids.size, x.num_rows, "ids", threads);
      if (!task.ids_per_edge) {
        check_below(indices.data, indices.size, row_ids.size, "indices", threads);
      }
    }
    if (self_ids.ids.data != nullptr) {
      self_ids.check(task.num_self, num_self_rows, "self_ids", threads);
    }
  }

  Matrix x;
  Vector<const int64_t> indptr;
  Vector<const int32_t> indices;
  Ids row_ids, self_ids;
  int threads;
  int64_t num_self_rows = 0;
  Aggregate task{};

 private:
  void take_self(const AggregateArguments& given) {
    task.num_self = integer(given.num_self, "num_self", 0, num_dst());
    const auto scale = optional_vector<float>(given.self_scale, "self_scale");
    check_covers("self_scale", given.self_scale, scale.size);
    check_covers("self_ids", given.self_ids, self_ids.size);
    task.self_scale = scale.data;
    task.self_ids = self_ids.ids;
    if (given.self_rows.is_none()) {
      if (task.num_self != 0) refuse_type("self_rows", "None", "rows, as num_self is above 0");
      return;
    }
    const Matrix rows = matrix(given.self_rows, "self_rows");
    check_width("self_rows", rows.rows.length, x.rows.length);
    num_self_rows = rows.num_rows;
    if (given.self_ids.is_none() && task.num_self > num_self_rows) {
      refuse_value("num_self", std::to_string(task.num_self),
                   "0 to " + std::to_string(num_self_rows) + ", the number of self_rows");
    }
    task.self = rows.rows;
  }

  void take_gate(const py::object& given) {
    const Matrix gate = matrix(given, "gate");
    if (gate.rows.dtype != task.out.dtype) {
      refuse_type("gate", "another type", "the type of out");
    }
    check_size("gate", gate.num_rows, num_dst());
    check_width("gate", gate.rows.length, x.rows.length);
    task.gate = gate.rows;
  }

  void check_covers(const char* name, const py::object& given, int64_t size) const {
    if (!given.is_none() && size < task.num_self) {
      refuse_value(name, std::to_string(size) + " entries",
                   "at least num_self=" + std::to_string(task.num_self));
    }
  }
};

py::object aggregated(const py::object& x, const py::object& indptr, const py::object& indices,
                      const py::object& out, const py::object& num_threads,
                      const py::object& row_ids, const py::object& ids_per_edge,
                      const py::object& weights, const py::object& dst_scale,
                      const py::object& self_rows, const py::object& self_ids,
                      const py::object& self_scale, const py::object& num_self,
                      const py::object& gate) {
  const AggregateTask views({x, indptr, indices, row_ids, ids_per_edge, weights, dst_scale,
                             self_rows, self_ids, self_scale, num_self, gate, out, num_threads});
  {
    NoGil released;
    views.check();
    aggregate(views.task, views.threads);
  }
  return out;
}

// Throws invalid_argument unless every row is named once, in order, and is one of `num_rows`.
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
  const Matrix left = matrix(a, "a"), right = matrix(x, "x");
  if (left.rows.dtype != DType::float32) refuse_type("a", "another type", "float32");
  if (right.rows.dtype != DType::float32) refuse_type("x", "another type", "float32");
  check_width("x", right.rows.length, left.rows.length);
  const auto offsets = vector<int64_t>(indptr, "indptr", left.num_rows + 1);
  const auto sources = vector<int32_t>(indices, "indices");
  const auto to = mutable_column(out, "out", sources.size);
  const int threads = thread_count(num_threads);
  NoGil released;
  check_offsets(offsets.data, left.num_rows, sources.size, "indptr", threads);
  check_below(sources.data, sources.size, right.num_rows, "indices", threads);
  edge_dot(left.rows, right.rows, offsets.data, sources.data, left.num_rows, to.data, to.stride,
           threads);
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
