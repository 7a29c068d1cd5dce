#include "gnnscale/csc.hpp"

#include "argument_checks.hpp"

namespace gnnscale {
namespace {

void count(const py::object& dst, const py::object& counts, const py::object& first) {
  for_vertices(dst, "dst", [&]<typename Vertex>() {
    const auto ends = vector<Vertex>(dst, "dst");
    const auto out = mutable_vector<int64_t>(counts, "counts");
    const int64_t begin = integer(first, "first", 0, INT64_MAX - out.size);
    NoGil released;
    count_in_degrees(ends.data, ends.size, begin, out.data, out.size);
  });
}

py::array_t<int64_t> scatter(const py::object& src, const py::object& dst,
                             const py::object& bucket_of, const py::object& num_buckets,
                             const py::object& out, const py::object& first,
                             const py::object& shift, const py::object& num_threads) {
  const auto [src_out, dst_out] = two_rows(out, "out", "[2, num_edges]");
  return for_vertices(src, "src", [&]<typename Vertex>() {
    const auto from = vector<Vertex>(src, "src");
    const auto to = vector<Vertex>(dst, "dst", from.size);
    const auto buckets = vector<int32_t>(bucket_of, "bucket_of");
    const int64_t count = integer(num_buckets, "num_buckets", 1, kMaxLocal);
    const int64_t begin = integer(first, "first", 0, INT64_MAX);
    const auto bits = static_cast<int>(integer(shift, "shift", 0, 62));
    const int threads = thread_count(num_threads);
    const auto from_out = mutable_vector<Vertex>(src_out, "out", from.size);
    const auto to_out = mutable_vector<Vertex>(dst_out, "out", from.size);
    py::array_t<int64_t> starts(count + 1);
    int64_t* const bounds = starts.mutable_data();
    NoGil released;
    check_below(buckets.data, buckets.size, count, "bucket_of");
    csc_scatter(from.data, to.data, from.size, {buckets.data, buckets.size, count, begin, bits},
                bounds, from_out.data, to_out.data, threads);
    return starts;
  });
}

void fill(const py::object& src, const py::object& dst, const py::object& first,
          const py::object& last, const py::object& cursor, const py::object& out) {
  for_vertices(src, "src", [&]<typename Vertex>() {
    const auto from = vector<Vertex>(src, "src");
    const auto to = vector<Vertex>(dst, "dst", from.size);
    const int64_t begin = integer(first, "first", 0, INT64_MAX);
    const int64_t end = integer(last, "last", begin, INT64_MAX);
    const auto slots = mutable_vector<int64_t>(cursor, "cursor", end - begin);
    const auto lists = mutable_vector<Vertex>(out, "out");
    NoGil released;
    csc_fill(from.data, to.data, from.size, begin, end, slots.data, lists.data, lists.size);
  });
}

py::array_t<int64_t> sort(const py::object& indptr, const py::object& indices,
                          const py::object& drop_duplicates, const py::object& num_threads) {
  return for_vertices(indices, "indices", [&]<typename Vertex>() {
    const auto offsets = vector<int64_t>(indptr, "indptr");
    const auto lists = mutable_vector<Vertex>(indices, "indices");
    const int64_t num_vertices = num_lists(offsets, "vertices");
    const bool drops = flag(drop_duplicates, "drop_duplicates");
    const int threads = thread_count(num_threads);
    py::array_t<int64_t> new_indptr(offsets.size);
    int64_t* to = new_indptr.mutable_data();
    {
      NoGil released;
      check_offsets(offsets.data, num_vertices, lists.size, "indptr", threads);
      csc_sort(offsets.data, num_vertices, lists.data, drops, to, threads);
    }
    return new_indptr;
  });
}

void expand(const py::object& indptr, const py::object& indices, const py::object& first_dst,
            const py::object& out) {
  const auto [src, dst] = two_rows(out, "out", "[2, number of indices]");
  const auto offsets = vector<int64_t>(indptr, "indptr");
  const auto sources = vector<int32_t>(indices, "indices");
  const int64_t num_dst = num_lists(offsets, "destinations");
  const int64_t first = integer(first_dst, "first_dst", 0, kMaxLocal);
  const auto to_src = mutable_vector<int64_t>(src, "out", sources.size);
  const auto to_dst = mutable_vector<int64_t>(dst, "out", sources.size);
  NoGil released;
  check_offsets(offsets.data, num_dst, sources.size, "indptr");
  expand_edges(offsets.data, sources.data, num_dst, first, to_src.data, to_dst.data);
}

py::tuple transpose(const py::object& indptr, const py::object& indices, const py::object& num_src,
                    const py::object& weights, const py::object& dst_scale) {
  const auto offsets = vector<int64_t>(indptr, "indptr");
  const auto sources = vector<int32_t>(indices, "indices");
  const int64_t num_dst = num_lists(offsets, "destinations");
  const int64_t num_rows = integer(num_src, "num_src", 0, kMaxLocal);
  const auto edge_weights = optional_column(weights, "weights", sources.size);
  const auto scale = optional_vector<float>(dst_scale, "dst_scale", num_dst);
  Array<int64_t> out_indptr(num_rows + 1);
  Array<int32_t> out_indices(sources.size);
  Array<float> out_weights(sources.size);
  {
    NoGil released;
    check_offsets(offsets.data, num_dst, sources.size, "indptr");
    check_below(sources.data, sources.size, num_rows, "indices");
    const BlockTranspose block{offsets.data,      sources.data,        num_dst,   num_rows,
                               edge_weights.data, edge_weights.stride, scale.data};
    transpose_block(block, out_indptr.data.get(), out_indices.data.get(), out_weights.data.get());
  }
  return py::make_tuple(to_numpy(std::move(out_indptr)), to_numpy(std::move(out_indices)),
                        to_numpy(std::move(out_weights)));
}

}  // namespace

void bind_csc(py::module_& m) {
  m.def("count_in_degrees", &count, "dst"_a, "counts"_a, "first"_a = 0);
  m.def("csc_scatter", &scatter, "src"_a, "dst"_a, "bucket_of"_a, "num_buckets"_a, py::kw_only(),
        "out"_a, "first"_a = 0, "shift"_a = 0, "num_threads"_a = 1);
  m.def("csc_fill", &fill, "src"_a, "dst"_a, "first"_a, "last"_a, "cursor"_a, "out"_a);
  m.def("csc_sort", &sort, "indptr"_a, "indices"_a, "drop_duplicates"_a, "num_threads"_a);
  m.def("expand_edges", &expand, "indptr"_a, "indices"_a, py::kw_only(), "first_dst"_a, "out"_a);
  m.def("transpose_block", &transpose, "indptr"_a, "indices"_a, "num_src"_a, py::kw_only(),
        "weights"_a = py::none(), "dst_scale"_a = py::none());
}

}  // namespace gnnscale
