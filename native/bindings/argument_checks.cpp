#include "argument_checks.hpp"

#include <cmath>

#include "arrays.hpp"

namespace gnnscale {
namespace {

using Flags = py::detail::npy_api::constants;

std::string dtype_of(const py::array& array) { return py::str(array.dtype()); }

// NumPy's kind letter of a C++ type: f float, i signed, u unsigned.
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
template <>
constexpr const char* kNames<uint32_t> = "uint32";

bool is_of(const py::array& array, const char* kinds, int64_t itemsize) {
  const py::dtype dtype = array.dtype();
  return std::string(kinds).find(dtype.kind()) != std::string::npos &&
         dtype.itemsize() == itemsize && dtype.byteorder() != '>';
}

// Returns data and stride of a one-dimensional array.
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

}  // namespace

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

int64_t stride_of(const py::array& array, const char* name, int64_t if_single) {
  if (array.shape(0) <= 1) return if_single;
  if (array.strides(0) % array.itemsize() != 0) {
    refuse_value(name, "a stride of " + std::to_string(array.strides(0)) + " bytes",
                 "whole numbers of elements");
  }
  return array.strides(0) / array.itemsize();
}

void refuse_type(const char* name, const std::string& actual, const char* allowed) {
  throw py::type_error(std::string(name) + ": " + actual + ", allowed is " + allowed);
}

void refuse_value(const char* name, const std::string& actual, const std::string& allowed) {
  throw py::value_error(std::string(name) + ": " + actual + ", allowed are " + allowed);
}

void check_size(const char* name, int64_t actual, int64_t expected) {
  if (actual != expected) {
    throw py::value_error(std::string(name) + ": " + std::to_string(actual) + " entries, must be " +
                          std::to_string(expected));
  }
}

void check_width(const char* name, int64_t actual, int64_t expected) {
  if (actual != expected) {
    refuse_value(name, std::to_string(actual) + " columns", std::to_string(expected));
  }
}

int64_t num_lists(const Vector<const int64_t>& indptr, const char* items) {
  if (indptr.size < 1) {
    refuse_value("indptr", "no entry", std::string("one more entry than ") + items);
  }
  return indptr.size - 1;
}

void refuse_memory(const char* name, py::handle value) {
  const std::string what = py::isinstance<py::array>(value)
                               ? "shape " + shape_of(py::reinterpret_borrow<py::array>(value))
                               : std::string(py::str(value));
  py::set_error(PyExc_MemoryError,
                (std::string(name) + ": " + what + ", there is not so much memory").c_str());
  throw py::error_already_set();
}

void Record::define(py::module_& m, const char* name, const char* fields, size_t num_optional) {
  py::tuple defaults(num_optional);
  for (size_t i = 0; i < num_optional; ++i) defaults[i] = py::none();
  py::object type = py::module_::import("collections")
                        .attr("namedtuple")(name, fields, "defaults"_a = defaults,
                                            "module"_a = m.attr("__name__"));
  m.attr(name) = type;
  type_ = type.release().ptr();  // lives as long as the process
}

int64_t integer(py::handle value, const char* name, int64_t min, int64_t max) {
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!number) {
    PyErr_Clear();
    refuse_type(name, type_name(value), "a whole number");
  }
  int overflow = 0;
  const int64_t result = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0 || result < min || result > max) {
    refuse_value(name, overflow != 0 ? "more than 64 bits" : std::to_string(result),
                 std::to_string(min) + " to " + std::to_string(max));
  }
  return result;
}

uint64_t word(py::handle value, const char* name) {
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!number) {
    PyErr_Clear();
    refuse_type(name, type_name(value), "a whole number");
  }
  const uint64_t result = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    refuse_value(name, "a number outside of them", "0 to 2^64 - 1");
  }
  return result;
}

double real(py::handle value, const char* name, double min, double max) {
  const double result = PyFloat_AsDouble(value.ptr());
  if (result == -1.0 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    refuse_type(name, type_name(value), "a number");
  }
  if (!(result >= min && result <= max)) {
    refuse_value(name, std::to_string(result), std::to_string(min) + " to " + std::to_string(max));
  }
  return result;
}

bool flag(py::handle value, const char* name) {
  if (!py::isinstance<py::bool_>(value)) refuse_type(name, type_name(value), "True or False");
  return value.ptr() == Py_True;
}

int thread_count(py::handle value) {
  return static_cast<int>(integer(value, "num_threads", 1, kMaxThreads));
}

py::tuple sequence(py::handle value, const char* name, const char* allowed, size_t max_items) {
  if (!py::isinstance<py::list>(value) && !py::isinstance<py::tuple>(value)) {
    refuse_type(name, type_name(value), allowed);
  }
  auto items = py::tuple(py::reinterpret_borrow<py::object>(value));
  if (items.size() > max_items) {
    refuse_value(name, std::to_string(items.size()) + " items",
                 "up to " + std::to_string(max_items));
  }
  return items;
}

std::vector<int64_t> integers(py::handle values, const char* name, int64_t min, int64_t max) {
  std::vector<int64_t> result;
  for (const py::handle item : sequence(values, name, "a list of whole numbers", 64)) {
    result.push_back(integer(item, name, min, max));
  }
  return result;
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

bool is_wide(py::handle value, const char* name) {
  constexpr const char* kAllowed = "int32 and int64";
  if (!py::isinstance<py::array>(value)) refuse_type(name, type_name(value), kAllowed);
  const bool wide = py::reinterpret_borrow<py::array>(value).itemsize() == 8;
  array_of(value, name, "i", wide ? 8 : 4, kAllowed);
  return wide;
}

template <typename T>
Packed<T> packed(py::handle value, const char* name) {
  const auto [array, stride] = axis_of<T>(value, name, kAnySize);
  const auto* source = static_cast<const T*>(array.data());
  const int64_t size = array.shape(0);
  if (stride == 1) return {{source, size}, nullptr};
  const auto copy = std::make_shared_for_overwrite<T[]>(size);
  for (int64_t i = 0; i < size; ++i) copy[i] = source[i * stride];
  return {{copy.get(), size}, copy};
}

Ids ids(py::handle value, const char* name) {
  const auto with = [&]<typename Id>() -> Ids {
    auto packed_ids = packed<Id>(value, name);
    return {{packed_ids.data, sizeof(Id) == 8}, packed_ids.size, std::move(packed_ids.copy)};
  };
  return is_wide(value, name) ? with.template operator()<int64_t>()
                              : with.template operator()<int32_t>();
}

Ids optional_ids(py::handle value, const char* name) {
  return value.is_none() ? Ids{} : ids(value, name);
}

std::pair<py::object, py::object> two_rows(py::handle value, const char* name, const char* shape) {
  if (!py::isinstance<py::array>(value)) refuse_type(name, type_name(value), "an array");
  const auto array = py::reinterpret_borrow<py::array>(value);
  if (array.ndim() != 2 || array.shape(0) != 2) {
    refuse_value(name, "shape " + shape_of(array), shape);
  }
  return {array[py::int_(0)], array[py::int_(1)]};
}

template <typename Vertex>
Topology<Vertex> topology(py::handle indptr, py::handle indices) {
  const auto offsets = vector<int64_t>(indptr, "indptr");
  const auto neighbors = vector<Vertex>(indices, "indices");
  const int64_t num_vertices = num_lists(offsets, "vertices");
  if (num_vertices > kMaxLocal && sizeof(Vertex) == 4) {
    refuse_value("indices", "int32 with so many vertices", "int64");
  }
  const int64_t first = offsets.data[0], last = offsets.data[num_vertices];
  if (first != 0 || last != neighbors.size) {
    refuse_value("indptr", std::to_string(first) + " to " + std::to_string(last),
                 "0 to " + std::to_string(neighbors.size) + ", the number of indices");
  }
  return {num_vertices, neighbors.size, offsets.data, neighbors.data};
}
template Topology<int32_t> topology(py::handle, py::handle);
template Topology<int64_t> topology(py::handle, py::handle);
template Vector<const uint8_t> vector(py::handle, const char*, int64_t);
template Vector<const int16_t> vector(py::handle, const char*, int64_t);
template Vector<const int32_t> vector(py::handle, const char*, int64_t);
template Vector<const int64_t> vector(py::handle, const char*, int64_t);
template Vector<const float> vector(py::handle, const char*, int64_t);
template Vector<const double> vector(py::handle, const char*, int64_t);
template Packed<int16_t> packed(py::handle, const char*);
template Packed<float> packed(py::handle, const char*);
template Packed<int32_t> packed(py::handle, const char*);
template Packed<int64_t> packed(py::handle, const char*);
template Vector<uint8_t> mutable_vector(py::handle, const char*, int64_t);
template Vector<int32_t> mutable_vector(py::handle, const char*, int64_t);
template Vector<int64_t> mutable_vector(py::handle, const char*, int64_t);
template Vector<const int32_t> optional_vector(py::handle, const char*, int64_t);
template Vector<const uint32_t> optional_vector(py::handle, const char*, int64_t);
template Vector<const int64_t> optional_vector(py::handle, const char*, int64_t);
template Vector<float> mutable_vector(py::handle, const char*, int64_t);
template Vector<double> mutable_vector(py::handle, const char*, int64_t);
template Vector<const float> optional_vector(py::handle, const char*, int64_t);

}  // namespace gnnscale
