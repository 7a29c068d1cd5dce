// io_uring by its system calls: reads of one file into one block of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "aligned_file.hpp"

namespace gnnscale {

// Not thread-safe; from start() on always used by one thread.
class Ring {
 public:
  struct Completion {
    uint64_t tag;
    int32_t result;  // bytes read, or a negative errno
  };

  // Ring with a capacity of `depth` reads. Throws FileError if the kernel has no io_uring or denies
  // it to this process.
  Ring(int fd, const AlignedMemory& memory, unsigned depth);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  void start();
  // Queues a read for the next `enter`; at most `depth` reads may be in flight. `is_own`: `to` is
  // inside this ring's memory.
  void read(uint64_t tag, uint8_t* to, uint32_t length, int64_t offset, bool is_own);
  // Queues a read of 8 bytes from another file.
  void read_other(uint64_t tag, int fd, uint64_t* to);
  // Submits queued reads, and waits for `min_completions`.
  void enter(unsigned min_completions);
  // Takes up to into.size() available completions. Returns their number.
  size_t take(std::span<Completion> into);

 private:
  struct Entry;
  struct Mapping {
    void* data = nullptr;
    size_t size = 0;
  };

  void map(const void* parameters);
  Entry& next_entry();

  int ring_fd_ = -1;
  bool is_disabled_ = false;       // until start()
  bool has_fixed_memory_ = false;  // whether buffer 0 is the ring's memory
  int fd_;
  Mapping rings_, entries_;
  // In memory shared with the kernel.
  uint32_t *submitted_ = nullptr, *to_submit_ = nullptr, *taken_ = nullptr, *completed_ = nullptr;
  uint32_t *order_ = nullptr, submission_mask_ = 0, completion_mask_ = 0;
  const void* completions_ = nullptr;
};

}  // namespace gnnscale
