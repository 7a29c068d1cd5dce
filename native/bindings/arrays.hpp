// What argument_checks.cpp and tensors.cpp ask of NumPy arrays.
#pragma once

#include "argument_checks.hpp"

namespace gnnscale {

std::string shape_of(const py::array& array);

// The array as it is, in memory that the processor can read as `itemsize` bytes each; `kinds` are
// NumPy's letters for types.
py::array array_of(py::handle value, const char* name, const char* kinds, int64_t itemsize,
                   const char* allowed);

void check_axes(const py::array& array, const char* name, int64_t num_axes);

// Elements from one entry of the first axis to the next; what only one entry has does not matter.
int64_t stride_of(const py::array& array, const char* name, int64_t if_single);

template <typename T>
T* writeable_data(py::array& array, const char* name) {
  if (!array.writeable()) refuse_value(name, "a read-only array", "writeable ones");
  return static_cast<T*>(array.mutable_data());
}

}  // namespace gnnscale
