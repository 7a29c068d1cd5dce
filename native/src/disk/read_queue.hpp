// What is to be read, and what became of it: shared by callers and by the threads that read.
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

// A submission; all but keys and pool is guarded by the queue's mutex.
struct Submission {
  Array<RowKey> memory;  // of the keys, twice for sorting; freed when it is done
  const RowKey* keys = nullptr;
  int64_t size = 0;
  RowPool pool;

  int64_t next = 0;       // the first key that is in no request yet
  int64_t in_flight = 0;  // requests
  bool done = false;
  int error = 0;  // errno of the first read that failed
  int64_t error_begin = 0, error_length = 0;
};

// A request that is under way.
struct Read {
  std::shared_ptr<Submission> of;
  Request request;
};

class ReadQueue {
 public:
  enum class Next { read, nothing, closed };

  ReadQueue(const RowFile& file, const Requests& requests) : file_(file), requests_(requests) {}

  // What is called, with the mutex held, when there is something to read after there was nothing.
  void set_wake(std::function<void()> wake) { wake_ = std::move(wake); }

  int64_t submit(const RowIds& rows, const int32_t* slots, int64_t size, const RowPool& pool);
  bool wait(int64_t ticket, std::chrono::milliseconds at_most);
  bool is_done(int64_t ticket) const;
  bool holds(int64_t ticket) const;
  ReadCounters take_counters();
  // From now on there is nothing to read.
  void close();
  // Ends what is left, after the last read has ended.
  void cancel();

  // For the threads that read. Those that take the mutex as a lock leave it locked, but `next`
  // opens it while it sorts.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  Next next(Read& read, std::unique_lock<std::mutex>& lock);
  // Without the lock: the slot of a row that fills its request alone and whose slot begins at a
  // multiple of `alignment`; null for others.
  uint8_t* slot_of(const Read& read, int64_t alignment) const;
  // Without the lock: copies the rows that have arrived.
  void deliver(const Read& read, const uint8_t* bytes) const;
  // With the lock: the read has ended, with an errno if it failed.
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
  std::shared_ptr<Submission> current_;  // of which requests are made
  bool is_sorting_ = false;
  bool is_starved_ = false;  // nothing was left for a thread that asked
  bool is_closed_ = false;
  std::unordered_map<int64_t, std::shared_ptr<Submission>> tickets_;
  int64_t next_ticket_ = 0;
  int64_t in_flight_ = 0;
  Clock::time_point busy_since_;
  ReadCounters counters_;
};

}  // namespace gnnscale
