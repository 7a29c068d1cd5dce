#include "border.hpp"

#include <cmath>
#include <cstdlib>

namespace gnnscale {
namespace {

using Flags = py::detail::npy_api::constants;

std::string type_name(py::handle value) {
  return py::str(py::type::handle_of(value).attr("__name__"));
}

std::string shape_of(const py::array& array) {
  std::string text;
  for (py::ssize_t axis = 0; axis < array.ndim(); ++axis) {
    if (axis != 0) text += ", ";
    text += std::to_string(array.shape(axis));
  }
  return "[" + text + "]";
}

std::string dtype_of(const py::array& array) { return py::str(array.dtype()); }

// NumPy's letter for a C++ type: f float, i signed, u unsigned; a string of those allowed.
template <typename T>
constexpr const char* kKinds = std::is_floating_point_v<T> ? "f"
                               : std::is_unsigned_v<T>     ? "u"
                                                           : "i";
template <typename T>
constexpr const char* kNames = "";
template <>
constexpr const char* kNames<float> = "float32";
template <>
constexpr const char* kNames<double> = "float64";
template <>
constexpr const char* kNames<uint8_t> = "uint8";
template <>
constexpr const char* kNames<int16_t> = "int16";
template <>
constexpr const char* kNames<int32_t> = "int32";
template <>
constexpr const char* kNames<int64_t> = "int64";

bool is_of(const py::array& array, const char* kinds, int64_t itemsize) {
  const py::dtype dtype = array.dtype();
  return std::string(kinds).find(dtype.kind()) != std::string::npos &&
         dtype.itemsize() == itemsize && dtype.byteorder() != '>';
}

// The array as it is, in memory that the processor can read as `itemsize` bytes each.
py::array array_of(py::handle value, const char* name, const char* kinds, int64_t itemsize,
                   const char* allowed) {
  if (!py::isinstance<py::array>(value)) refuse_type(name, type_name(value), allowed);
  auto array = py::reinterpret_borrow<py::array>(value);
  if (!is_of(array, kinds, itemsize)) refuse_type(name, dtype_of(array), allowed);
  if ((array.flags() & Flags::NPY_ARRAY_ALIGNED_) == 0) {
    refuse_value(name, "an array that is not aligned", "aligned ones");
  }
  return array;
}

void check_axes(const py::array& array, const char* name, int64_t num_axes) {
  if (array.ndim() != num_axes) {
    refuse_value(name, "shape " + shape_of(array),
                 num_axes == 1 ? "arrays of one axis" : "arrays of two axes");
  }
}

void check_writeable(const py::array& array, const char* name) {
  if (!array.writeable()) refuse_value(name, "a read-only array", "writeable ones");
}

// Elements from one entry of the first axis to the next; what only one entry has does not matter.
int64_t stride_of(const py::array& array, const char* name, int64_t if_single) {
  if (array.shape(0) <= 1) return if_single;
  if (array.strides(0) % array.itemsize() != 0) {
    refuse_value(name, "a stride of " + std::to_string(array.strides(0)) + " bytes",
                 "whole numbers of elements");
  }
  return array.strides(0) / array.itemsize();
}

// The data of an array of one axis and its stride.
template <typename T>
std::pair<py::array, int64_t> axis_of(py::handle value, const char* name, int64_t size) {
  py::array array = array_of(value, name, kKinds<T>, sizeof(T), kNames<T>);
  check_axes(array, name, 1);
  if (size != kAnySize) check_size(name, array.shape(0), size);
  return {array, stride_of(array, name, 1)};
}

void check_contiguous(const char* name, int64_t stride) {
  if (stride != 1) {
    refuse_value(name, "a stride of " + std::to_string(stride) + " elements", "contiguous arrays");
  }
}

template <typename T>
T* writeable_data(py::array& array, const char* name) {
  check_writeable(array, name);
  return static_cast<T*>(array.mutable_data());
}

DType named_dtype(py::handle value, const char* name) {
  const auto text = py::isinstance<py::str>(value) ? std::string(py::str(value)) : type_name(value);
  if (text == "float32") return DType::float32;
  if (text == "float16") return DType::float16;
  if (text == "bfloat16") return DType::bfloat16;
  if (text == "uint8") return DType::uint8;
  refuse_type(name, text, "float32, float16, bfloat16 and uint8");
}

struct Typed {
  py::array array;
  DType dtype;
};

Typed typed(py::handle value, const char* name) {
  if (!py::isinstance<py::tuple>(value) || py::len(value) != 2) {
    refuse_type(name, type_name(value), "(array, element type)");
  }
  const auto pair = py::reinterpret_borrow<py::tuple>(value);
  const DType dtype = named_dtype(pair[1], name);
  switch (dtype) {
    case DType::float32: return {array_of(pair[0], name, "f", 4, "float32"), dtype};
    case DType::float16: return {array_of(pair[0], name, "f", 2, "float16"), dtype};
    case DType::bfloat16: return {array_of(pair[0], name, "iu", 2, "bfloat16 as 16 bits"), dtype};
    case DType::uint8: return {array_of(pair[0], name, "u", 1, "uint8"), dtype};
  }
  refuse_type(name, "no type", "float32, float16, bfloat16 and uint8");
}

void check_computed(const char* name, DType dtype) {
  if (dtype == DType::float16) refuse_type(name, "float16", "float32 and bfloat16");
  if (dtype == DType::uint8) refuse_type(name, "uint8", "float32 and bfloat16");
}

// Row length and stride of a matrix with contiguous rows.
std::pair<int64_t, int64_t> row_layout(const py::array& array, const char* name) {
  check_axes(array, name, 2);
  const int64_t length = array.shape(1);
  if (array.size() != 0 && length > 1 && array.strides(1) != array.itemsize()) {
    refuse_value(name, "shape " + shape_of(array) + " with strided rows", "contiguous rows");
  }
  return {length, stride_of(array, name, length)};
}

}  // namespace

void refuse_type(const char* name, const std::string& found, const char* allowed) {
  throw py::type_error(std::string(name) + ": " + found + ", allowed is " + allowed);
}

void refuse_value(const char* name, const std::string& found, const std::string& allowed) {
  throw py::value_error(std::string(name) + ": " + found + ", allowed are " + allowed);
}

void check_size(const char* name, int64_t found, int64_t wanted) {
  if (found != wanted) {
    throw py::value_error(std::string(name) + ": " + std::to_string(found) + " entries, must be " +
                          std::to_string(wanted));
  }
}

void check_width(const char* name, int64_t found, int64_t wanted) {
  if (found != wanted) {
    refuse_value(name, std::to_string(found) + " columns", std::to_string(wanted));
  }
}

int64_t integer(py::handle value, const char* name, int64_t min, int64_t max) {
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!number) {
    PyErr_Clear();
    refuse_type(name, type_name(value), "a whole number");
  }
  int overflow = 0;
  const int64_t found = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0 || found < min || found > max) {
    refuse_value(name, overflow != 0 ? "more than 64 bits" : std::to_string(found),
                 std::to_string(min) + " to " + std::to_string(max));
  }
  return found;
}

uint64_t word(py::handle value, const char* name) {
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!number) {
    PyErr_Clear();
    refuse_type(name, type_name(value), "a whole number");
  }
  const uint64_t found = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    refuse_value(name, "a number outside of them", "0 to 2^64 - 1");
  }
  return found;
}

double real(py::handle value, const char* name, double min, double max) {
  const double found = PyFloat_AsDouble(value.ptr());
  if (found == -1.0 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    refuse_type(name, type_name(value), "a number");
  }
  if (!(found >= min && found <= max)) {
    refuse_value(name, std::to_string(found), std::to_string(min) + " to " + std::to_string(max));
  }
  return found;
}

bool flag(py::handle value, const char* name) {
  if (!py::isinstance<py::bool_>(value)) refuse_type(name, type_name(value), "True or False");
  return value.ptr() == Py_True;
}

int thread_count(py::handle value) {
  return static_cast<int>(integer(value, "num_threads", 1, kMaxThreads));
}

std::vector<int64_t> integers(py::handle values, const char* name, int64_t min, int64_t max) {
  constexpr size_t kMaxItems = 64;
  if (!py::isinstance<py::list>(values) && !py::isinstance<py::tuple>(values)) {
    refuse_type(name, type_name(values), "a list of whole numbers");
  }
  const auto items = py::reinterpret_borrow<py::sequence>(values);
  if (items.size() > kMaxItems) {
    refuse_value(name, std::to_string(items.size()) + " items",
                 "up to " + std::to_string(kMaxItems));
  }
  std::vector<int64_t> found;
  for (const py::handle item : items) found.push_back(integer(item, name, min, max));
  return found;
}

template <typename T>
Vector<const T> vector(py::handle value, const char* name, int64_t size) {
  const auto [array, stride] = axis_of<T>(value, name, size);
  check_contiguous(name, stride);
  return {static_cast<const T*>(array.data()), array.shape(0)};
}

template <typename T>
Vector<T> mutable_vector(py::handle value, const char* name, int64_t size) {
  auto [array, stride] = axis_of<T>(value, name, size);
  check_contiguous(name, stride);
  return {writeable_data<T>(array, name), array.shape(0)};
}

template <typename T>
Vector<const T> optional_vector(py::handle value, const char* name, int64_t size) {
  return value.is_none() ? Vector<const T>{} : vector<T>(value, name, size);
}

Column<const float> optional_column(py::handle value, const char* name, int64_t size) {
  if (value.is_none()) return {};
  const auto [array, stride] = axis_of<float>(value, name, size);
  return {static_cast<const float*>(array.data()), stride, array.shape(0)};
}

Column<float> mutable_column(py::handle value, const char* name, int64_t size) {
  auto [array, stride] = axis_of<float>(value, name, size);
  return {writeable_data<float>(array, name), stride, array.shape(0)};
}

Ids ids(py::handle value, const char* name) {
  constexpr const char* kAllowed = "int32 and int64";
  if (!py::isinstance<py::array>(value)) refuse_type(name, type_name(value), kAllowed);
  const bool wide = py::reinterpret_borrow<py::array>(value).itemsize() == 8;
  const py::array array = array_of(value, name, "i", wide ? 8 : 4, kAllowed);
  check_axes(array, name, 1);
  check_contiguous(name, stride_of(array, name, 1));
  return {{array.data(), wide}, array.shape(0)};
}

Ids optional_ids(py::handle value, const char* name) {
  return value.is_none() ? Ids{} : ids(value, name);
}

template <typename Vertex>
Topology<Vertex> topology(py::handle indptr, py::handle indices) {
  const auto offsets = vector<int64_t>(indptr, "indptr");
  const auto neighbors = vector<Vertex>(indices, "indices");
  if (offsets.size < 1) refuse_value("indptr", "no entry", "one more entry than vertices");
  if (offsets.size - 1 > kMaxLocal && sizeof(Vertex) == 4) {
    refuse_value("indices", "int32 with so many vertices", "int64");
  }
  const int64_t first = offsets.data[0], last = offsets.data[offsets.size - 1];
  if (first != 0 || last != neighbors.size) {
    refuse_value("indptr", std::to_string(first) + " to " + std::to_string(last),
                 "0 to " + std::to_string(neighbors.size) + ", the number of indices");
  }
  return {offsets.size - 1, neighbors.size, offsets.data, neighbors.data};
}

Matrix matrix(py::handle value, const char* name) {
  const Typed rows = typed(value, name);
  const auto [length, stride] = row_layout(rows.array, name);
  return {{rows.array.data(), rows.dtype, length, stride}, rows.array.shape(0)};
}

MutableMatrix mutable_matrix(py::handle value, const char* name) {
  check_computed(name, typed(value, name).dtype);
  return mutable_storage(value, name);
}

MutableMatrix mutable_storage(py::handle value, const char* name) {
  Typed rows = typed(value, name);
  const auto [length, stride] = row_layout(rows.array, name);
  if (rows.array.shape(0) > 1 && std::abs(stride) < length) {
    refuse_value(name, "rows that overlap", "rows of their own");
  }
  return {{writeable_data<void>(rows.array, name), rows.dtype, length, stride},
          rows.array.shape(0)};
}

Elements elements(py::handle value, const char* name) {
  const Typed found = typed(value, name);
  check_computed(name, found.dtype);
  check_axes(found.array, name, 1);
  check_contiguous(name, stride_of(found.array, name, 1));
  // Only mutable_elements writes to it.
  return {const_cast<void*>(found.array.data()), found.dtype, found.array.shape(0)};
}

Elements mutable_elements(py::handle value, const char* name) {
  const Elements found = elements(value, name);
  check_writeable(typed(value, name).array, name);
  return found;
}

namespace {

py::array table_of(py::handle value, const char* name, int64_t num_rows, int64_t* width) {
  py::array array = array_of(value, name, "f", 4, "float32");
  check_axes(array, name, 2);
  if (num_rows != kAnySize) check_size(name, array.shape(0), num_rows);
  const auto [length, stride] = row_layout(array, name);
  if (stride != length) refuse_value(name, "rows with gaps", "contiguous arrays");
  if (*width != kAnySize && *width != length) {
    refuse_value(name, "shape " + shape_of(array), std::to_string(*width) + " columns");
  }
  *width = length;
  return array;
}

}  // namespace

Vector<const float> table(py::handle value, const char* name, int64_t num_rows, int64_t* width) {
  const py::array array = table_of(value, name, num_rows, width);
  return {static_cast<const float*>(array.data()), array.shape(0)};
}

Vector<float> mutable_table(py::handle value, const char* name, int64_t num_rows, int64_t* width) {
  py::array array = table_of(value, name, num_rows, width);
  return {writeable_data<float>(array, name), array.shape(0)};
}

template Topology<int32_t> topology(py::handle, py::handle);
template Topology<int64_t> topology(py::handle, py::handle);
template Vector<const uint8_t> vector(py::handle, const char*, int64_t);
template Vector<const int16_t> vector(py::handle, const char*, int64_t);
template Vector<const int32_t> vector(py::handle, const char*, int64_t);
template Vector<const int64_t> vector(py::handle, const char*, int64_t);
template Vector<const float> vector(py::handle, const char*, int64_t);
template Vector<const double> vector(py::handle, const char*, int64_t);
template Vector<uint8_t> mutable_vector(py::handle, const char*, int64_t);
template Vector<int32_t> mutable_vector(py::handle, const char*, int64_t);
template Vector<int64_t> mutable_vector(py::handle, const char*, int64_t);
template Vector<const int32_t> optional_vector(py::handle, const char*, int64_t);
template Vector<const int64_t> optional_vector(py::handle, const char*, int64_t);
template Vector<float> mutable_vector(py::handle, const char*, int64_t);
template Vector<double> mutable_vector(py::handle, const char*, int64_t);
template Vector<const float> optional_vector(py::handle, const char*, int64_t);

}  // namespace gnnscale
