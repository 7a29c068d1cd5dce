// Kernel registry and launches.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace gnnscale::cuda_host {

struct Kernel {
  std::string name;
  void (*call)(void** arguments);
  std::vector<unsigned> sizes;  // bytes of each argument
};

// Returns all kernels of the library.
std::vector<Kernel>& kernels();

// Runs `grid` blocks on `host_threads` host threads, and waits for them. Throws std::runtime_error
// with one line: the kernel's name and the error of a block.
void launch(const Kernel& kernel, unsigned grid, unsigned block, void** arguments,
            unsigned host_threads);

template <auto kernel, typename Signature = decltype(kernel)>
struct Exported;

template <auto kernel, typename... Arguments>
struct Exported<kernel, void (*)(Arguments...)> {
  static void call(void** arguments) { apply(arguments, std::index_sequence_for<Arguments...>{}); }

  static bool add(const char* name) {
    kernels().push_back({name, &call, {unsigned{sizeof(Arguments)}...}});
    return true;
  }

 private:
  template <size_t... place>
  static void apply([[maybe_unused]] void** arguments, std::index_sequence<place...>) {
    kernel(*static_cast<std::remove_cvref_t<Arguments>*>(arguments[place])...);
  }
};

}  // namespace gnnscale::cuda_host

#define GNNSCALE_EXPORT(name)                             \
  [[maybe_unused]] static const bool name##_is_exported = \
      gnnscale::cuda_host::Exported<&name>::add(#name)
