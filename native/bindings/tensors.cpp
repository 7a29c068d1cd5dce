// Matrices and elements of any type: torch tensors, and arrays with a type name.
#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "argument_checks.hpp"
#include "arrays.hpp"

namespace gnnscale {
namespace {

constexpr const char* kStored = "float32, float16, bfloat16 and uint8";
constexpr const char* kAnyStored = "float32, float16, bfloat16, uint8, int8 and int4";

DType named_dtype(py::handle value, const char* name, bool may_have_scale) {
  const auto text = py::isinstance<py::str>(value) ? std::string(py::str(value)) : type_name(value);
  if (text == "float32") return DType::float32;
  if (text == "float16") return DType::float16;
  if (text == "bfloat16") return DType::bfloat16;
  if (text == "uint8") return DType::uint8;
  if (may_have_scale && text == "int8") return DType::int8;
  if (may_have_scale && text == "int4") return DType::int4;
  refuse_type(name, text, may_have_scale ? kAnyStored : kStored);
}

// Objects of torch that bindings use. Attribute names are interned, since a call may look several
// of them up.
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

// Returns null until torch has been imported.
const Torch* torch() {
  static std::atomic<const Torch*> instance{nullptr};
  if (const Torch* loaded = instance.load(std::memory_order_acquire)) return loaded;
  const auto module = py::reinterpret_steal<py::object>(PyImport_GetModule(py::str("torch").ptr()));
  if (!module) {
    PyErr_Clear();
    return nullptr;
  }
  instance.store(new Torch(module), std::memory_order_release);  // lives as long as the process
  return instance.load();
}

bool is_tensor(py::handle value) {
  return torch() != nullptr && py::isinstance(value, torch()->tensor);
}

py::object called(py::handle object, const py::str& method) {
  PyObject* const result = PyObject_CallMethodNoArgs(object.ptr(), method.ptr());
  if (result == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(result);
}

struct Typed {
  py::array array;
  DType dtype;
};

py::array array_of_type(py::handle value, const char* name, DType dtype) {
  switch (dtype) {
    case DType::float32: return array_of(value, name, "f", 4, "float32");
    case DType::float16: return array_of(value, name, "f", 2, "float16");
    case DType::bfloat16: return array_of(value, name, "iu", 2, "bfloat16 as 16 bits");
    case DType::uint8: return array_of(value, name, "u", 1, "uint8");
    case DType::int8:
    case DType::int4: return array_of(value, name, "u", 1, "rows as bytes of uint8");
  }
  refuse_type(name, "no type", kStored);
}

// Returns the elements of a tensor, which must be dense and in host memory.
Typed elements_of(py::handle tensor, const char* name) {
  const Torch& names = *torch();
  if (!tensor.attr(names.is_cpu).cast<bool>() ||
      !py::object(tensor.attr(names.layout)).is(names.strided)) {
    refuse_type(name, "not dense or not on the CPU", "a dense tensor on the CPU");
  }
  if (called(tensor, names.is_neg).cast<bool>()) {
    refuse_value(name, "a view that negates", "elements as they are");
  }
  const py::object dtype = tensor.attr(names.dtype);
  const auto* const match =
      std::find_if(std::begin(names.dtypes), std::end(names.dtypes),
                   [&](const py::object& candidate) { return candidate.is(dtype); });
  if (match == std::end(names.dtypes)) refuse_type(name, py::str(dtype), kStored);
  const auto type = static_cast<DType>(match - names.dtypes);
  auto plain = py::reinterpret_borrow<py::object>(tensor);
  if (plain.attr(names.requires_grad).cast<bool>()) plain = called(plain, names.detach);
  if (type == DType::bfloat16) plain = plain.attr(names.view)(names.int16);
  return {array_of_type(called(plain, names.numpy), name, type), type};
}

Typed typed(py::handle value, const char* name, bool may_have_scale = false) {
  if (py::isinstance<py::tuple>(value) && py::len(value) == 2) {
    const auto pair = py::reinterpret_borrow<py::tuple>(value);
    const DType dtype = named_dtype(pair[1], name, may_have_scale);
    return {array_of_type(pair[0], name, dtype), dtype};
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

// Returns row length and stride of a matrix with contiguous rows.
std::pair<int64_t, int64_t> row_layout(const py::array& array, const char* name) {
  check_axes(array, name, 2);
  const int64_t length = array.shape(1);
  if (array.size() != 0 && length > 1 && array.strides(1) != array.itemsize()) {
    refuse_value(name, "shape " + shape_of(array) + " with strided rows", "contiguous rows");
  }
  return {length, stride_of(array, name, length)};
}

}  // namespace

namespace {

Matrix read_from(const Typed& rows, const char* name) {
  const auto [length, stride] = row_layout(rows.array, name);
  return {{rows.array.data(), rows.dtype, length, stride}, rows.array.shape(0)};
}

}  // namespace

Matrix matrix(py::handle value, const char* name) { return read_from(typed(value, name), name); }

Matrix stored_matrix(py::handle value, const char* name) {
  return read_from(typed(value, name, true), name);
}

Rows decoded(const Matrix& stored, int64_t length, const char* blamed) {
  Rows rows = stored.rows;
  if (!has_scale(rows.dtype)) {
    check_width(blamed, length, rows.length);
  } else if (row_bytes(rows.dtype, length) != rows.length) {
    refuse_value(blamed, std::to_string(length) + " columns",
                 "what a row of " + std::to_string(rows.length) + " bytes, scale included, holds");
  }
  rows.length = length;
  return rows;
}

Rows as_bytes(Rows rows) {
  if (has_scale(rows.dtype)) rows.dtype = DType::uint8;
  return rows;
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
  return written_to(typed(value, name, true), name);
}

std::pair<MutableMatrix, py::object> kept_storage(py::handle value, const char* name) {
  auto owner = py::reinterpret_borrow<py::object>(value);
  if (is_tensor(value)) owner = called(value, torch()->detach);
  Typed rows = typed(owner, name);
  const MutableMatrix view = written_to(rows, name);
  return {view, std::move(rows.array)};
}

Elements elements(py::handle value, const char* name) {
  const Typed typed_elements = typed(value, name);
  check_computed(name, typed_elements.dtype);
  if ((typed_elements.array.flags() & py::array::c_style) == 0) {
    refuse_value(name, "an array with gaps", "contiguous arrays");
  }
  return {typed_elements.array.data(), typed_elements.dtype, typed_elements.array.size()};
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
  const Typed matrix_data = typed(value, name);
  if (matrix_data.dtype != DType::float32) refuse_type(name, "another type", "float32");
  const py::array array = table_of(matrix_data.array, name, num_rows, width);
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
  const Torch* const names = torch();
  if (names == nullptr || !py::isinstance(dtype, names->dtype_type)) {
    refuse_type("dtype", type_name(dtype), "one of torch's");
  }
  // A size beyond memory is rejected even next to a size of 0: strides would overflow.
  const auto width = dtype.attr(names->itemsize).cast<int64_t>();
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
  const py::object bytes = names->from_numpy(to_numpy(std::move(memory)));
  return {bytes.attr(names->view)(dtype).attr(names->view)(shape), data};
}

NewTensor new_tensor_like(py::handle tensor, const char* name) {
  if (!is_tensor(tensor)) refuse_type(name, type_name(tensor), "a torch tensor");
  return new_tensor(py::tuple(tensor.attr("shape")), tensor.attr(torch()->dtype));
}

}  // namespace gnnscale
