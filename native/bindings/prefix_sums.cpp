#include "gnnscale/prefix_sums.hpp"

#include "argument_checks.hpp"
#include "cache_bytes.hpp"

namespace gnnscale {
namespace {

template <typename Sum>
py::object sums_of(const PrefixSums& task, int64_t interval, int num_threads) {
  Array<Sum> sums(task.num_ordered / interval + (task.num_ordered % interval != 0) + 1);
  {
    NoGil released;
    running_sums(task, interval, sums.data.get(), num_threads, Signals());
  }
  return to_numpy(std::move(sums));
}

py::object sum_up(const py::object& order, const py::object& values, const py::object& every,
                  const py::object& bytes_per_vertex, const py::object& offsets,
                  const py::object& bytes_per_entry, const py::object& falling,
                  const py::object& num_threads) {
  const Ids ordered = ids(order, "order");
  const bool real = py::isinstance<py::array_t<float>>(values);
  PrefixSums task{ordered.ids, ordered.size, 0, nullptr, {}, flag(falling, "falling")};
  Packed<float> reals;
  Packed<int32_t> numbers;
  if (real) {
    reals = packed<float>(values, "values");
    task.reals = reals.data;
    task.num_vertices = reals.size;
  } else {
    if (!values.is_none()) numbers = packed<int32_t>(values, "values");
    task.values = numbers.data;
    task.num_vertices =
        values.is_none() ? vector<int64_t>(offsets, "offsets").size - 1 : numbers.size;
  }
  if (task.num_vertices < 0) {
    refuse_value("offsets", "no entry", "one more than there are vertices");
  }
  task.bytes = cache_bytes(bytes_per_vertex, offsets, bytes_per_entry, task.num_vertices);
  const int64_t step = integer(every, "every", 1, INT64_MAX);
  const int threads = thread_count(num_threads);
  return real ? sums_of<double>(task, step, threads) : sums_of<int64_t>(task, step, threads);
}

py::list split(const py::object& order, const py::object& member, const py::object& num_members,
               const py::object& num_threads) {
  py::list split;
  for_vertices(order, "order", [&]<typename Vertex>() {
    const auto from = packed<Vertex>(order, "order");
    const auto to = packed<int16_t>(member, "member");
    check_size("member", to.size, from.size);
    const int64_t members = integer(num_members, "num_members", 0, kMaxMembers);
    const int threads = thread_count(num_threads);
    std::vector<Array<Vertex>> lists;
    {
      NoGil released;
      lists = split_by_member(from.data, to.data, from.size, members, threads, Signals());
    }
    for (Array<Vertex>& list : lists) split.append(to_numpy(std::move(list)));
  });
  return split;
}

}  // namespace

void bind_prefix_sums(py::module_& m) {
  m.def("running_sums", &sum_up, "order"_a, "values"_a = py::none(), py::kw_only(), "every"_a,
        "bytes_per_vertex"_a = 0, "offsets"_a = py::none(), "bytes_per_entry"_a = 0,
        "falling"_a = false, "num_threads"_a);
  m.def("split_by_member", &split, "order"_a, "member"_a, py::kw_only(), "num_members"_a,
        "num_threads"_a);
}

}  // namespace gnnscale
