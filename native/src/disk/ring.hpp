// io_uring by its system calls: reads of one file into one block of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "aligned_file.hpp"

namespace gnnscale {

// One thread at a time uses it; from start() on always the same one.
class Ring {
 public:
  struct Completion {
    uint64_t tag;
    int32_t result;  // bytes that were read, or a negative errno
  };

  // Room for `depth` reads. Throws FileError if the kernel has no io_uring, or does not let this
  // process use it.
  Ring(int fd, const AlignedMemory& memory, unsigned depth);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  void start();
  // To be submitted by the next `enter`; at most `depth` reads are under way at a time.
  // `is_own` says that `to` is in the memory of this ring.
  void read(uint64_t tag, uint8_t* to, uint32_t length, int64_t offset, bool is_own);
  // The same of 8 bytes of another file.
  void read_other(uint64_t tag, int fd, uint64_t* to);
  // Submits, and waits until there are `min_completions`.
  void enter(unsigned min_completions);
  // Takes completions, as many as there are and `into` holds.
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
  bool has_fixed_memory_ = false;  // buffer 0 is the memory
  int fd_;
  Mapping rings_, entries_;
  // In the kernel's memory.
  uint32_t *submitted_ = nullptr, *to_submit_ = nullptr, *taken_ = nullptr, *completed_ = nullptr;
  uint32_t *order_ = nullptr, submission_mask_ = 0, completion_mask_ = 0;
  const void* completions_ = nullptr;
};

}  // namespace gnnscale
