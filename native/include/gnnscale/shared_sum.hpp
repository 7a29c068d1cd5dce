// Sums over the processes of one machine, in memory that all of them map.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace gnnscale {

// One process's part in the sums of `size` processes. Each copies its values into its slot, sums
// one slice of all slots in the order of ranks, and copies the sums of all slices: a reduce-scatter
// and an all-gather. Every element is summed by one process, so that all have the same bits, which
// do not depend on who comes first. What does not fit into a slot is summed part by part.
//
// Nothing that others write into the memory is used as an address or a size: a process that writes
// nonsense spoils sums, or makes others wait, and nothing else.
class SharedSum {
 public:
  // Called again and again while the others are waited for; what it throws ends the sum.
  using Poll = std::function<void()>;

  static constexpr int64_t kMaxSize = 1024;
  static constexpr int64_t kAlignment = 64;

  // The bytes that `size` processes share.
  static int64_t num_bytes(int64_t size);

  // `memory` has num_bytes(size) bytes, zeros before the first process begins, and is aligned to
  // kAlignment. It stays as long as this.
  SharedSum(void* memory, int64_t rank, int64_t size);

  // Replaces `values` by the sums of what all processes pass, as many and of one type. Throws
  // runtime_error if a process has left or passes another number or type, which ends all sums; and
  // if another thread is within.
  template <typename T>
  void add(T* values, int64_t count, const Poll& poll);

  // Ends all sums, in every process that waits for this one, and in this one; from any thread.
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
  // Slot `size_` has the sums.
  template <typename T>
  T* slot(int64_t rank) const;

  Shared& shared_;
  Announced* announced_;  // one for each rank
  char* slots_;
  int64_t rank_, size_;
  uint32_t round_ = 0;
  std::atomic<bool> busy_{false}, gone_{false};
};

}  // namespace gnnscale
