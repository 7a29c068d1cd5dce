#include "gnnscale/id_table.hpp"

#include <limits>
#include <memory>

#include "argument_checks.hpp"

namespace gnnscale {
namespace {

struct TextArrays {
  Vector<const int64_t> offsets;
  Vector<const uint8_t> bytes;

  Texts texts() const { return {offsets.data, bytes.data, offsets.size - 1}; }
  void check() const { check_offsets(offsets.data, offsets.size - 1, bytes.size, "offsets"); }
};

TextArrays text_arrays(const py::object& offsets, const py::object& bytes) {
  const TextArrays arrays{vector<int64_t>(offsets, "offsets"), vector<uint8_t>(bytes, "data")};
  if (arrays.offsets.size < 1) refuse_value("offsets", "no entry", "one more entry than ids");
  return arrays;
}

// Returns an unpredictable seed, so that ids cannot be crafted to collide.
uint64_t secret() { return py::module_::import("secrets").attr("randbits")(64).cast<uint64_t>(); }

std::unique_ptr<IntegerIds> made_of_integers(const py::object& ids) {
  const auto list = vector<int64_t>(ids, "ids");
  const uint64_t key = secret();
  NoGil released;
  return std::make_unique<IntegerIds>(list.data, list.size, key);
}

std::unique_ptr<TextIds> made_of_texts(const py::object& offsets, const py::object& bytes) {
  const TextArrays arrays = text_arrays(offsets, bytes);
  const uint64_t key = secret();
  NoGil released;
  arrays.check();
  return std::make_unique<TextIds>(arrays.texts(), key);
}

// Calls find(out) on an array of the vertex type that can hold all positions.
template <typename Find>
py::tuple find_all(int64_t num_ids, int64_t num_wanted, Find&& find) {
  const auto run = [&]<typename Vertex>() -> py::tuple {
    Array<Vertex> out(num_wanted);
    int64_t unknown = -1;
    {
      NoGil released;
      unknown = find(out.data.get());
    }
    return py::make_tuple(to_numpy(std::move(out)), unknown);
  };
  return num_ids <= std::numeric_limits<int32_t>::max() ? run.template operator()<int32_t>()
                                                        : run.template operator()<int64_t>();
}

py::tuple find_integers(const IntegerIds& table, const py::object& wanted,
                        const py::object& num_threads) {
  const auto list = vector<int64_t>(wanted, "wanted");
  const int threads = thread_count(num_threads);
  return find_all(table.size(), list.size,
                  [&](auto* out) { return table.find(list.data, list.size, out, threads); });
}

py::tuple find_texts(const TextIds& table, const py::object& offsets, const py::object& bytes,
                     const py::object& num_threads) {
  const TextArrays arrays = text_arrays(offsets, bytes);
  const int threads = thread_count(num_threads);
  return find_all(table.size(), arrays.offsets.size - 1, [&](auto* out) {
    arrays.check();
    return table.find(arrays.texts(), out, threads);
  });
}

template <typename Table>
py::object repeated(const Table& table) {
  const Repeated repeated_positions = table.repeated();
  if (repeated_positions.first < 0) return py::none();
  return py::make_tuple(repeated_positions.first, repeated_positions.second);
}

}  // namespace

void bind_id_table(py::module_& m) {
  py::class_<IntegerIds>(m, "IntegerIds", py::module_local())
      .def(py::init(naming<0>("ids", &made_of_integers)), "ids"_a)
      .def_property_readonly("repeated", &repeated<IntegerIds>)
      .def_property_readonly("num_bytes", &IntegerIds::num_bytes)
      .def("find", &find_integers, "wanted"_a, py::kw_only(), "num_threads"_a);
  py::class_<TextIds>(m, "TextIds", py::module_local())
      .def(py::init(naming<0>("offsets", &made_of_texts)), "offsets"_a, "data"_a)
      .def_property_readonly("repeated", &repeated<TextIds>)
      .def_property_readonly("num_bytes", &TextIds::num_bytes)
      .def("find", &find_texts, "offsets"_a, "data"_a, py::kw_only(), "num_threads"_a);
}

}  // namespace gnnscale
