// Tests of prefix sums over a grid against a loop.
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "gnnscale_cuda/scan.hpp"

using namespace gnnscale;
using namespace gnnscale::cuda_host;

extern "C" __global__ void ready(uint64_t* tiles, int64_t* ticket, int64_t n) {
  reset_tiles(tiles, ticket, n);
}
GNNSCALE_EXPORT(ready);

extern "C" __global__ void scan(uint64_t* tiles, int64_t* ticket, int64_t n, const int* numbers,
                                int64_t* prefix, int64_t* total) {
  scan_tiles<3>(
      tiles, ticket, n, [&](int64_t i) { return int64_t{numbers[i]}; },
      [&](int64_t i, int64_t sum, int64_t) { prefix[i] = sum; },
      [&](int64_t sum) { *total = sum; });
}
GNNSCALE_EXPORT(scan);

namespace {

template <typename... Arguments>
void run(const char* name, unsigned grid, unsigned host_threads, Arguments... arguments) {
  void* cells[] = {&arguments...};
  for (const Kernel& kernel : kernels()) {
    if (kernel.name == name) return launch(kernel, grid, kThreads, cells, host_threads);
  }
  CHECK(false);
}

void check_scan(int64_t n, unsigned grid, unsigned host_threads) {
  std::vector<int> numbers(n);
  for (int64_t i = 0; i < n; ++i) numbers[i] = static_cast<int>(i * 7919 % 11);
  std::vector<uint64_t> tiles(n / kThreads + 1, ~uint64_t{0});
  std::vector<int64_t> prefix(n, -1);
  int64_t ticket = -1, total = -1;
  run("ready", grid, host_threads, tiles.data(), &ticket, n);
  run("scan", grid, host_threads, tiles.data(), &ticket, n, static_cast<const int*>(numbers.data()),
      prefix.data(), &total);
  int64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    CHECK(prefix[i] == sum);
    sum += numbers[i];
  }
  CHECK(total == sum);
}

}  // namespace

int main() {
  for (const int64_t n : {0, 1, 2, 255, 256, 767, 768, 769, 5000, 20000}) {
    for (const unsigned grid : {1U, 5U}) {
      for (const unsigned host_threads : {1U, 2U, 4U}) check_scan(n, grid, host_threads);
    }
  }
  return check_result();
}
