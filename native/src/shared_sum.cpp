#include "gnnscale/shared_sum.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace gnnscale {
namespace {

using Clock = std::chrono::steady_clock;

// Fits the gradients of common models; a processor's cache holds the slots of a few workers.
constexpr int64_t kSlotBytes = int64_t{1} << 19;
constexpr int64_t kPageBytes = 4096;
// Peers usually arrive this soon if all processes run; longer spinning would occupy a core.
constexpr auto kSpin = std::chrono::microseconds(50);
// Interval between two polls of a waiting process.
constexpr timespec kPollEvery{0, 100'000'000};
// Elements that are summed over all slots as a block, which stays in the first-level cache.
constexpr int64_t kBlock = 1024;

int64_t rounded_up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

// Shared futex, without the private flag: the word is in memory of several processes.
long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

struct Freed {
  explicit Freed(std::atomic<bool>& flag) : flag(flag) {}
  ~Freed() { flag = false; }
  std::atomic<bool>& flag;
};

// Integer sums wrap around.
template <typename T>
using Summed = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;

}  // namespace

// The initial state is all zeros. Each word has its own cache line, since all processes use it.
struct SharedSum::Shared {
  alignas(kAlignment) std::atomic<uint64_t> arrivals;
  alignas(kAlignment) std::atomic<uint32_t> round;  // completed barriers, modulo 2^32
  alignas(kAlignment) std::atomic<uint32_t> sleepers;
  alignas(kAlignment) std::atomic<uint32_t> first_leaver;  // 1 + the first rank that left
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

// Type and count of a rank's next sum.
struct SharedSum::Announced {
  alignas(kAlignment) std::atomic<uint64_t> what;
};

int64_t SharedSum::num_bytes(int64_t size) {
  const auto head = static_cast<int64_t>(sizeof(Shared) + size * sizeof(Announced));
  return rounded_up(head, kPageBytes) + (size + 1) * kSlotBytes;
}

SharedSum::SharedSum(void* memory, int64_t rank, int64_t size)
    : shared_(*static_cast<Shared*>(memory)),
      announced_(reinterpret_cast<Announced*>(&shared_ + 1)),
      slots_(static_cast<char*>(memory) + num_bytes(size) - (size + 1) * kSlotBytes),
      rank_(rank),
      size_(size) {}

template <typename T>
T* SharedSum::slot(int64_t rank) const {
  return reinterpret_cast<T*>(slots_ + rank * kSlotBytes);
}

template <typename T>
void SharedSum::add(T* values, int64_t count, const Poll& poll) {
  if (busy_.exchange(true)) throw std::runtime_error("another thread sums");
  const Freed at_end(busy_);
  if (gone_) throw std::runtime_error("rank " + std::to_string(rank_) + " has left");
  constexpr int64_t kPart = kSlotBytes / static_cast<int64_t>(sizeof(T));
  try {
    int64_t first = 0;
    do {  // a sum of no values is also a barrier
      add_part(values + first, std::min(kPart, count - first), poll);
      first += kPart;
    } while (first < count);
  } catch (...) {
    leave();
    throw;
  }
}

template <typename T>
void SharedSum::add_part(T* values, int64_t count, const Poll& poll) {
  const uint64_t what = static_cast<uint64_t>(count) << 8 | sizeof(T) << 1 | std::is_integral_v<T>;
  announced_[rank_].what.store(what, std::memory_order_relaxed);
  if (count != 0) std::memcpy(slot<T>(rank_), values, count * sizeof(T));
  meet(poll);
  for (int64_t peer = 0; peer < size_; ++peer) {
    if (announced_[peer].what.load(std::memory_order_relaxed) != what) {
      throw std::runtime_error("rank " + std::to_string(peer) + " sums other values than rank " +
                               std::to_string(rank_));
    }
  }
  // Slices end at cache lines, so that each line has one writer.
  constexpr int64_t kLine = kAlignment / static_cast<int64_t>(sizeof(T));
  const int64_t lines = (count + kLine - 1) / kLine;
  const auto bound = [&](int64_t rank) { return std::min(count, lines * rank / size_ * kLine); };
  sum_slice<T>(bound(rank_), bound(rank_ + 1));
  meet(poll);
  if (count != 0) std::memcpy(values, slot<T>(size_), count * sizeof(T));
}

template <typename T>
void SharedSum::sum_slice(int64_t begin, int64_t end) {
  using Word = Summed<T>;
  for (; begin < end; begin += kBlock) {
    const int64_t count = std::min(kBlock, end - begin);
    Word* __restrict sums = slot<Word>(size_) + begin;
    std::memcpy(sums, slot<Word>(0) + begin, count * sizeof(T));
    for (int64_t rank = 1; rank < size_; ++rank) {
      const Word* __restrict added = slot<Word>(rank) + begin;
      for (int64_t i = 0; i < count; ++i) sums[i] += added[i];
    }
  }
}

// Barrier: returns once all processes have arrived. Earlier writes of each process are then visible
// to all.
void SharedSum::meet(const Poll& poll) {
  ++round_;
  const uint64_t num_arrived = shared_.arrivals.fetch_add(1);
  if ((num_arrived + 1) % static_cast<uint64_t>(size_) != 0) {
    wait_for(round_, poll);
    return;
  }
  // Sleepers register before they check the round a last time, so no wake-up is lost.
  shared_.round.store(round_);
  if (shared_.sleepers.load() != 0) futex(shared_.round, FUTEX_WAKE, INT_MAX, nullptr);
}

bool SharedSum::has_come(uint32_t round) const {
  if (static_cast<int32_t>(shared_.round.load() - round) >= 0) return true;
  if (const uint32_t leaver = shared_.first_leaver.load(); leaver != 0) {
    // The peer may have left after its last barrier.
    if (static_cast<int32_t>(shared_.round.load() - round) >= 0) return true;
    throw std::runtime_error("rank " + std::to_string(leaver - 1) + " has left");
  }
  return false;
}

void SharedSum::wait_for(uint32_t round, const Poll& poll) {
  for (const auto end = Clock::now() + kSpin; Clock::now() < end;) {
    if (has_come(round)) return;
    sched_yield();  // there may be more processes than cores
  }
  while (true) {
    shared_.sleepers.fetch_add(1);
    // A round that ends in between is not missed: the kernel compares the word again.
    const uint32_t now = shared_.round.load();
    const bool over = static_cast<int32_t>(now - round) >= 0 || shared_.first_leaver.load() != 0;
    if (!over) futex(shared_.round, FUTEX_WAIT, now, &kPollEvery);
    shared_.sleepers.fetch_sub(1);
    if (has_come(round)) return;
    poll();
  }
}

void SharedSum::leave() {
  gone_ = true;
  uint32_t nobody = 0;
  shared_.first_leaver.compare_exchange_strong(nobody, static_cast<uint32_t>(rank_ + 1));
  futex(shared_.round, FUTEX_WAKE, INT_MAX, nullptr);
}

template void SharedSum::add(float*, int64_t, const Poll&);
template void SharedSum::add(double*, int64_t, const Poll&);
template void SharedSum::add(int64_t*, int64_t, const Poll&);

}  // namespace gnnscale
