// The border between Python and native code: what comes in is checked here, once, and becomes a
// typed view. Whatever is refused is a TypeError or a ValueError whose message begins with the
// argument's name. Views are made while the GIL is held and used without it; what they view is not
// a Python object. What arrays hold is checked by gnnscale/checks.hpp.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gnnscale/checks.hpp"
#include "gnnscale/memory.hpp"
#include "gnnscale/rows.hpp"
#include "gnnscale/topology.hpp"

namespace gnnscale {

namespace py = pybind11;
using namespace py::literals;
using NoGil = py::gil_scoped_release;

// A contiguous array of one axis.
template <typename T>
struct Vector {
  T* data = nullptr;
  int64_t size = 0;
};

// The same, and a copy that it reads if the array that came in had gaps.
template <typename T>
struct Packed : Vector<const T> {
  std::shared_ptr<const void> copy;
};

// An array of one axis with any stride; no data if it was None.
template <typename T>
struct Column {
  T* data = nullptr;
  int64_t stride = 1;
  int64_t size = 0;
};

// Vertex ids, or numbers of rows, in the type that they came in.
struct Ids {
  RowIds ids;
  int64_t size = 0;
  std::shared_ptr<const void> copy;  // what `ids` reads if the array had gaps

  // Throws invalid_argument unless the first `count` of them are below `bound`.
  void check(int64_t count, int64_t bound, const char* name, int num_threads) const {
    ids.wide ? check_below(static_cast<const int64_t*>(ids.data), count, bound, name, num_threads)
             : check_below(static_cast<const int32_t*>(ids.data), count, bound, name, num_threads);
  }
};

// A matrix whose rows are contiguous, and the number of its rows.
struct Matrix {
  Rows rows;
  int64_t num_rows = 0;
};
struct MutableMatrix {
  MutableRows rows;
  int64_t num_rows = 0;
};

// Elements in a row, float32 or bfloat16.
struct Elements {
  const void* data = nullptr;
  DType dtype = DType::float32;
  int64_t size = 0;
};

inline constexpr int64_t kMaxThreads = 4096;
inline constexpr int64_t kAnySize = -1;

std::string type_name(py::handle value);
[[noreturn]] void refuse_type(const char* name, const std::string& found, const char* allowed);
[[noreturn]] void refuse_value(const char* name, const std::string& found,
                               const std::string& allowed);

// Throws ValueError unless `found` entries are the `wanted` ones.
void check_size(const char* name, int64_t found, int64_t wanted);
// The same of the columns of a matrix.
void check_width(const char* name, int64_t found, int64_t wanted);
// Throws ValueError unless there is an offset, and returns the number of lists.
int64_t num_lists(const Vector<const int64_t>& indptr, const char* of);

// Scalars. Whole numbers are whatever has __index__; NaN and infinities are refused.
int64_t integer(py::handle value, const char* name, int64_t min, int64_t max);
uint64_t word(py::handle value, const char* name);
double real(py::handle value, const char* name, double min, double max);
bool flag(py::handle value, const char* name);
int thread_count(py::handle value);
std::vector<int64_t> integers(py::handle values, const char* name, int64_t min, int64_t max);
// The items of a list or a tuple, at most `max_items`, whatever becomes of the list meanwhile.
py::tuple sequence(py::handle value, const char* name, const char* allowed, size_t max_items);

// An array of one axis of type T, in place: nothing is converted or copied. `size` is its length
// where that is known.
template <typename T>
Vector<const T> vector(py::handle value, const char* name, int64_t size = kAnySize);
template <typename T>
Vector<T> mutable_vector(py::handle value, const char* name, int64_t size = kAnySize);
// None gives no data.
template <typename T>
Vector<const T> optional_vector(py::handle value, const char* name, int64_t size = kAnySize);
template <typename T>
Packed<T> packed(py::handle value, const char* name);
Column<const float> optional_column(py::handle value, const char* name, int64_t size);
Column<float> mutable_column(py::handle value, const char* name, int64_t size);
// Whether ids are int64; otherwise they are int32.
bool is_wide(py::handle value, const char* name);
// int32 or int64; an array with gaps is copied. None gives no data.
Ids ids(py::handle value, const char* name);
Ids optional_ids(py::handle value, const char* name);
// The two rows of an array [2, n].
std::pair<py::object, py::object> two_rows(py::handle value, const char* name, const char* shape);
// A whole graph; offsets and ids in between are checked as they are read.
template <typename Vertex>
Topology<Vertex> topology(py::handle indptr, py::handle indices);
// `value` is a torch tensor, or (array, name of its element type) with bfloat16 as 16-bit whole
// numbers.
Matrix matrix(py::handle value, const char* name);
// The same, and rows with a scale: (array of bytes, "int8" or "int4"). How many elements those have
// is not known: until they are `decoded`, their length is that of their bytes.
Matrix stored_matrix(py::handle value, const char* name);
// Rows that become rows of `length` elements. Throws ValueError, which blames `blamed`, if those of
// `stored` are others.
Rows decoded(const Matrix& stored, int64_t length, const char* blamed);
// Rows that are not decoded.
Rows as_bytes(Rows rows);
// float32 or bfloat16.
MutableMatrix mutable_matrix(py::handle value, const char* name);
// Any element type, and rows with a scale as for stored_matrix.
MutableMatrix mutable_storage(py::handle value, const char* name);
// The same, and what keeps its memory after the call: not `value` itself, which can be given
// another.
std::pair<MutableMatrix, py::object> kept_storage(py::handle value, const char* name);
// The same of a contiguous array of any number of axes.
Elements elements(py::handle value, const char* name);
// Contiguous rows of two axes, and how many; `width` is their length, if that is known.
Vector<const float> float_table(py::handle value, const char* name, int64_t num_rows,
                                int64_t* width);
Vector<const int64_t> int64_table(py::handle value, const char* name, int64_t num_rows,
                                  int64_t* width);
// Contiguous float32 [any number, num_rows, width], and that number.
Vector<float> mutable_blocks(py::handle value, const char* name, int64_t num_rows, int64_t width);

// A torch tensor that is not initialised, and its memory.
struct NewTensor {
  py::object tensor;
  void* data;
};
NewTensor new_tensor(const py::tuple& shape, py::handle dtype);
// Of the shape and the type of a tensor.
NewTensor new_tensor_like(py::handle tensor, const char* name);

// Calls use.operator()<Vertex>() with the type of the ids in `value`.
template <typename Use>
auto for_vertices(py::handle value, const char* name, Use&& use) {
  return is_wide(value, name) ? use.template operator()<int64_t>()
                              : use.template operator()<int32_t>();
}

[[noreturn]] void refuse_memory(const char* name, py::handle value);

// The function, which names its argument number `place` if there is not enough memory.
template <size_t place, typename Result, typename... Arguments>
auto naming(const char* name, Result (*function)(Arguments...)) {
  return [name, function](Arguments... given) -> Result {
    try {
      return function(given...);
    } catch (const std::bad_alloc&) {
      refuse_memory(name, std::get<place>(std::tie(given...)));
    }
  };
}

// What functions return: a named tuple of the module.
class Record {
 public:
  // `fields` are separated by spaces; the last `num_optional` are None unless they are given.
  void define(py::module_& m, const char* name, const char* fields, size_t num_optional = 0);
  template <typename... Values>
  py::object operator()(Values&&... values) const {
    return py::handle(type_)(std::forward<Values>(values)...);
  }

 private:
  PyObject* type_ = nullptr;
};

// Lets Python handle signals, twenty times a second at most, in the midst of work without the GIL;
// what a handler raises, such as KeyboardInterrupt, is thrown.
class Signals {
 public:
  void operator()() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return;
    last_ = now;
    const py::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Hands a native array to NumPy without copying.
template <typename T>
py::array_t<T> to_numpy(Array<T>&& array) {
  T* data = array.data.release();
  py::capsule owner(data, &return_block);
  return py::array_t<T>(array.size, data, owner);
}

void bind_sampler(py::module_& m);
void bind_csc(py::module_& m);
void bind_rows(py::module_& m);
void bind_elementwise(py::module_& m);
void bind_neighbors(py::module_& m);
void bind_row_updates(py::module_& m);
void bind_draws(py::module_& m);
void bind_partition(py::module_& m);
void bind_edge_cut(py::module_& m);
void bind_replacement(py::module_& m);
void bind_cached_rows(py::module_& m);
void bind_ranked_slots(py::module_& m);
void bind_hotness(py::module_& m);
void bind_prefix_sums(py::module_& m);
void bind_arrange(py::module_& m);
void bind_id_table(py::module_& m);
void bind_row_reader(py::module_& m);
void bind_disk_lists(py::module_& m);
void bind_shared_sum(py::module_& m);
void bind_process(py::module_& m);

}  // namespace gnnscale
