#include "gnnscale/fpga_edge_order.hpp"

#include "argument_checks.hpp"

namespace gnnscale {
namespace {

Record tiles_type, block_type;

py::object tiles_of(EdgeTiles&& tiles) {
  return tiles_type(to_numpy(std::move(tiles.edges)),
                    to_numpy(std::move(tiles.tiles)).reshape({-1, 3}));
}

OwnRow own_row(py::handle value) {
  constexpr const char* kAllowed = "add, concat and None";
  constexpr size_t kMaxShown = 60;
  if (value.is_none()) return OwnRow::none;
  if (!py::isinstance<py::str>(value)) refuse_type("self_term", "no text", kAllowed);
  const std::string text = py::str(value);
  if (text == "add") return OwnRow::add;
  if (text == "concat") return OwnRow::concat;
  refuse_value("self_term", std::string(py::repr(value)).substr(0, kMaxShown), kAllowed);
}

py::object arrange(const py::object& indptr, const py::object& indices, const py::object& num_src,
                   const py::object& destinations, const py::object& weights,
                   const py::object& dst_scale, const py::object& self_scale,
                   const py::object& self_term, const py::object& tile_rows,
                   const py::object& backward_tile_rows, const py::object& num_banks) {
  const auto offsets = vector<int64_t>(indptr, "indptr");
  const auto neighbors = vector<int32_t>(indices, "indices");
  const int64_t num_dst = num_lists(offsets, "destinations");
  if (num_dst > kMaxLocal) refuse_value("indptr", std::to_string(num_dst) + " lists", "2^31 - 1");
  const int64_t num_sources = integer(num_src, "num_src", num_dst, kMaxLocal);
  const auto order = packed<int32_t>(destinations, "destinations");
  const auto edge_weights = optional_column(weights, "weights", neighbors.size);
  Arrange task{offsets.data,
               neighbors.data,
               num_dst,
               num_sources,
               order.data,
               order.size,
               own_row(self_term),
               integer(tile_rows, "tile_rows", 1, kMaxTileRows)};
  if (!backward_tile_rows.is_none()) {
    task.backward_tile_rows = integer(backward_tile_rows, "backward_tile_rows", 1, kMaxTileRows);
  }
  task.num_banks = integer(num_banks, "num_banks", 1, kMaxBanks);
  task.weights = edge_weights.data;
  task.weight_stride = edge_weights.stride;
  task.dst_scale = optional_vector<float>(dst_scale, "dst_scale", num_dst).data;
  task.self_scale = optional_vector<float>(self_scale, "self_scale", num_dst).data;
  Arranged arranged;
  {
    NoGil released;
    check_offsets(offsets.data, num_dst, neighbors.size, "indptr");
    check_below(neighbors.data, neighbors.size, num_sources, "indices");
    check_below(order.data, order.size, num_dst, "destinations");
    arranged = arrange_block(task);
  }
  const bool transposed = task.backward_tile_rows != 0;
  return block_type(to_numpy(std::move(arranged.sources)), tiles_of(std::move(arranged.forward)),
                    transposed ? tiles_of(std::move(arranged.backward)) : py::none());
}

// Returns a matrix; an array without a type name is allowed.
Matrix named_matrix(const py::object& value, const char* name) {
  if (!py::isinstance<py::array>(value)) return matrix(value, name);
  return matrix(py::make_tuple(value, value.attr("dtype").attr("name")), name);
}

// Returns `out`, or a new tensor [num_words, number of ids, 16] for None.
py::object columns(const py::object& x, const py::object& row_ids, const py::object& num_words,
                   const py::object& out, const py::object& num_threads) {
  const Matrix from = named_matrix(x, "x");
  const Ids rows = ids(row_ids, "ids");
  const int64_t needed = (from.rows.length + kWordColumns - 1) / kWordColumns;
  if (!out.is_none() && !num_words.is_none()) {
    refuse_value("num_columns_words", "a number beside out, whose first axis says it", "None");
  }
  Vector<float> out_rows;
  int64_t words = needed;
  if (!out.is_none()) {
    out_rows = mutable_blocks(out, "out", rows.size, kWordColumns);
    words = out_rows.size;
    if (words < needed) {
      refuse_value("out", std::to_string(words) + " words", std::to_string(needed) + " or more");
    }
  } else if (!num_words.is_none()) {
    words = integer(num_words, "num_columns_words", needed, kMaxLocal);
  }
  const int threads = thread_count(num_threads);
  if (rows.size > kMaxBytes / kWordColumns / std::max<int64_t>(words, 1)) throw std::bad_alloc();
  Array<float> new_rows(out.is_none() ? words * rows.size * kWordColumns : 0);
  float* to = out.is_none() ? new_rows.data.get() : out_rows.data;
  {
    NoGil released;
    rows.check(rows.size, from.num_rows, "ids", threads);
    gather_columns({from.rows, rows.ids, rows.size, words, to}, threads);
  }
  if (!out.is_none()) return out;
  return to_numpy(std::move(new_rows)).reshape({words, rows.size, kWordColumns});
}

}  // namespace

void bind_arrange(py::module_& m) {
  tiles_type.define(m, "EdgeTiles", "edges tiles");
  block_type.define(m, "ArrangedBlock", "sources forward backward");
  m.def("arrange_block", naming<8>("tile_rows", &arrange), "indptr"_a, "indices"_a, "num_src"_a,
        py::kw_only(), "destinations"_a, "weights"_a = py::none(), "dst_scale"_a = py::none(),
        "self_scale"_a = py::none(), "self_term"_a, "tile_rows"_a, "backward_tile_rows"_a,
        "num_banks"_a = 1);
  m.def("gather_columns", naming<2>("num_columns_words", &columns), "x"_a, "ids"_a, py::kw_only(),
        "num_columns_words"_a = py::none(), "out"_a = py::none(), "num_threads"_a);
}

}  // namespace gnnscale
