#include "gnnscale/memory.hpp"

#include <malloc.h>
#include <pthread.h>

#include <bit>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace gnnscale {
namespace {

constexpr size_t kSmallest = size_t{1} << 12;
// What is kept for reuse at most; a block that would go beyond is freed.
constexpr size_t kKeptBytes = size_t{128} << 20;
// Before the caller's bytes: the size of the block, and padding that keeps rows on cache lines.
constexpr size_t kHeader = 64;

// Sizes are rounded up to quarters of powers of two, so that near sizes share blocks.
size_t block_size(size_t num_bytes) {
  const size_t wanted = num_bytes + kHeader;
  if (wanted <= kSmallest) return kSmallest;
  const size_t step = std::bit_ceil(wanted) / 8;
  return (wanted + step - 1) / step * step;
}

struct FreeBlocks {
  std::mutex mutex;
  std::vector<char*> blocks;
  size_t num_bytes = 0;
};

// Never destroyed: arrays may be returned while the process ends. Held during a fork, since the
// child would wait for ever for a thread that it does not have.
FreeBlocks& free_blocks() {
  static auto* instance = [] {
    pthread_atfork([] { free_blocks().mutex.lock(); }, [] { free_blocks().mutex.unlock(); },
                   [] { free_blocks().mutex.unlock(); });
    return new FreeBlocks;
  }();
  return *instance;
}

size_t& size_of(char* block) { return *reinterpret_cast<size_t*>(block); }

}  // namespace

void* take_block(size_t num_bytes) {
  const size_t size = block_size(num_bytes);
  FreeBlocks& free = free_blocks();
  {
    std::lock_guard lock(free.mutex);
    for (auto block = free.blocks.rbegin(); block != free.blocks.rend(); ++block) {
      if (size_of(*block) != size) continue;
      char* found = *block;
      free.blocks.erase(std::next(block).base());
      free.num_bytes -= size;
      return found + kHeader;
    }
  }
  auto* fresh =
      static_cast<char*>(std::aligned_alloc(kHeader, (size + kHeader - 1) / kHeader * kHeader));
  if (fresh == nullptr) throw std::bad_alloc();
  size_of(fresh) = size;
  return fresh + kHeader;
}

void return_block(void* data) {
  if (data == nullptr) return;
  char* block = static_cast<char*>(data) - kHeader;
  FreeBlocks& free = free_blocks();
  {
    std::lock_guard lock(free.mutex);
    if (free.num_bytes + size_of(block) <= kKeptBytes) {
      free.blocks.push_back(block);
      free.num_bytes += size_of(block);
      return;
    }
  }
  std::free(block);
}

void prefer_large_pages(void* data, size_t num_bytes) {
  constexpr uintptr_t kPage = uintptr_t{1} << 21;
  const auto start = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (start + kPage - 1) & ~(kPage - 1),
                  last = (start + num_bytes) & ~(kPage - 1);
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

}  // namespace gnnscale
