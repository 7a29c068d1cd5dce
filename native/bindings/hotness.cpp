#include "gnnscale/hotness.hpp"

#include "argument_checks.hpp"
#include "cache_bytes.hpp"

namespace gnnscale {
namespace {

// Maximum destinations: native code numbers the destinations of a slice in 32 bits.
constexpr int64_t kMaxScattered = int64_t{1} << 32;

bool holds_floats(py::handle value) {
  return py::isinstance<py::array>(value) &&
         py::reinterpret_borrow<py::array>(value).dtype().kind() == 'f';
}

Keys keys_of(const Ids& numbers) {
  return {numbers.ids.data, numbers.ids.wide ? Keys::Type::int64 : Keys::Type::int32};
}

// Keys of any type, with the owner of their memory.
struct Numbers {
  Keys keys;
  int64_t size;
  std::shared_ptr<const void> copy;
};

// Returns keys of float32, int32 or int64.
Numbers hotness_of(py::handle value) {
  if (holds_floats(value)) {
    const auto floats = packed<float>(value, "hotness");
    return {{floats.data, Keys::Type::float32}, floats.size, floats.copy};
  }
  const Ids integers = ids(value, "hotness");
  return {keys_of(integers), integers.size, integers.copy};
}

// Returns one array for each member: all float32 or all int32, with equal lengths.
std::vector<Keys> local_of(const py::tuple& members, int64_t* size) {
  if (members.empty()) refuse_value("local", "no array", "1 to " + std::to_string(kMaxMembers));
  std::vector<Keys> keys;
  const bool floats = holds_floats(members[0]);
  *size = kAnySize;
  for (const py::handle member : members) {
    if (floats) {
      const auto values = vector<float>(member, "local", *size);
      *size = values.size;
      keys.push_back({values.data, Keys::Type::float32});
    } else {
      const auto values = vector<int32_t>(member, "local", *size);
      *size = values.size;
      keys.push_back({values.data, Keys::Type::int32});
    }
  }
  return keys;
}

py::object find_hottest(const py::object& hotness, const py::object& tie_break,
                        const py::object& capacity, const py::object& bytes_per_vertex,
                        const py::object& offsets, const py::object& bytes_per_entry,
                        const py::object& max_bytes, const py::object& only_hot,
                        const py::object& num_threads) {
  const Numbers numbers = hotness_of(hotness);
  const int64_t size = numbers.size;
  const Ids ties = optional_ids(tie_break, "tie_break");
  if (!tie_break.is_none()) check_size("tie_break", ties.size, size);
  const HotVertices task{
      numbers.keys,
      keys_of(ties),
      size,
      cache_bytes(bytes_per_vertex, offsets, bytes_per_entry, size),
      integer(capacity, "capacity", 0, INT64_MAX),
      max_bytes.is_none() ? INT64_MAX : integer(max_bytes, "max_bytes", 0, INT64_MAX),
      flag(only_hot, "only_hot")};
  const int threads = thread_count(num_threads);
  const auto run = [&]<typename Vertex>() -> py::object {
    Array<Vertex> vertices;
    {
      NoGil released;
      vertices = hottest<Vertex>(task, threads, Signals());
    }
    return to_numpy(std::move(vertices));
  };
  return size > kMaxLocal ? run.template operator()<int64_t>() : run.template operator()<int32_t>();
}

Record shared_type;

py::object share(const py::object& order, const py::object& local, const py::object& capacities,
                 const py::object& bytes_per_vertex, const py::object& offsets,
                 const py::object& bytes_per_entry, const py::object& num_threads) {
  const Ids ordered = ids(order, "order");
  int64_t num_vertices = 0;
  const py::tuple members = sequence(local, "local", "a list of arrays", kMaxMembers);
  const std::vector<Keys> keys = local_of(members, &num_vertices);
  const auto limits = packed<int64_t>(capacities, "capacities");
  check_size("capacities", limits.size, static_cast<int64_t>(keys.size()));
  const ShareOut task{ordered.ids,
                      ordered.size,
                      keys,
                      num_vertices,
                      cache_bytes(bytes_per_vertex, offsets, bytes_per_entry, num_vertices),
                      {limits.data, limits.data + limits.size}};
  for (const int64_t bytes : task.capacities) {
    if (bytes < 0) refuse_value("capacities", std::to_string(bytes), "0 or more bytes");
  }
  const int threads = thread_count(num_threads);
  const auto num_members = static_cast<int64_t>(keys.size());
  const bool counts = keys[0].type == Keys::Type::int32;
  Array<int16_t> member(ordered.size);
  prefer_large_pages(member.data.get(), ordered.size * sizeof(int16_t));
  py::array_t<int64_t> bytes(num_members);
  py::array_t<int64_t> reads({num_members, num_members});
  const Shared shared{member.data.get(), bytes.mutable_data(),
                      counts ? reads.mutable_data() : nullptr};
  {
    NoGil released;
    share_out(task, shared, threads, Signals());
  }
  return shared_type(to_numpy(std::move(member)), bytes, counts ? py::object(reads) : py::none());
}

void scatter(const py::object& indptr, const py::object& indices, const py::object& values,
             const py::object& out, const py::object& num_threads) {
  for_vertices(indices, "indices", [&]<typename Vertex>() {
    const auto graph = topology<Vertex>(indptr, indices);
    if (graph.num_vertices > kMaxScattered) {
      refuse_value("indptr", std::to_string(graph.num_vertices) + " vertices", "up to 2^32");
    }
    const int threads = thread_count(num_threads);
    const auto run = [&]<typename Value>() {
      const auto from = vector<Value>(values, "values", graph.num_vertices);
      const auto to = mutable_vector<Value>(out, "out", graph.num_vertices);
      NoGil released;
      scatter_to_neighbors(graph, from.data, to.data, threads, Signals());
    };
    holds_floats(values) && py::reinterpret_borrow<py::array>(values).itemsize() == 8
        ? run.template operator()<double>()
        : run.template operator()<float>();
  });
}

}  // namespace

void bind_hotness(py::module_& m) {
  shared_type.define(m, "Shared", "member bytes reads");
  m.def("hottest", naming<0>("hotness", &find_hottest), "hotness"_a, "tie_break"_a = py::none(),
        py::kw_only(), "capacity"_a, "bytes_per_vertex"_a, "offsets"_a = py::none(),
        "bytes_per_entry"_a = 0, "max_bytes"_a = py::none(), "only_hot"_a = false, "num_threads"_a);
  m.def("share_out", &share, "order"_a, "local"_a, py::kw_only(), "capacities"_a,
        "bytes_per_vertex"_a, "offsets"_a = py::none(), "bytes_per_entry"_a = 0, "num_threads"_a);
  m.def("scatter_to_neighbors", naming<1>("indices", &scatter), "indptr"_a, "indices"_a, "values"_a,
        "out"_a, py::kw_only(), "num_threads"_a);
}

}  // namespace gnnscale
