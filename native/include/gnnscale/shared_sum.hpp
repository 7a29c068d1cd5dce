// All-reduce over the processes of one machine, in shared memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace gnnscale {

// One process's participation in sums over `size` processes. Each process copies its values into
// its slot, sums one slice of all slots in the order of ranks, and copies the sums of all slices: a
// reduce-scatter and an all-gather. Every element is summed by one process, so all processes get
// identical bits, independent of timing. Values beyond a slot's size are summed in parts.
//
// Shared memory contents are never used as an address or a size: a process that writes garbage can
// corrupt sums or stall its peers, but nothing else.
class SharedSum {
 public:
  // Callback called periodically while waiting for peers; an exception ends the sum.
  using Poll = std::function<void()>;

  static constexpr int64_t kMaxSize = 1024;
  static constexpr int64_t kAlignment = 64;

  // Returns the bytes of shared memory for `size` processes.
  static int64_t num_bytes(int64_t size);

  // `memory` has num_bytes(size) bytes, zeroed before the first process starts, aligned to
  // kAlignment, and must outlive this object.
  SharedSum(void* memory, int64_t rank, int64_t size);

  // Replaces `values` by their sums over all processes, which must pass equal counts and types.
  // Throws runtime_error, and ends all sums, if a process has left or passes another count or type;
  // throws runtime_error if another thread is inside a call.
  template <typename T>
  void add(T* values, int64_t count, const Poll& poll);

  // Ends all sums, in this process and in every process that waits for it; callable from any
  // thread.
  void leave();

 private:
  struct Shared;
  struct Announced;

  template <typename T>
  void add_part(T* values, int64_t count, const Poll& poll);
  template <typename T>
  void sum_slice(int64_t begin, int64_t end);
  void meet(const Poll& poll);
  void wait_for(uint32_t round, const Poll& poll);
  bool has_come(uint32_t round) const;
  // Adds a part of at most a slot; slot `size_` holds the sums.
  template <typename T>
  T* slot(int64_t rank) const;

  Shared& shared_;
  Announced* announced_;  // [size]
  char* slots_;
  int64_t rank_, size_;
  uint32_t round_ = 0;
  std::atomic<bool> busy_{false}, gone_{false};
};

}  // namespace gnnscale
