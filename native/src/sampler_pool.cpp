// Process-wide state of samplers.
#include <pthread.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "gnnscale/sampler.hpp"

namespace gnnscale {
namespace {

// Below the minimum, a hash table of a batch is no smaller.
constexpr int64_t kMinDenseBytes = int64_t{4} << 20, kMaxDenseBytes = int64_t{32} << 20;

// Never destroyed: samplers may be returned while the process exits. Created when the library is
// loaded, before any fork.
std::mutex* const mutex = [] {
  pthread_atfork([] { mutex->lock(); }, [] { mutex->unlock(); }, [] { mutex->unlock(); });
  return new std::mutex;
}();

// Returns the bytes of a text such as "32768K", 0 for any other format.
int64_t bytes_of(const std::string& size) {
  int64_t bytes = 0;
  for (const char c : size) {
    if (c >= '0' && c <= '9' && bytes < kMaxBytes) {
      bytes = bytes * 10 + (c - '0');
    } else {
      return bytes << (c == 'K' ? 10 : c == 'M' ? 20 : c == 'G' ? 30 : 0);
    }
  }
  return bytes;
}

// Returns the largest cache of the first core according to Linux; 0 if unknown.
int64_t largest_cache_bytes() {
  int64_t largest = 0;
  for (int index = 0; index < 10; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) +
                       "/size");
    std::string size;
    if (file >> size) largest = std::max(largest, bytes_of(size));
  }
  return largest;
}

}  // namespace

std::mutex& idle_samplers_mutex() { return *mutex; }

int64_t Relabelling::dense_bytes_here() {
  static const int64_t bytes = [] {
    const int64_t cache = largest_cache_bytes();
    return cache == 0 ? kMaxDenseBytes : std::clamp(cache, kMinDenseBytes, kMaxDenseBytes);
  }();
  return bytes;
}

}  // namespace gnnscale
