#include "ring.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "gnnscale/row_reader.hpp"

namespace gnnscale {
namespace {

// Constants of the kernel's interface (io_uring_setup(2)), which is stable; system headers at wheel
// build time are older. The system call numbers hold for all processors except Alpha.
constexpr long kSetup = 425, kEnter = 426, kRegister = 427;
constexpr uint32_t kStartsDisabled = 1u << 6, kSingleIssuer = 1u << 12, kDeferTasks = 1u << 13;
constexpr uint32_t kSingleMapping = 1u << 0;  // since Linux 5.4
constexpr uint32_t kPositionGiven = 1u << 3;  // since 5.6, as plain reads are
constexpr uint32_t kGetEvents = 1u << 0;
constexpr uint8_t kReadFixed = 4, kRead = 22;
constexpr unsigned kRegisterBuffers = 0, kUnregisterBuffers = 1, kEnableRings = 12;
constexpr off_t kRingsAt = 0, kEntriesAt = 0x10000000;

struct SubmissionOffsets {
  uint32_t head, tail, ring_mask, ring_entries, flags, dropped, array, reserved;
  uint64_t user_address;
};
struct CompletionOffsets {
  uint32_t head, tail, ring_mask, ring_entries, overflow, entries, flags, reserved;
  uint64_t user_address;
};
struct Parameters {
  uint32_t submission_entries, completion_entries, flags, thread_cpu, thread_idle, features;
  uint32_t workers_fd, reserved[3];
  SubmissionOffsets submission;
  CompletionOffsets completion;
};
static_assert(sizeof(Parameters) == 120);

struct CompletionEntry {
  uint64_t tag;
  int32_t result;
  uint32_t flags;
};
static_assert(sizeof(CompletionEntry) == 16);

int setup(unsigned entries, Parameters& parameters) {
  return static_cast<int>(syscall(kSetup, entries, &parameters));
}

bool register_with(int ring, unsigned what, const void* argument, unsigned count) {
  return syscall(kRegister, ring, what, argument, count) >= 0;
}

bool is_forbidden(int error) { return error == EPERM || error == EACCES || error == ENOSYS; }

template <typename T>
T* at(void* base, uint32_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(base) + offset);
}

uint32_t acquire(uint32_t* word) {
  return std::atomic_ref<uint32_t>(*word).load(std::memory_order_acquire);
}
void release(uint32_t* to, uint32_t value) {
  std::atomic_ref<uint32_t>(*to).store(value, std::memory_order_release);
}

[[noreturn]] void refuse(const char* what, int error) {
  throw FileError(error, std::string("engine io_uring: ") + what + ": " + std::strerror(error));
}

}  // namespace

struct Ring::Entry {
  uint8_t operation, flags;
  uint16_t priority;
  int32_t fd;
  uint64_t offset, address;
  uint32_t length, operation_flags;
  uint64_t tag;
  uint16_t buffer, personality;
  int32_t other_fd;
  uint64_t reserved[2];
};

Ring::Ring(int fd, const AlignedMemory& memory, unsigned depth) : fd_(fd) {
  static_assert(sizeof(Entry) == 64);
  // Completions are then processed when this thread asks for them, not on each arrival: since Linux
  // 6.1.
  Parameters parameters{};
  parameters.flags = kStartsDisabled | kSingleIssuer | kDeferTasks;
  is_disabled_ = true;
  ring_fd_ = setup(depth + 1, parameters);
  if (ring_fd_ < 0 && errno == EINVAL) {
    parameters = {};
    is_disabled_ = false;
    ring_fd_ = setup(depth + 1, parameters);
  }
  if (ring_fd_ < 0) refuse("io_uring_setup", errno);
  try {
    constexpr uint32_t kNeeded = kSingleMapping | kPositionGiven;
    if ((parameters.features & kNeeded) != kNeeded) refuse("reads", EOPNOTSUPP);
    // A system call filter may allow creating rings but not using them.
    const long entered = syscall(kEnter, ring_fd_, 0, 0, 0, nullptr, size_t{0});
    if (entered < 0 && is_forbidden(errno)) refuse("io_uring_enter", errno);
    const bool unregistered = register_with(ring_fd_, kUnregisterBuffers, nullptr, 0);
    if (!unregistered && is_forbidden(errno)) refuse("io_uring_register", errno);
    // Fails if this process may not lock that much memory.
    const iovec all{memory.data(), memory.size()};
    has_fixed_memory_ = register_with(ring_fd_, kRegisterBuffers, &all, 1);
    map(&parameters);
  } catch (...) {
    ::close(ring_fd_);
    throw;
  }
}

void Ring::map(const void* raw_parameters) {
  const auto& parameters = *static_cast<const Parameters*>(raw_parameters);
  const auto mapped = [&](size_t size, off_t offset) {
    void* data =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_fd_, offset);
    if (data == MAP_FAILED) refuse("mmap", errno);
    return Mapping{data, size};
  };
  rings_ = mapped(
      std::max<size_t>(
          parameters.submission.array + parameters.submission_entries * sizeof(uint32_t),
          parameters.completion.entries + parameters.completion_entries * sizeof(CompletionEntry)),
      kRingsAt);
  try {
    entries_ = mapped(parameters.submission_entries * sizeof(Entry), kEntriesAt);
  } catch (...) {
    munmap(rings_.data, rings_.size);
    throw;
  }
  submitted_ = at<uint32_t>(rings_.data, parameters.submission.head);
  to_submit_ = at<uint32_t>(rings_.data, parameters.submission.tail);
  submission_mask_ = *at<uint32_t>(rings_.data, parameters.submission.ring_mask);
  order_ = at<uint32_t>(rings_.data, parameters.submission.array);
  taken_ = at<uint32_t>(rings_.data, parameters.completion.head);
  completed_ = at<uint32_t>(rings_.data, parameters.completion.tail);
  completion_mask_ = *at<uint32_t>(rings_.data, parameters.completion.ring_mask);
  completions_ = at<CompletionEntry>(rings_.data, parameters.completion.entries);
}

Ring::~Ring() {
  ::close(ring_fd_);
  munmap(entries_.data, entries_.size);
  munmap(rings_.data, rings_.size);
}

void Ring::start() {
  if (is_disabled_) register_with(ring_fd_, kEnableRings, nullptr, 0);
}

Ring::Entry& Ring::next_entry() {
  const uint32_t index = *to_submit_ & submission_mask_;
  order_[index] = index;
  Entry& entry = static_cast<Entry*>(entries_.data)[index];
  entry = {};
  return entry;
}

void Ring::read(uint64_t tag, uint8_t* to, uint32_t length, int64_t offset, bool is_own) {
  Entry& entry = next_entry();
  entry.operation = is_own && has_fixed_memory_ ? kReadFixed : kRead;
  entry.fd = fd_;
  entry.offset = static_cast<uint64_t>(offset);
  entry.address = reinterpret_cast<uintptr_t>(to);
  entry.length = length;
  entry.tag = tag;
  release(to_submit_, *to_submit_ + 1);
}

void Ring::read_other(uint64_t tag, int fd, uint64_t* to) {
  Entry& entry = next_entry();
  entry.operation = kRead;
  entry.fd = fd;
  entry.address = reinterpret_cast<uintptr_t>(to);
  entry.length = sizeof *to;
  entry.tag = tag;
  release(to_submit_, *to_submit_ + 1);
}

void Ring::enter(unsigned min_completions) {
  for (;;) {
    const uint32_t count = *to_submit_ - acquire(submitted_);
    const long done =
        syscall(kEnter, ring_fd_, count, min_completions, kGetEvents, nullptr, size_t{0});
    // Calls that were interrupted or short of memory are repeated.
    if (done >= 0 && static_cast<uint32_t>(done) == count) return;
    if (done < 0 && errno != EINTR) sched_yield();
    // Taking completions frees memory.
    if (acquire(completed_) != *taken_) return;
  }
}

size_t Ring::take(std::span<Completion> into) {
  const uint32_t first = *taken_;
  const size_t count = std::min<size_t>(acquire(completed_) - first, into.size());
  for (size_t i = 0; i < count; ++i) {
    const auto& entry =
        static_cast<const CompletionEntry*>(completions_)[(first + i) & completion_mask_];
    into[i] = {entry.tag, entry.result};
  }
  release(taken_, first + static_cast<uint32_t>(count));
  return count;
}

}  // namespace gnnscale
