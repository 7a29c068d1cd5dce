// NumPy array access shared by argument_checks.cpp and tensors.cpp.
#pragma once

#include "argument_checks.hpp"

namespace gnnscale {

std::string shape_of(const py::array& array);

// Returns the array unchanged, in host memory with elements of `itemsize` bytes; `kinds` are
// NumPy's type letters that are allowed.
py::array array_of(py::handle value, const char* name, const char* kinds, int64_t itemsize,
                   const char* allowed);

void check_axes(const py::array& array, const char* name, int64_t num_axes);

// Returns the stride of the first axis in elements; `if_single` for an array of one entry, whose
// stride is arbitrary.
int64_t stride_of(const py::array& array, const char* name, int64_t if_single);

template <typename T>
T* writeable_data(py::array& array, const char* name) {
  if (!array.writeable()) refuse_value(name, "a read-only array", "writeable ones");
  return static_cast<T*>(array.mutable_data());
}

}  // namespace gnnscale
