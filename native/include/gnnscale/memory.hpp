// Uninitialized arrays from a pool of reusable blocks, and zeroed arrays on large pages.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace gnnscale {

// Returns a block of memory, reusing a freed block if one fits. A mini-batch's arrays have about
// the sizes of the previous batch's arrays, and fresh pages from the kernel would cost more than
// filling them. Large blocks use large pages.
void* take_block(size_t num_bytes);
// Returns a block to the pool for reuse. The pool keeps the most recently used idle blocks, up to
// kMaxIdleBytes.
void return_block(void* block);

inline constexpr size_t kMaxIdleBytes = size_t{1} << 30;

// Returns the bytes of idle blocks in the pool.
size_t idle_bytes();

// Asks the kernel for large pages for memory with scattered writes.
void prefer_large_pages(void* data, size_t num_bytes);

// Moves memory to large pages where the kernel has them; its contents stay. Takes one to
// three milliseconds for each MiB on small pages.
void move_to_large_pages(const void* data, size_t num_bytes);

// Makes this process's malloc retain freed memory instead of returning pages to the kernel: torch
// has no CPU allocator of its own and would otherwise fault in the pages of every activation.
// Returns the maximum bytes of a retained block; 0 if the C library lacks such settings.
int64_t keep_freed_memory();
// As above with a replacement for mallopt, which returns 0 on refusal.
using SetMalloc = int(int setting, int value);
int64_t keep_freed_memory(SetMalloc* set);

// Exceeds every address space; smaller sizes can be added and rounded without overflow.
inline constexpr int64_t kMaxBytes = int64_t{1} << 47;

// Uninitialized array whose ownership can be handed over, e.g. to NumPy.
template <typename T>
struct Array {
  struct Return {
    void operator()(T* data) const { return_block(data); }
  };
  std::unique_ptr<T[], Return> data;
  int64_t size = 0;

  Array() = default;
  explicit Array(int64_t count) : data(static_cast<T*>(take_block(bytes(count)))), size(count) {}

 private:
  static size_t bytes(int64_t count) {
    if (count < 0 || count > kMaxBytes / static_cast<int64_t>(sizeof(T))) throw std::bad_alloc();
    return static_cast<size_t>(count) * sizeof(T);
  }
};

// Buffer that only grows: scratch memory reused across batches.
template <typename T>
class Scratch {
 public:
  // Reserves capacity for `count` items; the first `keep` items are preserved.
  T* reserve(int64_t count, int64_t keep = 0) {
    if (count > capacity_) {
      auto larger = std::make_unique_for_overwrite<T[]>(count + count / 4);
      std::copy_n(data_.get(), keep, larger.get());
      data_ = std::move(larger);
      capacity_ = count + count / 4;
    }
    return data_.get();
  }
  T* data() const { return data_.get(); }

 private:
  std::unique_ptr<T[]> data_;
  int64_t capacity_ = 0;
};

// Zeroed array on large pages where the kernel grants them, which lowers TLB misses of random
// access.
template <typename T>
class HugeArray {
 public:
  explicit HugeArray(int64_t count) : bytes_(count * sizeof(T) + kPage) {
    void* start = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    base_ = start;
    const auto address = (reinterpret_cast<uintptr_t>(start) + kPage - 1) & ~(kPage - 1);
    data_ = reinterpret_cast<T*>(address);
    if (count * sizeof(T) >= kPage) madvise(data_, count * sizeof(T), MADV_HUGEPAGE);
  }
  ~HugeArray() { munmap(base_, bytes_); }
  HugeArray(const HugeArray&) = delete;
  HugeArray& operator=(const HugeArray&) = delete;

  T* data() const { return data_; }

 private:
  static constexpr uintptr_t kPage = uintptr_t{1} << 21;
  size_t bytes_;
  void* base_;
  T* data_;
};

}  // namespace gnnscale
