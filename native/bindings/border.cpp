#include "border.hpp"

#include <algorithm>
#include <atomic>
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

constexpr const char* kStored = "float32, float16, bfloat16 and uint8";

DType named_dtype(py::handle value, const char* name) {
  const auto text = py::isinstance<py::str>(value) ? std::string(py::str(value)) : type_name(value);
  if (text == "float32") return DType::float32;
  if (text == "float16") return DType::float16;
  if (text == "bfloat16") return DType::bfloat16;
  if (text == "uint8") return DType::uint8;
  refuse_type(name, text, kStored);
}

// What is used of torch. Names are kept, since a call may ask for each several times.
struct Torch {
  explicit Torch(const py::object& torch)
      : tensor(torch.attr("Tensor")),
        dtype_type(torch.attr("dtype")),
        strided(torch.attr("strided")),
        from_numpy(torch.attr("from_numpy")),
        int16(torch.attr("int16")),
        dtypes{torch.attr("float32"), torch.attr("float16"), torch.attr("bfloat16"),
               torch.attr("uint8")} {}

  py::object tensor, dtype_type, strided, from_numpy, int16;
  py::object dtypes[4];  // in the order of DType
  py::str is_cpu{"is_cpu"}, layout{"layout"}, is_neg{"is_neg"}, dtype{"dtype"}, view{"view"},
      requires_grad{"requires_grad"}, detach{"detach"}, numpy{"numpy"}, itemsize{"itemsize"};
};

// Null as long as nobody has imported torch.
const Torch* torch() {
  static std::atomic<const Torch*> known{nullptr};
  if (const Torch* found = known.load(std::memory_order_acquire)) return found;
  const auto module = py::reinterpret_steal<py::object>(PyImport_GetModule(py::str("torch").ptr()));
  if (!module) {
    PyErr_Clear();
    return nullptr;
  }
  known.store(new Torch(module), std::memory_order_release);  // stays as long as the process
  return known.load();
}

bool is_tensor(py::handle value) {
  return torch() != nullptr && py::isinstance(value, torch()->tensor);
}

py::object called(py::handle object, const py::str& method) {
  return py::reinterpret_steal<py::object>(PyObject_CallMethodNoArgs(object.ptr(), method.ptr()));
}

struct Typed {
  py::array array;
  DType dtype;
};

py::array array_of(py::handle value, const char* name, DType dtype) {
  switch (dtype) {
    case DType::float32: return array_of(value, name, "f", 4, "float32");
    case DType::float16: return array_of(value, name, "f", 2, "float16");
    case DType::bfloat16: return array_of(value, name, "iu", 2, "bfloat16 as 16 bits");
    case DType::uint8: return array_of(value, name, "u", 1, "uint8");
  }
  refuse_type(name, "no type", kStored);
}

// The elements of a tensor that keeps them, if they are plain ones in the host's memory.
Typed elements_of(py::handle tensor, const char* name) {
  const Torch& of = *torch();
  if (!tensor.attr(of.is_cpu).cast<bool>() || !py::object(tensor.attr(of.layout)).is(of.strided)) {
    refuse_type(name, "not dense or not on the CPU", "a dense tensor on the CPU");
  }
  if (called(tensor, of.is_neg).cast<bool>()) {
    refuse_value(name, "a view that negates", "elements as they are");
  }
  const py::object dtype = tensor.attr(of.dtype);
  const auto* const found = std::find_if(std::begin(of.dtypes), std::end(of.dtypes),
                                         [&](const py::object& each) { return each.is(dtype); });
  if (found == std::end(of.dtypes)) refuse_type(name, py::str(dtype), kStored);
  const auto known = static_cast<DType>(found - of.dtypes);
  auto plain = py::reinterpret_borrow<py::object>(tensor);
  if (plain.attr(of.requires_grad).cast<bool>()) plain = called(plain, of.detach);
  if (known == DType::bfloat16) plain = plain.attr(of.view)(of.int16);
  return {array_of(called(plain, of.numpy), name, known), known};
}

Typed typed(py::handle value, const char* name) {
  if (py::isinstance<py::tuple>(value) && py::len(value) == 2) {
    const auto pair = py::reinterpret_borrow<py::tuple>(value);
    const DType dtype = named_dtype(pair[1], name);
    return {array_of(pair[0], name, dtype), dtype};
  }
  if (!is_tensor(value)) {
    refuse_type(name, type_name(value), "a torch tensor, or (array, element type)");
  }
  return elements_of(value, name);
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

int64_t num_lists(const Vector<const int64_t>& indptr, const char* of) {
  if (indptr.size < 1) {
    refuse_value("indptr", "no entry", std::string("one more entry than ") + of);
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
  type_ = type.release().ptr();  // as long as the process
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

py::sequence sequence(py::handle value, const char* name, const char* allowed, size_t max_items) {
  if (!py::isinstance<py::list>(value) && !py::isinstance<py::tuple>(value)) {
    refuse_type(name, type_name(value), allowed);
  }
  auto items = py::reinterpret_borrow<py::sequence>(value);
  if (items.size() > max_items) {
    refuse_value(name, std::to_string(items.size()) + " items",
                 "up to " + std::to_string(max_items));
  }
  return items;
}

std::vector<int64_t> integers(py::handle values, const char* name, int64_t min, int64_t max) {
  std::vector<int64_t> found;
  for (const py::handle item : sequence(values, name, "a list of whole numbers", 64)) {
    found.push_back(integer(item, name, min, max));
  }
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
  const auto* given = static_cast<const T*>(array.data());
  const int64_t size = array.shape(0);
  if (stride == 1) return {{given, size}, nullptr};
  const auto copy = std::make_shared_for_overwrite<T[]>(size);
  for (int64_t i = 0; i < size; ++i) copy[i] = given[i * stride];
  return {{copy.get(), size}, copy};
}

Ids ids(py::handle value, const char* name) {
  const auto with = [&]<typename Id>() -> Ids {
    auto found = packed<Id>(value, name);
    return {{found.data, sizeof(Id) == 8}, found.size, std::move(found.copy)};
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

Matrix matrix(py::handle value, const char* name) {
  const Typed rows = typed(value, name);
  const auto [length, stride] = row_layout(rows.array, name);
  return {{rows.array.data(), rows.dtype, length, stride}, rows.array.shape(0)};
}

namespace {

MutableMatrix written_to(Typed rows, const char* name) {
  const auto [length, stride] = row_layout(rows.array, name);
  if (rows.array.shape(0) > 1 && std::abs(stride) < length) {
    refuse_value(name, "rows that overlap", "rows of their own");
  }
  return {{writeable_data<void>(rows.array, name), rows.dtype, length, stride},
          rows.array.shape(0)};
}

}  // namespace

MutableMatrix mutable_matrix(py::handle value, const char* name) {
  const Typed rows = typed(value, name);
  check_computed(name, rows.dtype);
  return written_to(rows, name);
}

MutableMatrix mutable_storage(py::handle value, const char* name) {
  return written_to(typed(value, name), name);
}

Elements elements(py::handle value, const char* name) {
  const Typed found = typed(value, name);
  check_computed(name, found.dtype);
  if ((found.array.flags() & py::array::c_style) == 0) {
    refuse_value(name, "an array with gaps", "contiguous arrays");
  }
  return {found.array.data(), found.dtype, found.array.size()};
}

namespace {

py::array table_of(py::array array, const char* name, int64_t num_rows, int64_t* width) {
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

Vector<const float> float_table(py::handle value, const char* name, int64_t num_rows,
                                int64_t* width) {
  const Typed found = typed(value, name);
  if (found.dtype != DType::float32) refuse_type(name, "another type", "float32");
  const py::array array = table_of(found.array, name, num_rows, width);
  return {static_cast<const float*>(array.data()), array.shape(0)};
}

Vector<const int64_t> int64_table(py::handle value, const char* name, int64_t num_rows,
                                  int64_t* width) {
  const py::array array = table_of(array_of(value, name, "i", 8, "int64"), name, num_rows, width);
  return {static_cast<const int64_t*>(array.data()), array.shape(0)};
}

Vector<float> mutable_blocks(py::handle value, const char* name, int64_t num_rows, int64_t width) {
  py::array array = array_of(value, name, "f", 4, "float32");
  if (array.ndim() != 3 || array.shape(1) != num_rows || array.shape(2) != width) {
    refuse_value(name, "shape " + shape_of(array),
                 "[any, " + std::to_string(num_rows) + ", " + std::to_string(width) + "]");
  }
  if ((array.flags() & py::array::c_style) == 0) {
    refuse_value(name, "an array with gaps", "contiguous arrays");
  }
  return {writeable_data<float>(array, name), array.shape(0)};
}

NewTensor new_tensor(const py::tuple& shape, py::handle dtype) {
  const Torch* const of = torch();
  if (of == nullptr || !py::isinstance(dtype, of->dtype_type)) {
    refuse_type("dtype", type_name(dtype), "one of torch's");
  }
  // Sizes that are beyond memory by themselves are so beside a 0, too: strides would overflow.
  const auto width = dtype.attr(of->itemsize).cast<int64_t>();
  int64_t num_bytes = width, limit = kMaxBytes / width;
  for (const py::handle item : shape) {
    if (!PyLong_CheckExact(item.ptr())) {
      refuse_type("shape", type_name(item), "a tuple of whole numbers");
    }
    const int64_t size = integer(item, "shape", 0, limit);
    num_bytes *= size;
    limit /= std::max<int64_t>(size, 1);
  }
  Array<uint8_t> memory(num_bytes);
  void* const data = memory.data.get();
  const py::object bytes = of->from_numpy(to_numpy(std::move(memory)));
  return {bytes.attr(of->view)(dtype).attr(of->view)(shape), data};
}

NewTensor new_tensor_like(py::handle tensor, const char* name) {
  if (!is_tensor(tensor)) refuse_type(name, type_name(tensor), "a torch tensor");
  return new_tensor(py::tuple(tensor.attr("shape")), tensor.attr(torch()->dtype));
}

template Topology<int32_t> topology(py::handle, py::handle);
template Topology<int64_t> topology(py::handle, py::handle);
template Vector<const uint8_t> vector(py::handle, const char*, int64_t);
template Vector<const int16_t> vector(py::handle, const char*, int64_t);
template Vector<const int32_t> vector(py::handle, const char*, int64_t);
template Vector<const int64_t> vector(py::handle, const char*, int64_t);
template Vector<const float> vector(py::handle, const char*, int64_t);
template Vector<const double> vector(py::handle, const char*, int64_t);
template Packed<int32_t> packed(py::handle, const char*);
template Packed<int64_t> packed(py::handle, const char*);
template Vector<uint8_t> mutable_vector(py::handle, const char*, int64_t);
template Vector<int32_t> mutable_vector(py::handle, const char*, int64_t);
template Vector<int64_t> mutable_vector(py::handle, const char*, int64_t);
template Vector<const int32_t> optional_vector(py::handle, const char*, int64_t);
template Vector<const int64_t> optional_vector(py::handle, const char*, int64_t);
template Vector<float> mutable_vector(py::handle, const char*, int64_t);
template Vector<double> mutable_vector(py::handle, const char*, int64_t);
template Vector<const float> optional_vector(py::handle, const char*, int64_t);

}  // namespace gnnscale
