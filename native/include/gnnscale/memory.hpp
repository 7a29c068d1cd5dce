// Arrays that are not initialised, and zeroed arrays in large pages.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace gnnscale {

// Blocks of memory that are used again once freed. A mini-batch's arrays are of much the same sizes
// as the last one's; fresh pages from the kernel would cost more than filling them. Large blocks
// lie on large pages.
void* take_block(size_t num_bytes);
// Keeps the block for the next of its size. Of all that nobody uses, kMaxIdleBytes are kept: what
// was used last.
void return_block(void* block);

inline constexpr size_t kMaxIdleBytes = size_t{1} << 30;

// Bytes of the blocks that are kept.
size_t idle_bytes();

// Asks the kernel for large pages for memory that will be written to in many places at once.
void prefer_large_pages(void* data, size_t num_bytes);

// Makes this process's malloc keep what is freed instead of handing pages back to the kernel: torch
// has no allocator of its own on the CPU, and would otherwise fault in every activation anew.
// Returns the bytes up to which a block is kept, 0 if the C library takes no such settings.
int64_t keep_freed_memory();
// The same by another function than mallopt, which returns 0 if it refuses.
using SetMalloc = int(int setting, int value);
int64_t keep_freed_memory(SetMalloc* set);

// More than any address space has; sizes below it can be added and rounded without overflow.
inline constexpr int64_t kMaxBytes = int64_t{1} << 47;

// An array that is handed out as a whole, e.g. to NumPy. Not initialised.
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

// A buffer that only grows: scratch space kept between batches.
template <typename T>
class Scratch {
 public:
  // Makes room for `count` items; the first `keep` survive.
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

// A zeroed array with large pages where the kernel grants them: random access to it then misses
// the TLB less.
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
