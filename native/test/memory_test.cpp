// Tests of reused blocks, evicted blocks, and malloc's settings.
#include "gnnscale/memory.hpp"

#include <malloc.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "check.hpp"

using namespace gnnscale;

namespace {

constexpr size_t kMiB = size_t{1} << 20;

void* filled(size_t num_bytes, int value) {
  void* block = take_block(num_bytes);
  std::memset(block, value, 64);
  return block;
}

void test_blocks_are_reused_by_size_class() {
  for (const size_t size : {size_t{10'000}, 5 * kMiB, 200 * kMiB, 700 * kMiB}) {
    void* first = filled(size, 1);
    CHECK(reinterpret_cast<uintptr_t>(first) % 64 == 0);
    return_block(first);
    const size_t num_idle = idle_bytes();
    CHECK(num_idle >= size);
    void* other = take_block(3 * size);
    CHECK(other != first && idle_bytes() == num_idle);
    void* second = take_block(size + size / 100);  // in the size class of `first`
    CHECK(second == first);
    CHECK(idle_bytes() < num_idle);
    return_block(second);
    return_block(other);
  }
}

void test_oldest_blocks_are_evicted_first() {
  // Fills the pool with blocks of up to 256 MiB, which evicts all earlier blocks.
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(take_block(200 * kMiB));
  for (void* block : blocks) return_block(block);
  CHECK(idle_bytes() <= kMaxIdleBytes && idle_bytes() > kMaxIdleBytes / 2);
  const size_t block_bytes = idle_bytes() / 4;  // 200 MiB and a header are in the class of 224 MiB
  CHECK(idle_bytes() == 4 * block_bytes);
  for (size_t i = 5; i > 1; --i) CHECK(take_block(200 * kMiB) == blocks[i]);
  CHECK(idle_bytes() == 0);
  // Reusing a block makes it the youngest: the older one is evicted.
  return_block(blocks[2]);
  void* other = take_block(100 * kMiB);
  return_block(other);
  CHECK(take_block(200 * kMiB) == blocks[2]);
  return_block(blocks[2]);
  const size_t old_bytes = idle_bytes();
  void* large = take_block(700 * kMiB);
  return_block(large);
  CHECK(idle_bytes() <= kMaxIdleBytes && idle_bytes() > old_bytes);
  CHECK(take_block(200 * kMiB) == blocks[2]);
  CHECK(idle_bytes() < 800 * kMiB);  // the block of 100 MiB was evicted
  for (size_t i = 2; i < 6; ++i) return_block(blocks[i]);
}

void test_blocks_beyond_the_bound_are_freed() {
  const size_t old_bytes = idle_bytes();
  return_block(take_block(kMaxIdleBytes + 1));
  CHECK(idle_bytes() == old_bytes);
  return_block(nullptr);
}

void test_moved_memory_keeps_its_contents() {
  std::vector<unsigned> numbers(3 << 20);
  std::iota(numbers.begin(), numbers.end(), 7U);
  const auto is_kept = [&] {
    for (unsigned i = 0; i < numbers.size(); ++i) {
      if (numbers[i] != i + 7) return false;
    }
    return true;
  };
  move_to_large_pages(numbers.data() + 5, (numbers.size() - 5) * sizeof(unsigned));
  CHECK(is_kept());
  move_to_large_pages(numbers.data(), 100);  // less than a page
  move_to_large_pages(numbers.data(), 0);
  CHECK(is_kept());
}

#ifdef __GLIBC__
// As glibc before 2.35, which rejects mmap thresholds above HEAP_MAX / 2.
int threshold = 0;

int old_glibc(int setting, int value) {
  if (setting == M_MMAP_THRESHOLD && value > 32 << 20) return 0;
  if (setting == M_MMAP_THRESHOLD) threshold = value;
  return 1;
}

int refuses(int, int) { return 0; }

void test_malloc_retains_freed_memory() {
  CHECK(keep_freed_memory(old_glibc) == 32 << 20);
  CHECK(threshold == 32 << 20);
  CHECK(keep_freed_memory(refuses) == 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their malloc has no settings
  CHECK(keep_freed_memory() >= 32 << 20);
#endif
}
#endif

}  // namespace

int main() {
  test_blocks_are_reused_by_size_class();
  test_oldest_blocks_are_evicted_first();
  test_blocks_beyond_the_bound_are_freed();
  test_moved_memory_keeps_its_contents();
#ifdef __GLIBC__
  test_malloc_retains_freed_memory();
#endif
  return check_result();
}
