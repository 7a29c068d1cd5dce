#include "gnnscale/memory.hpp"

#include <malloc.h>
#include <pthread.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace gnnscale {
namespace {

constexpr size_t kSmallest = size_t{1} << 12;
// Blocks from this size on are mapped on large pages of their own, and unmapped when freed. Not
// under the address sanitizer, whose malloc should see all blocks and reject excessive sizes.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kMapped = SIZE_MAX;
#else
constexpr size_t kMapped = size_t{1} << 22;
#endif
// Bytes in front of the caller's: the block's header, padded to keep rows on cache lines.
constexpr size_t kHeader = 64;

struct Header {
  size_t size;    // of the block, including the header
  void* mapping;  // start of the block's mapping; null if malloc allocated it
  size_t mapped_bytes;
};
static_assert(sizeof(Header) <= kHeader);

Header& header_of(char* block) { return *reinterpret_cast<Header*>(block); }

// Rounds sizes up to quarters of powers of two, so that similar sizes share blocks.
size_t block_size(size_t num_bytes) {
  const size_t total = num_bytes + kHeader;
  if (total <= kSmallest) return kSmallest;
  const size_t step = std::bit_ceil(total) / 8;
  return (total + step - 1) / step * step;
}

char* make_block(size_t size) {
  if (size < kMapped) {
    auto* block =
        static_cast<char*>(std::aligned_alloc(kHeader, (size + kHeader - 1) / kHeader * kHeader));
    if (block == nullptr) throw std::bad_alloc();
    header_of(block) = {size, nullptr, 0};
    return block;
  }
  constexpr uintptr_t kPage = uintptr_t{1} << 21;
  const size_t mapped_bytes = size + kPage;
  void* mapping =
      mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  const auto start = (reinterpret_cast<uintptr_t>(mapping) + kPage - 1) & ~(kPage - 1);
  auto* block = reinterpret_cast<char*>(start);
  prefer_large_pages(block, size);
  header_of(block) = {size, mapping, mapped_bytes};
  return block;
}

void free_block(char* block) {
  const Header header = header_of(block);
  header.mapping != nullptr ? static_cast<void>(munmap(header.mapping, header.mapped_bytes))
                            : std::free(block);
}

// Idle blocks: by age, longest idle first; and by size, most recently used last.
class IdleBlocks {
 public:
  // Returns the most recently used block of the size, which may still be in the caches, or null.
  char* take(size_t size) {
    const auto entry = of_size_.find(size);
    if (entry == of_size_.end() || entry->second.empty()) return nullptr;
    const auto position = entry->second.back();
    char* block = *position;
    entry->second.pop_back();
    by_age_.erase(position);
    num_bytes_ -= size;
    return block;
  }

  void put(char* block) {
    const size_t size = header_of(block).size;
    of_size_[size].push_back(by_age_.insert(by_age_.end(), block));
    num_bytes_ += size;
  }

  // Removes the block that has been idle longest.
  char* take_oldest() {
    char* block = by_age_.front();
    const size_t size = header_of(block).size;
    auto& same = of_size_[size];
    same.erase(same.begin());  // the first of a size is the oldest
    by_age_.pop_front();
    num_bytes_ -= size;
    return block;
  }

  size_t num_bytes() const { return num_bytes_; }

  std::mutex mutex;

 private:
  std::list<char*> by_age_;
  std::unordered_map<size_t, std::vector<std::list<char*>::iterator>> of_size_;
  size_t num_bytes_ = 0;
};

// Never destroyed: arrays may be returned while the process exits. Locked during a fork; otherwise
// a forked child could wait forever for a thread that it does not have.
IdleBlocks& idle_blocks() {
  static auto* instance = [] {
    pthread_atfork([] { idle_blocks().mutex.lock(); }, [] { idle_blocks().mutex.unlock(); },
                   [] { idle_blocks().mutex.unlock(); });
    return new IdleBlocks;
  }();
  return *instance;
}

}  // namespace

void* take_block(size_t num_bytes) {
  const size_t size = block_size(num_bytes);
  IdleBlocks& idle = idle_blocks();
  {
    std::lock_guard lock(idle.mutex);
    if (char* block = idle.take(size)) return block + kHeader;
  }
  return make_block(size) + kHeader;
}

void return_block(void* data) {
  if (data == nullptr) return;
  char* block = static_cast<char*>(data) - kHeader;
  if (header_of(block).size > kMaxIdleBytes) return free_block(block);
  std::vector<char*> evicted;
  IdleBlocks& idle = idle_blocks();
  {
    std::lock_guard lock(idle.mutex);
    idle.put(block);
    while (idle.num_bytes() > kMaxIdleBytes) evicted.push_back(idle.take_oldest());
  }
  for (char* block : evicted) free_block(block);
}

size_t idle_bytes() {
  IdleBlocks& idle = idle_blocks();
  std::lock_guard lock(idle.mutex);
  return idle.num_bytes();
}

namespace {

// Gives the kernel advice on all large pages within a range of memory.
void advise_large_pages(const void* data, size_t num_bytes, int advice) {
  constexpr uintptr_t kPage = uintptr_t{1} << 21;
  const auto start = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (start + kPage - 1) & ~(kPage - 1),
                  last = (start + num_bytes) & ~(kPage - 1);
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, advice);
}

}  // namespace

void prefer_large_pages(void* data, size_t num_bytes) {
  advise_large_pages(data, num_bytes, MADV_HUGEPAGE);
}

void move_to_large_pages(const void* data, size_t num_bytes) {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which headers older than Linux 6.1 lack
  advise_large_pages(data, num_bytes, kCollapse);
}

int64_t keep_freed_memory([[maybe_unused]] SetMalloc* set) {
#ifdef __GLIBC__
  // malloc retains blocks up to this size. glibc before 2.35 rejects an mmap threshold above
  // HEAP_MAX / 2, see mallopt(3).
  constexpr int kWanted = 1 << 30, kOldest = 32 << 20;
  int threshold = 0;
  if (set(M_MMAP_THRESHOLD, kWanted) != 0) {
    threshold = kWanted;
  } else if (set(M_MMAP_THRESHOLD, kOldest) != 0) {
    threshold = kOldest;
  }
  // Setting only the trim threshold would freeze the mmap threshold at its default of 128 KiB.
  if (threshold == 0 || set(M_TRIM_THRESHOLD, kWanted) == 0) return 0;
  return threshold;
#else
  return 0;
#endif
}

int64_t keep_freed_memory() {
#ifdef __GLIBC__
  return keep_freed_memory(mallopt);
#else
  return 0;
#endif
}

}  // namespace gnnscale
