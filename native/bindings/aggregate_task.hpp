// Parsing and checking of the Python arguments of an aggregation over a block.
#pragma once

#include "argument_checks.hpp"

namespace gnnscale {

// Arguments of an aggregation by name.
struct AggregateArguments {
  const py::object &x, &indptr, &indices, &row_ids, &ids_per_edge, &weights, &dst_scale, &self_rows,
      &self_ids, &self_scale, &num_self, &num_threads;
};

// Views of an aggregation's arguments, and the sizes by which their contents are checked.
struct AggregateTask {
  // `x_name` is the argument name of the rows that are summed.
  AggregateTask(const char* x_name, const AggregateArguments& arguments)
      : x(stored_matrix(arguments.x, x_name)),
        indptr(vector<int64_t>(arguments.indptr, "indptr")),
        indices(vector<int32_t>(arguments.indices, "indices")),
        row_ids(optional_ids(arguments.row_ids, "ids")),
        self_ids(optional_ids(arguments.self_ids, "self_ids")),
        threads(thread_count(arguments.num_threads)) {
    num_lists(indptr, "destinations");
    task = {x.rows, row_ids.ids, indptr.data, indices.data, num_dst()};
    task.ids_per_edge = flag(arguments.ids_per_edge, "ids_per_edge");
    if (task.ids_per_edge && arguments.row_ids.is_none()) {
      refuse_type("ids", "None", "an id for each edge, as ids_per_edge says");
    }
    if (task.ids_per_edge) check_size("ids", row_ids.size, indices.size);
    const auto weights = optional_column(arguments.weights, "weights", indices.size);
    task.weights = weights.data;
    task.weight_stride = weights.stride;
    task.dst_scale = optional_vector<float>(arguments.dst_scale, "dst_scale", num_dst()).data;
    take_self(arguments);
  }

  int64_t num_dst() const { return indptr.size - 1; }

  void take_out(const py::object& value) {
    const MutableMatrix out = mutable_matrix(value, "out");
    check_size("out", out.num_rows, num_dst());
    take_width(out.rows.length, "out");
    task.out = out.rows;
  }

  // Sets the elements of a row, which arrays of rows with a scale do not tell.
  void take_width(int64_t width, const char* blamed) {
    task.x = decoded(x, width, blamed);
    if (task.self.data != nullptr) task.self = decoded(self, width, blamed);
  }

  // Call after `out` was set, whose type the gate has.
  void take_gate(const py::object& value) {
    const Matrix gate = matrix(value, "gate");
    if (gate.rows.dtype != task.out.dtype) {
      refuse_type("gate", "another type", "the type of out");
    }
    check_size("gate", gate.num_rows, num_dst());
    check_width("gate", gate.rows.length, task.x.length);
    task.gate = gate.rows;
  }

  // Throws invalid_argument if an offset or an id is out of range.
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
      self_ids.check(task.num_self, self.num_rows, "self_ids", threads);
    }
  }

  Matrix x, self;
  Vector<const int64_t> indptr;
  Vector<const int32_t> indices;
  Ids row_ids, self_ids;
  int threads;
  Aggregate task{};

 private:
  void take_self(const AggregateArguments& arguments) {
    task.num_self = integer(arguments.num_self, "num_self", 0, num_dst());
    const auto scale = optional_vector<float>(arguments.self_scale, "self_scale");
    check_covers("self_scale", arguments.self_scale, scale.size);
    check_covers("self_ids", arguments.self_ids, self_ids.size);
    task.self_scale = scale.data;
    task.self_ids = self_ids.ids;
    if (arguments.self_rows.is_none()) {
      if (task.num_self != 0) refuse_type("self_rows", "None", "rows, as num_self is above 0");
      return;
    }
    self = stored_matrix(arguments.self_rows, "self_rows");
    if (!has_scale(x.rows.dtype) && !has_scale(self.rows.dtype)) {
      check_width("self_rows", self.rows.length, x.rows.length);
    }
    if (arguments.self_ids.is_none() && task.num_self > self.num_rows) {
      refuse_value("num_self", std::to_string(task.num_self),
                   "0 to " + std::to_string(self.num_rows) + ", the number of self_rows");
    }
    task.self = self.rows;
  }

  void check_covers(const char* name, const py::object& value, int64_t size) const {
    if (!value.is_none() && size < task.num_self) {
      refuse_value(name, std::to_string(size) + " entries",
                   "at least num_self=" + std::to_string(task.num_self));
    }
  }
};

}  // namespace gnnscale
