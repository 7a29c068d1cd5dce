// The border between Python and native code: what comes in is checked here, once, and becomes a
// typed view. Whatever is refused is a TypeError or a ValueError whose message begins with the
// argument's name. Views are made while the GIL is held and used without it; nothing behind them is
// a Python object. What arrays hold is checked by gnnscale/checks.hpp.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gnnscale/checks.hpp"
#include "gnnscale/memory.hpp"
#include "gnnscale/rows.hpp"
#include "gnnscale/topology.hpp"

namespace gnnscale {

namespace py = pybind11;
using NoGil = py::gil_scoped_release;

// A contiguous array of one axis.
template <typename T>
struct Vector {
  T* data = nullptr;
  int64_t size = 0;
};

// An array of one axis with any stride; no data where it was None.
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
  void* data = nullptr;
  DType dtype = DType::float32;
  int64_t size = 0;
};

inline constexpr int64_t kMaxThreads = 4096;
inline constexpr int64_t kAnySize = -1;

[[noreturn]] void refuse_type(const char* name, const std::string& found, const char* allowed);
[[noreturn]] void refuse_value(const char* name, const std::string& found,
                               const std::string& allowed);

// Throws ValueError unless `found` entries are the `wanted` ones.
void check_size(const char* name, int64_t found, int64_t wanted);
// The same of the columns of a matrix.
void check_width(const char* name, int64_t found, int64_t wanted);

// Scalars. Whole numbers are whatever has __index__; NaN and infinities are refused.
int64_t integer(py::handle value, const char* name, int64_t min, int64_t max);
uint64_t word(py::handle value, const char* name);
double real(py::handle value, const char* name, double min, double max);
bool flag(py::handle value, const char* name);
int thread_count(py::handle value);
std::vector<int64_t> integers(py::handle values, const char* name, int64_t min, int64_t max);

// An array of one axis of type T, in place: nothing is converted or copied. `size` is its length
// where that is known.
template <typename T>
Vector<const T> vector(py::handle value, const char* name, int64_t size = kAnySize);
template <typename T>
Vector<T> mutable_vector(py::handle value, const char* name, int64_t size = kAnySize);
// None gives no data.
template <typename T>
Vector<const T> optional_vector(py::handle value, const char* name, int64_t size = kAnySize);
Column<const float> optional_column(py::handle value, const char* name, int64_t size);
Column<float> mutable_column(py::handle value, const char* name, int64_t size);
// int32 or int64; None gives no data.
Ids ids(py::handle value, const char* name);
Ids optional_ids(py::handle value, const char* name);
// A whole graph; offsets and ids in between are checked as they are read.
template <typename Vertex>
Topology<Vertex> topology(py::handle indptr, py::handle indices);
// `value` is (array, name of its element type); bfloat16 comes as 16-bit whole numbers.
Matrix matrix(py::handle value, const char* name);
// float32 or bfloat16.
MutableMatrix mutable_matrix(py::handle value, const char* name);
// Any element type.
MutableMatrix mutable_storage(py::handle value, const char* name);
Elements elements(py::handle value, const char* name);
Elements mutable_elements(py::handle value, const char* name);
// Contiguous float32 of two axes.
Vector<const float> table(py::handle value, const char* name, int64_t num_rows, int64_t* width);
Vector<float> mutable_table(py::handle value, const char* name, int64_t num_rows, int64_t* width);

// Calls use.operator()<Vertex>() with the type of the ids in `value`.
template <typename Use>
auto for_vertices(py::handle value, const char* name, Use&& use) {
  return ids(value, name).ids.wide ? use.template operator()<int64_t>()
                                   : use.template operator()<int32_t>();
}

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
void bind_read_ahead(py::module_& m);
void bind_elementwise(py::module_& m);
void bind_generators(py::module_& m);
void bind_partition(py::module_& m);
void bind_edge_cut(py::module_& m);
void bind_replacement(py::module_& m);
void bind_cached_rows(py::module_& m);
void bind_ranked_slots(py::module_& m);
void bind_hotness(py::module_& m);
void bind_along(py::module_& m);
void bind_arrange(py::module_& m);
void bind_id_table(py::module_& m);

}  // namespace gnnscale
