// All kernels and their host runtime as one library: see gnnscale/backend/cuda/host_kernels.py,
// which includes the kernels in front of this file.
#include <cstring>
#include <exception>
#include <string>

#include "host/launch.hpp"

namespace {

using gnnscale::cuda_host::Kernel;

// Writes a message with its terminator, truncated to `capacity`. Returns the status of a failure.
int fail(const std::string& message, char* error, size_t capacity) {
  const size_t size = message.size() < capacity - 1 ? message.size() : capacity - 1;
  std::memcpy(error, message.data(), size);
  error[size] = 0;
  return 1;
}

const Kernel* find(const std::string& name) {
  for (const Kernel& candidate : gnnscale::cuda_host::kernels()) {
    if (candidate.name == name) return &candidate;
  }
  return nullptr;
}

}  // namespace

extern "C" {

// Runs a kernel. Returns 0, or 1 and writes an error message.
__attribute__((visibility("default"))) int gnnscale_cuda_launch(
    const char* name, unsigned grid, unsigned block, void** arguments, const unsigned* sizes,
    unsigned num_arguments, unsigned host_threads, char* error, size_t capacity) {
  const Kernel* kernel = find(name);
  if (kernel == nullptr) return fail("no kernel is called " + std::string(name), error, capacity);
  if (kernel->sizes.size() != num_arguments) {
    return fail(kernel->name + ": takes " + std::to_string(kernel->sizes.size()) + " arguments, " +
                    std::to_string(num_arguments) + " given",
                error, capacity);
  }
  for (unsigned i = 0; i < num_arguments; ++i) {
    if (kernel->sizes[i] == sizes[i]) continue;
    return fail(kernel->name + ": argument " + std::to_string(i) + " has " +
                    std::to_string(kernel->sizes[i]) + " bytes, " + std::to_string(sizes[i]) +
                    " given",
                error, capacity);
  }
  try {
    gnnscale::cuda_host::launch(*kernel, grid, block, arguments, host_threads);
    return 0;
  } catch (const std::exception& thrown) {
    return fail(thrown.what(), error, capacity);
  }
}

// Returns the names of all kernels, one a line, valid as long as the library.
__attribute__((visibility("default"))) const char* gnnscale_cuda_kernels() {
  static const std::string names = [] {
    std::string joined;
    for (const Kernel& candidate : gnnscale::cuda_host::kernels()) joined += candidate.name + "\n";
    return joined;
  }();
  return names.c_str();
}
}
