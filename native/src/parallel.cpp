#include "gnnscale/parallel.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

namespace gnnscale {
namespace {

// Iterations of a wait before the thread sleeps: about 20 us, less than the kernel takes to wake
// it.
constexpr int kSpins = 400;

// Waits a little for a condition that another thread is about to meet.
template <typename IsMet>
void spin_until(IsMet&& is_met) {
  for (int i = 0; i < kSpins && !is_met(); ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

// One request; changed under Pool::mutex.
struct Job {
  const std::function<void()>* body;
  int num_joinable;                // threads that may still join
  std::atomic<int> running = 0;    // pool threads inside body
  std::exception_ptr thrown = {};  // first exception of body
  std::condition_variable finished = {};
};

class Pool;

// A forked child has none of the pool's threads, so it starts with a new pool.
Pool* current_pool = nullptr;

// Grows to the number of concurrently requested threads, so that no request waits for another.
class Pool {
 public:
  void run(int num_helpers, const std::function<void()>& body) {
    Job job{&body, num_helpers};
    {
      std::lock_guard lock(mutex_);
      for (; num_threads_ < num_wanted_ + num_helpers; ++num_threads_) {
        std::thread([this] { work(); }).detach();
      }
      open_.push_back(&job);
      num_wanted_ += num_helpers;
    }
    for (int i = 0; i < num_helpers; ++i) wake_.notify_one();
    const std::exception_ptr thrown_here = thrown_by(body);
    if (this != current_pool) {
      throw std::runtime_error("forked inside of parallel work, of which the child has one thread");
    }
    {
      std::lock_guard lock(mutex_);
      if (!job.thrown) job.thrown = thrown_here;
      std::erase(open_, &job);  // threads that have not joined by now would find no work
    }
    spin_until([&] { return job.running.load(std::memory_order_relaxed) == 0; });
    std::unique_lock lock(mutex_);
    job.finished.wait(lock, [&] { return job.running == 0; });
    num_wanted_ -= num_helpers;
    lock.unlock();
    if (job.thrown) std::rethrow_exception(job.thrown);
  }

 private:
  static std::exception_ptr thrown_by(const std::function<void()>& body) {
    try {
      body();
    } catch (...) {
      return std::current_exception();
    }
    return {};
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return !open_.empty(); });
      Job* job = open_.front();
      if (--job->num_joinable == 0) open_.pop_front();
      ++job->running;
      lock.unlock();
      std::exception_ptr thrown = thrown_by(*job->body);
      lock.lock();
      if (thrown && !job->thrown) job->thrown = thrown;
      thrown = {};
      // Notified under the lock: the caller destroys the job after its wait.
      if (--job->running == 0) job->finished.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job*> open_;  // jobs with free places
  int num_threads_ = 0;
  int num_wanted_ = 0;  // helpers of all active requests
};

// Created when the library is loaded, before any fork, and never destroyed: the threads may outlive
// static destructors.
[[maybe_unused]] const bool pool_is_made = [] {
  current_pool = new Pool;
  pthread_atfork(nullptr, nullptr, [] { current_pool = new Pool; });
  return true;
}();

// Shared state of the threads of run_phases.
class PhaseRun {
 public:
  explicit PhaseRun(std::span<const Phase> phases) : phases_(phases), progress_(phases.size()) {}

  // Opens `phase`, or the next phase with chunks.
  void open(size_t phase) {
    int64_t num_chunks = 0;
    for (; phase < phases_.size(); ++phase) {
      num_chunks = phases_[phase].prepare();
      if (num_chunks > 0) break;
    }
    if (phase < phases_.size()) {
      progress_[phase].num_chunks = progress_[phase].num_left = num_chunks;
    }
    open_.store(phase, std::memory_order_release);
    open_.notify_all();
  }

  void work() {
    for (size_t phase = 0; phase < phases_.size(); ++phase) {
      spin_until([&] { return open_.load(std::memory_order_relaxed) >= phase; });
      for (size_t at; (at = open_.load(std::memory_order_acquire)) < phase;) open_.wait(at);
      try {
        work_at(phase);
      } catch (...) {
        progress_[phase].next = progress_[phase].num_chunks;  // leaves no chunk for other threads
        open_.store(phases_.size(), std::memory_order_release);
        open_.notify_all();
        throw;
      }
    }
  }

 private:
  struct alignas(64) Progress {
    int64_t num_chunks = 0;
    std::atomic<int64_t> next{0};
    std::atomic<int64_t> num_left{0};
  };

  void work_at(size_t phase) {
    Progress& at = progress_[phase];
    for (int64_t chunk; (chunk = at.next.fetch_add(1)) < at.num_chunks;) {
      phases_[phase].body(chunk);
      if (at.num_left.fetch_sub(1, std::memory_order_acq_rel) == 1) open(phase + 1);
    }
  }

  std::span<const Phase> phases_;
  std::vector<Progress> progress_;
  std::atomic<size_t> open_{0};
};

}  // namespace

void run_threads(int num_threads, const std::function<void()>& body) {
  if (num_threads <= 1) {
    body();
  } else {
    current_pool->run(num_threads - 1, body);
  }
}

void parallel_for(int64_t num_items, int64_t grain, int num_threads,
                  const std::function<void(int64_t, int64_t)>& body) {
  const int64_t num_chunks = (num_items + grain - 1) / grain;
  if (num_chunks <= 1 || num_threads <= 1) {
    if (num_items > 0) body(0, num_items);
    return;
  }
  std::atomic<int64_t> next{0};
  run_threads(static_cast<int>(std::min<int64_t>(num_threads, num_chunks)), [&] {
    for (int64_t chunk; (chunk = next.fetch_add(1)) < num_chunks;) {
      body(chunk * grain, std::min(num_items, (chunk + 1) * grain));
    }
  });
}

void parallel_for(int64_t num_items, int64_t grain, int num_threads, const Poll& poll,
                  const std::function<void(int64_t, int64_t)>& body) {
  if (!poll) return parallel_for(num_items, grain, num_threads, body);
  const int64_t num_chunks = (num_items + grain - 1) / grain;
  const auto caller = std::this_thread::get_id();
  std::atomic<int64_t> next{0};
  run_threads(static_cast<int>(std::min<int64_t>(num_threads, num_chunks)), [&] {
    for (int64_t chunk; (chunk = next.fetch_add(1)) < num_chunks;) {
      if (std::this_thread::get_id() == caller) {
        try {
          poll();
        } catch (...) {
          next = num_chunks;  // leaves no chunk for other threads
          throw;
        }
      }
      body(chunk * grain, std::min(num_items, (chunk + 1) * grain));
    }
  });
}

void run_phases(int num_threads, std::span<const Phase> phases) {
  if (num_threads <= 1) {
    for (const Phase& phase : phases) {
      const int64_t num_chunks = phase.prepare();
      for (int64_t chunk = 0; chunk < num_chunks; ++chunk) phase.body(chunk);
    }
    return;
  }
  PhaseRun run(phases);
  run.open(0);
  run_threads(num_threads, [&] { run.work(); });
}

}  // namespace gnnscale
