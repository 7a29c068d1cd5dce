// Tests of the host's CUDA thread model: barriers, warp collectives, atomics, and errors.
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "gnnscale_cuda/device.hpp"

using namespace gnnscale;
using namespace gnnscale::cuda_host;

// Reverses the numbers of a block twice.
extern "C" __global__ void reverse(int* numbers) {
  __shared__ int shared[1024];
  const unsigned size = blockDim.x, i = threadIdx.x;
  int* block_numbers = numbers + blockIdx.x * size;
  for (int round = 0; round < 3; ++round) {
    shared[i] = block_numbers[i];
    __syncthreads();
    block_numbers[size - 1 - i] = shared[i];
    __syncthreads();
  }
}
GNNSCALE_EXPORT(reverse);

// Writes each lane's result of every kind of exchange.
extern "C" __global__ void exchange(int* up, int* down, int* crossed, int* from, unsigned* odd,
                                    unsigned* alike) {
  const unsigned i = threadIdx.x;
  const auto value = static_cast<int>(i);
  up[i] = __shfl_up_sync(kAllLanes, value, 2);
  down[i] = __shfl_down_sync(kAllLanes, value, 3, 16);
  crossed[i] = __shfl_xor_sync(kAllLanes, value, 5);
  from[i] = __shfl_sync(kAllLanes, value, 7, 8);
  odd[i] = __ballot_sync(kAllLanes, value % 2);
  alike[i] = __match_any_sync(kAllLanes, value % 3);
}
GNNSCALE_EXPORT(exchange);

// Half of each warp diverges, with its own collectives; one lane exits early.
extern "C" __global__ void diverge(int* sums) {
  const unsigned lane = threadIdx.x % 32;
  if (lane == 31) return;
  const unsigned low = 0xffff, high = 0x7fff0000;
  auto sum = static_cast<int>(lane);
  if (lane < 16) {
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(low, sum, step);
  } else {
    sum = __any_sync(high, lane == 20) + 10 * __all_sync(high, lane >= 16);
    __syncwarp(high);
  }
  __syncthreads();
  sums[threadIdx.x] = sum;
}
GNNSCALE_EXPORT(diverge);

extern "C" __global__ void count(int64_t n, unsigned* numbers, unsigned long long* sum, int* least,
                                 float* greatest) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    atomicAdd(&numbers[i % 3], 1U);
    atomicAdd(sum, static_cast<unsigned long long>(i));
    atomicMin(least, static_cast<int>(i) - 5);
    atomicMax(greatest, static_cast<float>(i));
  }
}
GNNSCALE_EXPORT(count);

extern "C" __global__ void wait_in_vain(int* unused) {
  if (threadIdx.x == 3) __syncwarp(kAllLanes);
  if (threadIdx.x != 3) __syncthreads();
  *unused = 1;
}
GNNSCALE_EXPORT(wait_in_vain);

extern "C" __global__ void fail(int* unused) {
  if (blockIdx.x == 5 && threadIdx.x == 9) throw std::out_of_range("the ninth thread");
  __syncthreads();
  *unused = 1;
}
GNNSCALE_EXPORT(fail);

extern "C" __global__ void mix_up(int* unused) {
  if (threadIdx.x % 2 == 0) {
    __syncwarp();
  } else {
    *unused = static_cast<int>(__ballot_sync(kAllLanes, 1));
  }
}
GNNSCALE_EXPORT(mix_up);

namespace {

template <typename... Arguments>
void run(const char* name, unsigned grid, unsigned block, unsigned host_threads,
         Arguments... arguments) {
  void* cells[] = {&arguments...};
  for (const Kernel& kernel : kernels()) {
    if (kernel.name == name) return launch(kernel, grid, block, cells, host_threads);
  }
  CHECK(false);
}

[[maybe_unused]] std::string error_of(const char* name) {
  int unused = 0;
  try {
    run(name, 8, 64, 2, &unused);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

void test_barriers() {
  for (const unsigned host_threads : {1U, 3U}) {
    for (const unsigned block : {1U, 31U, 256U, 1000U}) {
      std::vector<int> numbers(4 * block), reversed(4 * block);
      for (unsigned i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int>(i);
      for (unsigned i = 0; i < numbers.size(); ++i) {
        reversed[i] = numbers[i / block * block + (block - 1 - i % block)];
      }
      run("reverse", 4, block, host_threads, numbers.data());
      CHECK(numbers == reversed);
    }
  }
}

void test_exchanges() {
  std::vector<int> up(40), down(40), crossed(40), from(40);
  std::vector<unsigned> odd(40), alike(40);
  run("exchange", 1, 40, 1, up.data(), down.data(), crossed.data(), from.data(), odd.data(),
      alike.data());
  CHECK(up[1] == 1 && up[2] == 0 && up[31] == 29 && up[32] == 32 && up[39] == 37);
  CHECK(down[0] == 3 && down[13] == 13 && down[16] == 19 && down[29] == 29);
  CHECK(crossed[0] == 5 && crossed[31] == 26 && crossed[34] == 39);
  CHECK(from[0] == 7 && from[9] == 15 && from[30] == 31 && from[33] == 39);
  CHECK(odd[0] == 0xaaaaaaaa && odd[39] == 0xaa);
  CHECK(alike[0] == 0x49249249 && alike[1] == 0x92492492 && alike[32] == 0x49);
}

void test_diverging_lanes() {
  std::vector<int> sums(64, -1);
  run("diverge", 1, 64, 1, sums.data());
  CHECK(sums[0] == 120 && sums[15] == 120 && sums[16] == 11 && sums[62] == 11 && sums[31] == -1);
}

void test_atomics() {
  std::vector<unsigned> numbers(3);
  unsigned long long sum = 0;
  int least = 0;
  float greatest = 0;
  run("count", 7, 64, 2, int64_t{1000}, numbers.data(), &sum, &least, &greatest);
  CHECK(numbers[0] == 334 && numbers[1] == 333 && numbers[2] == 333);
  CHECK(sum == 499500 && least == -5 && greatest == 999.0F);
}

[[maybe_unused]] void test_errors_name_kernel_and_block() {
  const std::string vain = error_of("wait_in_vain");
  CHECK(vain.find("wait_in_vain: block ") == 0);
  CHECK(vain.find("63 for the block, 1 for their warp") != std::string::npos);
  CHECK(error_of("fail") == "fail: the ninth thread");
  CHECK(error_of("mix_up") == "mix_up: lanes of a warp do different things together");
  // A failed launch leaves no state.
  test_barriers();
}

}  // namespace

int main() {
  test_barriers();
  test_exchanges();
  test_diverging_lanes();
  test_atomics();
  // A failed launch leaves threads in the middle of their work, unordered with later work.
#if !defined(__SANITIZE_THREAD__)
  test_errors_name_kernel_and_block();
#endif
  return check_result();
}
