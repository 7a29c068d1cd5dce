#include "gnnscale/arrange.hpp"

#include "border.hpp"

namespace gnnscale {
namespace {

py::object tiles_of(EdgeTiles&& made) {
  return py::make_tuple(to_numpy(std::move(made.edges)), to_numpy(std::move(made.tiles)));
}

py::tuple arrange(const py::object& indptr, const py::object& indices, const py::object& num_src,
                  const py::object& destinations, const py::object& weights,
                  const py::object& dst_scale, const py::object& self_scale,
                  const py::object& self_term, const py::object& tile_rows,
                  const py::object& backward_tile_rows, const py::object& num_banks) {
  const auto offsets = vector<int64_t>(indptr, "indptr");
  const auto neighbors = vector<int32_t>(indices, "indices");
  if (offsets.size < 1) refuse_value("indptr", "no entry", "one more entry than destinations");
  const int64_t num_dst = offsets.size - 1;
  if (num_dst > kMaxLocal) refuse_value("indptr", std::to_string(num_dst) + " lists", "2^31 - 1");
  const int64_t num_sources = integer(num_src, "num_src", num_dst, kMaxLocal);
  const auto wanted = vector<int32_t>(destinations, "destinations");
  const auto edge_weights = optional_column(weights, "weights", neighbors.size);
  Arrange task{offsets.data,
               neighbors.data,
               num_dst,
               num_sources,
               wanted.data,
               wanted.size,
               static_cast<OwnRow>(integer(self_term, "self_term", 0, 2)),
               integer(tile_rows, "tile_rows", 1, kMaxTileRows)};
  if (!backward_tile_rows.is_none()) {
    task.backward_tile_rows = integer(backward_tile_rows, "backward_tile_rows", 1, kMaxTileRows);
  }
  task.num_banks = integer(num_banks, "num_banks", 1, kMaxBanks);
  task.weights = edge_weights.data;
  task.weight_stride = edge_weights.stride;
  task.dst_scale = optional_vector<float>(dst_scale, "dst_scale", num_dst).data;
  task.self_scale = optional_vector<float>(self_scale, "self_scale", num_dst).data;
  Arranged made;
  {
    NoGil released;
    check_offsets(offsets.data, num_dst, neighbors.size, "indptr");
    check_below(neighbors.data, neighbors.size, num_sources, "indices");
    check_below(wanted.data, wanted.size, num_dst, "destinations");
    made = arrange_block(task);
  }
  const bool transposed = task.backward_tile_rows != 0;
  return py::make_tuple(to_numpy(std::move(made.sources)), tiles_of(std::move(made.forward)),
                        transposed ? tiles_of(std::move(made.backward)) : py::none());
}

// Returns `out`, the words one after another, or a new [num_words, number of ids, 16] for None.
py::object columns(const py::object& x, const py::object& row_ids, const py::object& num_words,
                   const py::object& out, const py::object& num_threads) {
  const Matrix from = matrix(x, "x");
  const Ids rows = ids(row_ids, "ids");
  const int64_t needed = (from.rows.length + kWordColumns - 1) / kWordColumns;
  const char* blamed = out.is_none() ? "num_columns_words" : "out";
  const int64_t words =
      num_words.is_none() ? needed : integer(num_words, blamed, needed, kMaxLocal);
  const int threads = thread_count(num_threads);
  if (rows.size > kMaxBytes / kWordColumns / std::max<int64_t>(words, 1)) throw std::bad_alloc();
  const int64_t size = words * rows.size * kWordColumns;
  Array<float> made(out.is_none() ? size : 0);
  float* to = out.is_none() ? made.data.get() : mutable_vector<float>(out, "out", size).data;
  {
    NoGil released;
    rows.check(rows.size, from.num_rows, "ids", threads);
    gather_columns({from.rows, rows.ids, rows.size, words, to}, threads);
  }
  if (!out.is_none()) return out;
  return to_numpy(std::move(made)).reshape({words, rows.size, kWordColumns});
}

}  // namespace

void bind_arrange(py::module_& m) {
  m.def("arrange_block", &arrange);
  m.def("gather_columns", &columns);
}

}  // namespace gnnscale
