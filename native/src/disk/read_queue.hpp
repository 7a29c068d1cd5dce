// Queue of submissions, shared by callers and by the threads that read.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "gnnscale/memory.hpp"
#include "row_requests.hpp"

namespace gnnscale {

// A submission; all fields but keys and pool are guarded by the queue's mutex.
struct Submission {
  Array<RowKey> memory;  // of the keys, twice for sorting; freed on completion
  const RowKey* keys = nullptr;
  int64_t size = 0;
  RowPool pool;

  int64_t next = 0;       // first key without a request
  int64_t in_flight = 0;  // requests in flight
  bool done = false;
  int error = 0;  // errno of the first failed read
  int64_t error_begin = 0, error_length = 0;
};

// A request in flight.
struct Read {
  std::shared_ptr<Submission> of;
  Request request;
};

class ReadQueue {
 public:
  enum class Next { read, nothing, closed };

  ReadQueue(const RowFile& file, const Requests& requests) : file_(file), requests_(requests) {}

  // Sets a callback, called with the mutex held, when the queue becomes non-empty.
  void set_wake(std::function<void()> wake) { wake_ = std::move(wake); }

  int64_t submit(const RowIds& rows, const int32_t* slots, int64_t size, const RowPool& pool);
  bool wait(int64_t ticket, std::chrono::milliseconds at_most);
  bool is_done(int64_t ticket) const;
  bool holds(int64_t ticket) const;
  ReadCounters take_counters();
  // Stops handing out reads.
  void close();
  // Fails all remaining submissions; call after the last read has finished.
  void cancel();

  // Returns the lock of the queue, for reading threads. Functions that take the lock return with it
  // locked; `next` releases it while sorting.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  Next next(Read& read, std::unique_lock<std::mutex>& lock);
  // Called without the lock. Returns the slot of a row that is its request's only content and whose
  // slot begins at a multiple of `alignment`; otherwise null.
  uint8_t* slot_of(const Read& read, int64_t alignment) const;
  // Called without the lock. Copies the rows of a finished read to their slots.
  void deliver(const Read& read, const uint8_t* bytes) const;
  // Called with the lock. Records the end of a read, with an errno if it failed.
  void finish(Read& read, int error);

 private:
  using Clock = std::chrono::steady_clock;

  std::shared_ptr<Submission> find(int64_t ticket) const;
  void end(Submission& submission);
  void start_clock(Clock::time_point now) { busy_since_ = now; }
  void stop_clock(Clock::time_point now);

  const RowFile file_;
  const Requests requests_;
  std::function<void()> wake_;

  mutable std::mutex mutex_;
  std::condition_variable done_;
  std::deque<std::shared_ptr<Submission>> waiting_;
  std::shared_ptr<Submission> current_;  // submission that requests are made from
  bool is_sorting_ = false;
  bool is_starved_ = false;  // a thread found no request
  bool is_closed_ = false;
  std::unordered_map<int64_t, std::shared_ptr<Submission>> tickets_;
  int64_t next_ticket_ = 0;
  int64_t in_flight_ = 0;
  Clock::time_point busy_since_;
  ReadCounters counters_;
};

}  // namespace gnnscale
