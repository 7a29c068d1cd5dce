// Border between Python and native code: every argument is checked here once and becomes a typed
// view. Rejections are TypeError or ValueError with a message that begins with the argument's name.
// Views are created while the GIL is held and used without it; they refer to memory, not to Python
// objects. Array contents are checked by gnnscale/checks.hpp.
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

// Contiguous one-dimensional array.
template <typename T>
struct Vector {
  T* data = nullptr;
  int64_t size = 0;
};

// Contiguous one-dimensional array; a copy if the argument was strided.
template <typename T>
struct Packed : Vector<const T> {
  std::shared_ptr<const void> copy;
};

// Strided one-dimensional array; null if the argument was None.
template <typename T>
struct Column {
  T* data = nullptr;
  int64_t stride = 1;
  int64_t size = 0;
};

// Vertex ids or row numbers, in the type of the argument.
struct Ids {
  RowIds ids;
  int64_t size = 0;
  std::shared_ptr<const void> copy;  // owns the data of `ids` if the argument was strided

  // Throws invalid_argument unless the first `count` ids are below `bound`.
  void check(int64_t count, int64_t bound, const char* name, int num_threads) const {
    ids.wide ? check_below(static_cast<const int64_t*>(ids.data), count, bound, name, num_threads)
             : check_below(static_cast<const int32_t*>(ids.data), count, bound, name, num_threads);
  }
};

// Matrix with contiguous rows, and the number of its rows.
struct Matrix {
  Rows rows;
  int64_t num_rows = 0;
};
struct MutableMatrix {
  MutableRows rows;
  int64_t num_rows = 0;
};

// Contiguous elements of float32 or bfloat16.
struct Elements {
  const void* data = nullptr;
  DType dtype = DType::float32;
  int64_t size = 0;
};

inline constexpr int64_t kMaxThreads = 4096;
inline constexpr int64_t kAnySize = -1;

std::string type_name(py::handle value);
[[noreturn]] void refuse_type(const char* name, const std::string& actual, const char* allowed);
[[noreturn]] void refuse_value(const char* name, const std::string& actual,
                               const std::string& allowed);

// Throws ValueError unless `actual` equals `expected`.
void check_size(const char* name, int64_t actual, int64_t expected);
// As check_size, for the columns of a matrix.
void check_width(const char* name, int64_t actual, int64_t expected);
// Throws ValueError if there is no offset; returns the number of lists.
int64_t num_lists(const Vector<const int64_t>& indptr, const char* items);

// Converts scalars. Integers are objects with __index__; NaN and infinities are rejected.
int64_t integer(py::handle value, const char* name, int64_t min, int64_t max);
uint64_t word(py::handle value, const char* name);
double real(py::handle value, const char* name, double min, double max);
bool flag(py::handle value, const char* name);
int thread_count(py::handle value);
std::vector<int64_t> integers(py::handle values, const char* name, int64_t min, int64_t max);
// Returns the items of a list or a tuple, at most `max_items`, as a copy that later changes of the
// list do not affect.
py::tuple sequence(py::handle value, const char* name, const char* allowed, size_t max_items);

// Returns a one-dimensional array of type T without conversion or copy. `size` is its required
// length, if known.
template <typename T>
Vector<const T> vector(py::handle value, const char* name, int64_t size = kAnySize);
template <typename T>
Vector<T> mutable_vector(py::handle value, const char* name, int64_t size = kAnySize);
// As above; None becomes null.
template <typename T>
Vector<const T> optional_vector(py::handle value, const char* name, int64_t size = kAnySize);
template <typename T>
Packed<T> packed(py::handle value, const char* name);
Column<const float> optional_column(py::handle value, const char* name, int64_t size);
Column<float> mutable_column(py::handle value, const char* name, int64_t size);
// Returns whether ids are int64; otherwise they are int32.
bool is_wide(py::handle value, const char* name);
// Returns int32 or int64 ids; a strided array is copied. None becomes null.
Ids ids(py::handle value, const char* name);
Ids optional_ids(py::handle value, const char* name);
// Returns the two rows of an array [2, n].
std::pair<py::object, py::object> two_rows(py::handle value, const char* name, const char* shape);
// Returns a graph; its offsets and ids are checked only as they are read.
template <typename Vertex>
Topology<Vertex> topology(py::handle indptr, py::handle indices);
// Returns a float matrix. `value` is a torch tensor, or (array, name of its element type) with
// bfloat16 as 16-bit integers.
Matrix matrix(py::handle value, const char* name);
// As `matrix`, also for rows with a scale: (array of bytes, "int8" or "int4"). Their number of
// elements is unknown: their length is in bytes until they are `decoded`.
Matrix stored_matrix(py::handle value, const char* name);
// Returns the rows with `length` elements each. Throws ValueError that names the argument `blamed`
// if rows of `stored` have a different length.
Rows decoded(const Matrix& stored, int64_t length, const char* blamed);
// Returns stored rows as opaque bytes.
Rows as_bytes(Rows rows);
// Returns a writable matrix of float32 or bfloat16.
MutableMatrix mutable_matrix(py::handle value, const char* name);
// Returns a writable matrix of any element type, including rows with a scale as in stored_matrix.
MutableMatrix mutable_storage(py::handle value, const char* name);
// As mutable_storage, with an owner that keeps the memory alive after the call: not `value` itself,
// whose memory can be exchanged.
std::pair<MutableMatrix, py::object> kept_storage(py::handle value, const char* name);
// Returns the elements of a contiguous array with any number of axes.
Elements elements(py::handle value, const char* name);
// Returns a contiguous matrix of `num_rows` rows; `width` is the required row length, if known.
Vector<const float> float_table(py::handle value, const char* name, int64_t num_rows,
                                int64_t* width);
Vector<const int64_t> int64_table(py::handle value, const char* name, int64_t num_rows,
                                  int64_t* width);
// Returns contiguous float32 [any number, num_rows, width], with the number of elements.
Vector<float> mutable_blocks(py::handle value, const char* name, int64_t num_rows, int64_t width);

// An uninitialized torch tensor, and its memory.
struct NewTensor {
  py::object tensor;
  void* data;
};
NewTensor new_tensor(const py::tuple& shape, py::handle dtype);
// Returns a tensor with shape and type of `tensor`.
NewTensor new_tensor_like(py::handle tensor, const char* name);

// Calls use.operator()<Vertex>() with the id type of `value`.
template <typename Use>
auto for_vertices(py::handle value, const char* name, Use&& use) {
  return is_wide(value, name) ? use.template operator()<int64_t>()
                              : use.template operator()<int32_t>();
}

[[noreturn]] void refuse_memory(const char* name, py::handle value);

// Wraps a function so that running out of memory raises an error naming argument number `index`.
template <size_t index, typename Result, typename... Arguments>
auto naming(const char* name, Result (*function)(Arguments...)) {
  return [name, function](Arguments... arguments) -> Result {
    try {
      return function(arguments...);
    } catch (const std::bad_alloc&) {
      refuse_memory(name, std::get<index>(std::tie(arguments...)));
    }
  };
}

// Return type of bindings: a named tuple of the module.
class Record {
 public:
  // `fields` are separated by spaces; the last `num_optional` default to None.
  void define(py::module_& m, const char* name, const char* fields, size_t num_optional = 0);
  template <typename... Values>
  py::object operator()(Values&&... values) const {
    return py::handle(type_)(std::forward<Values>(values)...);
  }

 private:
  PyObject* type_ = nullptr;
};

// Runs Python's signal handlers at most twenty times a second during work without the GIL; an
// exception of a handler, such as KeyboardInterrupt, is thrown.
class Signals {
 public:
  void operator()() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return;
    last_ = now;
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Hands a native array over to NumPy without copying.
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
