#include "gnnscale/parallel.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace gnnscale {
namespace {

struct Job {
  const std::function<void()>* body;
  int running = 0;                 // threads inside body, guarded by Pool::mutex
  std::exception_ptr thrown = {};  // what body threw first, guarded by Pool::mutex
};

class Pool {
 public:
  void run(int num_helpers, const std::function<void()>& body) {
    Job job{&body};
    {
      std::lock_guard lock(mutex_);
      for (; num_threads_ < num_helpers; ++num_threads_) std::thread([this] { work(); }).detach();
      queue_.insert(queue_.end(), num_helpers, &job);
    }
    num_helpers == 1 ? wake_.notify_one() : wake_.notify_all();
    const std::exception_ptr mine = thrown_by(body);
    std::unique_lock lock(mutex_);
    std::erase(queue_, &job);  // whoever has not joined by now would find nothing to do
    done_.wait(lock, [&] { return job.running == 0; });
    if (mine || job.thrown) std::rethrow_exception(mine ? mine : job.thrown);
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
      wake_.wait(lock, [&] { return !queue_.empty(); });
      Job* job = queue_.front();
      queue_.pop_front();
      ++job->running;
      lock.unlock();
      std::exception_ptr thrown = thrown_by(*job->body);
      lock.lock();
      if (thrown && !job->thrown) job->thrown = thrown;
      thrown = {};
      if (--job->running == 0) done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::deque<Job*> queue_;
  int num_threads_ = 0;
};

// The pool is never destroyed: its threads may outlive static destructors. A forked child has none
// of the threads, so it starts with a new pool.
Pool* current_pool = nullptr;

Pool& pool() {
  static const bool ready = [] {
    current_pool = new Pool;
    pthread_atfork(nullptr, nullptr, [] { current_pool = new Pool; });
    return true;
  }();
  static_cast<void>(ready);
  return *current_pool;
}

}  // namespace

void run_threads(int num_threads, const std::function<void()>& body) {
  if (num_threads <= 1) {
    body();
  } else {
    pool().run(num_threads - 1, body);
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
          next = num_chunks;  // nothing is left for the others
          throw;
        }
      }
      body(chunk * grain, std::min(num_items, (chunk + 1) * grain));
    }
  });
}

}  // namespace gnnscale
