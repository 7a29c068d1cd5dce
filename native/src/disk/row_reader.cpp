#include "gnnscale/row_reader.hpp"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "aligned_file.hpp"
#include "read_queue.hpp"
#include "ring.hpp"

namespace gnnscale {
namespace {

// Maximum retries of a read that the kernel deferred.
constexpr int kMaxTries = 10000;

// A read, which may take several calls: the next call requests the remaining bytes, from a multiple
// of the alignment on.
class Progress {
 public:
  Progress() = default;
  Progress(const Request& request, int64_t alignment)
      : begin_(request.begin),
        length_(request.length),
        needed_(request.needed),
        alignment_(alignment) {}

  int64_t skipped() const { return done_ & ~(alignment_ - 1); }
  int64_t offset() const { return begin_ + skipped(); }
  int64_t length() const { return length_ - skipped(); }

  // Processes a call's result, bytes or a negative errno. Returns whether the read has ended;
  // error() then tells its outcome.
  bool ended(int64_t result) {
    if (result == -EINTR || result == -EAGAIN) {
      error_ = ++tries_ < kMaxTries ? 0 : EAGAIN;
    } else if (result < 0) {
      error_ = static_cast<int>(-result);
    } else {
      const int64_t done = skipped() + result;
      if (done <= done_ && done < needed_) error_ = ENODATA;
      done_ = done;
    }
    return error_ != 0 || done_ >= needed_;
  }
  int error() const { return error_; }

 private:
  int64_t begin_ = 0, length_ = 0, needed_ = 0, alignment_ = 1;
  int64_t done_ = 0;
  int error_ = 0, tries_ = 0;
};

void name_thread() { pthread_setname_np(pthread_self(), "gnnscale-read"); }

// Shared inputs of the engines.
struct Work {
  const AlignedFile& file;
  ReadQueue& queue;
  uint8_t* buffers;      // one buffer for each read in flight
  int64_t buffer_bytes;  // of each buffer
  int depth;

  uint8_t* buffer(int64_t number) const { return buffers + number * buffer_bytes; }
};

class Engine {
 public:
  virtual ~Engine() = default;  // called after the queue was closed
};

// Engine of threads that make one read each.
class ReadThreads : public Engine {
 public:
  explicit ReadThreads(const Work& work) : work_(work) {
    work_.queue.set_wake([this] { wake_.notify_all(); });
    const int count = std::min(work_.depth, kMaxReadThreads);
    try {
      for (int i = 0; i < count; ++i) threads_.emplace_back([this, i] { run(work_.buffer(i)); });
    } catch (...) {
      work_.queue.close();
      join();
      throw;
    }
  }
  ~ReadThreads() override { join(); }

 private:
  void join() {
    for (std::thread& worker : threads_) worker.join();
  }

  void run(uint8_t* buffer) {
    name_thread();
    Read read;
    auto lock = work_.queue.lock();
    for (;;) {
      const auto next = work_.queue.next(read, lock);
      if (next == ReadQueue::Next::closed) return;
      if (next == ReadQueue::Next::nothing) {
        wake_.wait(lock);
        continue;
      }
      lock.unlock();
      const int error = read_now(read, buffer);
      lock.lock();
      work_.queue.finish(read, error);
    }
  }

  int read_now(const Read& read, uint8_t* buffer) const {
    Progress progress(read.request, work_.file.alignment());
    for (;;) {
      const ssize_t result = pread(work_.file.fd(), buffer + progress.skipped(),
                                   static_cast<size_t>(progress.length()), progress.offset());
      if (progress.ended(result < 0 ? -errno : result)) break;
    }
    if (progress.error() == 0) work_.queue.deliver(read, buffer);
    work_.file.forget(read.request.begin, read.request.length);
    return progress.error();
  }

  const Work work_;
  std::condition_variable wake_;
  std::vector<std::thread> threads_;
};

// Engine of one thread that keeps `depth` reads in flight in the kernel.
class RingThread : public Engine {
 public:
  RingThread(const Work& work, const AlignedMemory& memory)
      : work_(work), ring_(work.file.fd(), memory, work.depth), flights_(work.depth) {
    bell_ = eventfd(0, EFD_CLOEXEC);
    if (bell_ < 0) throw FileError(errno, std::string("eventfd: ") + std::strerror(errno));
    for (int i = 0; i < work_.depth; ++i) free_.push_back(i);
    completions_.resize(work_.depth + 1);
    landed_.reserve(work_.depth);
    work_.queue.set_wake([this] { ring_bell(); });
    try {
      thread_ = std::thread([this] { run(); });
    } catch (...) {
      ::close(bell_);
      throw;
    }
  }
  ~RingThread() override {
    thread_.join();
    ::close(bell_);
  }

 private:
  static constexpr uint64_t kBell = UINT64_MAX;

  struct Flight {
    Read read;
    Progress progress;
    uint8_t* slot = nullptr;  // destination of a row that needs no copy
  };

  void run() {
    name_thread();
    ring_.start();
    arm_bell();
    while (!fill() || free_.size() < flights_.size()) {
      // Waiting for several reads together wakes the thread less often.
      const size_t count = free_.empty() ? std::max<size_t>(flights_.size() / kPatience, 1) : 1;
      if (wait_for(count)) arm_bell();
      clear_landed();
    }
    // The kernel must not write to memory that is freed next.
    ring_bell();
    while (!wait_for(1)) continue;
  }

  void arm_bell() { ring_.read_other(kBell, bell_, &num_rings_); }

  void ring_bell() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(bell_, &one, sizeof one);
  }

  // Processes completions until `count` reads have finished or the bell has rung; returns whether
  // it has rung.
  bool wait_for(size_t count) {
    ring_.enter(static_cast<unsigned>(count));
    bool has_rung = false;
    for (size_t num_done; (num_done = ring_.take(completions_)) > 0;) {
      for (size_t i = 0; i < num_done; ++i) {
        has_rung |= completions_[i].tag == kBell;
        if (completions_[i].tag != kBell) land(completions_[i]);
      }
    }
    return has_rung;
  }

  // Starts reads while there are requests and free buffers; returns whether the queue is closed.
  bool fill() {
    auto lock = work_.queue.lock();
    while (!free_.empty()) {
      const int number = free_.back();
      Flight& flight = flights_[number];
      const auto next = work_.queue.next(flight.read, lock);
      if (next != ReadQueue::Next::read) return next == ReadQueue::Next::closed;
      free_.pop_back();
      flight.slot = work_.queue.slot_of(flight.read, work_.file.alignment());
      flight.progress = Progress(flight.read.request, work_.file.alignment());
      begin(number);
    }
    return false;
  }

  void begin(int number) {
    const Flight& flight = flights_[number];
    const Progress& progress = flight.progress;
    uint8_t* to = flight.slot != nullptr ? flight.slot : work_.buffer(number);
    ring_.read(static_cast<uint64_t>(number), to + progress.skipped(),
               static_cast<uint32_t>(progress.length()), progress.offset(), flight.slot == nullptr);
  }

  void land(const Ring::Completion& completion) {
    const int number = static_cast<int>(completion.tag);
    Flight& flight = flights_[number];
    if (!flight.progress.ended(completion.result)) return begin(number);
    if (flight.progress.error() == 0 && flight.slot == nullptr) {
      work_.queue.deliver(flight.read, work_.buffer(number));
    }
    work_.file.forget(flight.read.request.begin, flight.read.request.length);
    landed_.push_back(number);
  }

  void clear_landed() {
    if (landed_.empty()) return;
    const auto lock = work_.queue.lock();
    for (const int number : landed_) {
      work_.queue.finish(flights_[number].read, flights_[number].progress.error());
      free_.push_back(number);
    }
    landed_.clear();
  }

  // With all reads in flight, waits for 1 / kPatience of them to finish.
  static constexpr size_t kPatience = 4;

  const Work work_;
  Ring ring_;
  std::vector<Flight> flights_;
  std::vector<int> free_, landed_;
  std::vector<Ring::Completion> completions_;
  int bell_ = -1;           // written to wake the thread
  uint64_t num_rings_ = 0;  // read buffer of the bell
  std::thread thread_;
};

RowFile checked(RowFile file, int64_t size) {
  const int64_t end = file.offset + file.num_rows * file.row_bytes;
  if (end <= size) return file;
  throw std::invalid_argument(
      "num_rows: " + std::to_string(file.num_rows) + " rows of " + std::to_string(file.row_bytes) +
      " bytes from " + std::to_string(file.offset) + " on end at " + std::to_string(end) +
      ", allowed is " + std::to_string(size) + ", the size of " + file.path);
}

int64_t checked_bytes(const Requests& requests, int depth) {
  const int64_t num_bytes = requests.max_bytes() * depth;
  if (num_bytes <= kMaxBufferBytes) return num_bytes;
  throw std::invalid_argument("depth: " + std::to_string(depth) + " reads of " +
                              std::to_string(requests.max_bytes()) + " bytes, allowed are " +
                              std::to_string(kMaxBufferBytes) + " bytes together");
}

}  // namespace

struct RowReader::State {
  State(RowFile unchecked, const ReaderOptions& options)
      : on_disk(unchecked.path, options.direct),
        file(checked(std::move(unchecked), on_disk.size())),
        requests(file, options, on_disk.alignment()),
        memory(static_cast<size_t>(checked_bytes(requests, options.depth))),
        queue(file, requests) {
    const Work work{on_disk, queue, memory.data(), requests.max_bytes(), options.depth};
    // Threads were faster through the page cache, which they fill concurrently.
    const bool any = options.engine == ReadEngine::any;
    if (options.engine == ReadEngine::io_uring || (any && on_disk.direct())) {
      try {
        engine = std::make_unique<RingThread>(work, memory);
        used = ReadEngine::io_uring;
        return;
      } catch (const FileError&) {
        if (!any) throw;
      }
    }
    engine = std::make_unique<ReadThreads>(work);
    used = ReadEngine::threads;
  }

  void close() {
    const std::lock_guard lock(closing);
    if (!engine) return;
    queue.close();
    engine = nullptr;
    queue.cancel();
  }

  AlignedFile on_disk;
  const RowFile file;
  const Requests requests;
  AlignedMemory memory;
  ReadQueue queue;
  ReadEngine used = ReadEngine::threads;
  std::mutex closing;
  std::unique_ptr<Engine> engine;
  const pid_t process = getpid();
};

RowReader::RowReader(RowFile file, const ReaderOptions& options)
    : state_(std::make_unique<State>(std::move(file), options)) {}

RowReader::~RowReader() {
  if (state_->process == getpid()) {
    state_->close();
  } else {
    // A forked child has neither the threads nor the buffers.
    static_cast<void>(state_.release());
  }
}

RowReader::State& RowReader::state() const {
  if (state_->process != getpid()) {
    throw std::invalid_argument("rows: this reader is of the process before the fork");
  }
  return *state_;
}

int64_t RowReader::submit(const RowIds& rows, const int32_t* slots, int64_t size,
                          const RowPool& pool) {
  return state().queue.submit(rows, slots, size, pool);
}
bool RowReader::wait(int64_t ticket, std::chrono::milliseconds at_most) {
  return state().queue.wait(ticket, at_most);
}
bool RowReader::is_done(int64_t ticket) const { return state().queue.is_done(ticket); }
ReadCounters RowReader::take_counters() { return state().queue.take_counters(); }
bool RowReader::holds(int64_t ticket) const {
  return state_->process != getpid() || state_->queue.holds(ticket);
}
void RowReader::close() {
  if (state_->process == getpid()) state_->close();
}
const RowFile& RowReader::file() const { return state_->file; }
ReadEngine RowReader::engine() const { return state_->used; }
bool RowReader::direct() const { return state_->on_disk.direct(); }

}  // namespace gnnscale
