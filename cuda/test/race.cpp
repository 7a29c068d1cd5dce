// Two races that ThreadSanitizer must find: between threads of a block without a barrier, and
// between blocks. `race block` and `race grid` exit with its status; 0 without it.
#include <string_view>

#include "gnnscale_cuda/device.hpp"

using namespace gnnscale::cuda_host;

// Each thread reads its neighbor's write, without a barrier in between.
extern "C" __global__ void race_of_threads(int* numbers) {
  __shared__ int shared[64];
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  numbers[threadIdx.x] = shared[(threadIdx.x + 1) % 64];
}
GNNSCALE_EXPORT(race_of_threads);

extern "C" __global__ void race_of_blocks(int* numbers) { numbers[threadIdx.x] += 1; }
GNNSCALE_EXPORT(race_of_blocks);

int main(int count, char** words) {
  static int numbers[64];
  int* first = numbers;
  void* cells[] = {&first};
  const bool of_threads = count > 1 && std::string_view(words[1]) == "block";
  launch(kernels()[of_threads ? 0 : 1], of_threads ? 1 : 5000, 64, cells, of_threads ? 1 : 4);
}
