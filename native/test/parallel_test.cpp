// Tests of the thread pool: concurrent callers, nested calls, and forks.
#include "gnnscale/parallel.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.hpp"
#include "gnnscale/memory.hpp"

using namespace gnnscale;

namespace {

// Returns whether every item in [0, num_items) is visited exactly once, in chunks of at most
// `grain`.
bool covers(int64_t num_items, int64_t grain, int num_threads) {
  std::vector<std::atomic<int>> visits(num_items);
  std::atomic<bool> fits{true};
  parallel_for(num_items, grain, num_threads, [&](int64_t begin, int64_t end) {
    if (begin >= end || (num_threads > 1 && end - begin > grain)) fits = false;
    for (int64_t i = begin; i < end; ++i) ++visits[i];
  });
  for (const auto& count : visits) fits = fits && count == 1;
  return fits;
}

void test_parallel_for() {
  for (const int threads : {0, 1, 2, 4}) {
    for (const int64_t grain : {1, 7, 1000}) {
      for (const int64_t items : {0, 1, 6, 7, 8, 100, 1000}) CHECK(covers(items, grain, threads));
    }
  }
}

void test_run_threads() {
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::atomic<int> entered{0}, finished{0};
    run_threads(4, [&] {
      ++entered;
      ++finished;
    });
    const int count = entered;
    CHECK(count >= 1 && count <= 4);
    CHECK(finished == count);  // all threads have finished
  }
}

void test_concurrent_callers() {
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([] {
      for (int repeat = 0; repeat < 50; ++repeat) CHECK(covers(300, 3, 3));
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// Requests of 8, 8 and 16 threads have 32 threads running concurrently.
void test_requests_add_up() {
  constexpr int kAtOnce = 32;
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::mutex mutex;
    std::condition_variable all_here;
    int num_here = 0;
    bool met = true;
    std::vector<std::thread> callers;
    for (const int threads : {8, 8, 16}) {
      callers.emplace_back([&, threads] {
        run_threads(threads, [&] {
          std::unique_lock lock(mutex);
          if (++num_here == kAtOnce) all_here.notify_all();
          const auto patience = std::chrono::seconds(20);
          met &= all_here.wait_for(lock, patience, [&] { return num_here == kAtOnce; });
        });
      });
    }
    for (std::thread& caller : callers) caller.join();
    CHECK(met && num_here == kAtOnce);
  }
}

void test_nested() {
  std::vector<std::atomic<int>> visits(400);
  parallel_for(20, 1, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      parallel_for(20, 2, 3, [&](int64_t first, int64_t last) {
        for (int64_t j = first; j < last; ++j) ++visits[i * 20 + j];
      });
    }
  });
  for (const auto& count : visits) CHECK(count == 1);
}

// A forked child has none of the pool's threads, and does not wait for locks held by lost threads.
void test_fork() {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop && !kSanitized) {
      const Array<int> array(100000);
      parallel_for(100, 1, 2, [&](int64_t begin, int64_t) { array.data[begin] = 1; });
    }
  });
  for (int repeat = 0; repeat < 20; ++repeat) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // a child that waits forever fails
      const Array<int> array(100000);
      _exit(covers(1000, 10, 4) ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  stop = true;
  other.join();
  CHECK(covers(1000, 10, 4));
}

// If a body forks, the child has only the forking thread: it gets an error, and can continue.
void test_fork_inside_body() {
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto caller = std::this_thread::get_id();
    pid_t child = -1;
    bool thrown = false;
    try {
      run_threads(4, [&] {
        if (std::this_thread::get_id() == caller) child = fork();
        if (child == 0) alarm(20);
      });
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    if (child == 0) _exit(thrown && covers(1000, 10, 4) ? 0 : 1);
    int status = -1;
    CHECK(!thrown && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

void test_blocks_from_several_threads() {
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([caller] {
      for (int repeat = 0; repeat < 300; ++repeat) {
        const Array<int> array(1000 + 500 * (repeat % 3));
        std::iota(array.data.get(), array.data.get() + array.size, caller);
        for (int64_t i = 0; i < array.size; i += 100) CHECK(array.data[i] == caller + i);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// An exception of a body in any thread reaches the caller, and the pool keeps working.
void test_exceptions_in_bodies() {
  for (int repeat = 0; repeat < 50; ++repeat) {
    CHECK_THROWS(parallel_for(1000, 10, 4,
                              [&](int64_t begin, int64_t) {
                                if (begin == 10 * (repeat % 100)) throw std::bad_alloc();
                              }),
                 std::bad_alloc);
    std::atomic<int64_t> sum{0};
    parallel_for(1000, 10, 4, [&](int64_t begin, int64_t end) { sum += end - begin; });
    CHECK(sum == 1000);
  }
}

// Every chunk of a phase sees the writes of all chunks of earlier phases.
void test_phases() {
  for (const int threads : {1, 2, 4, 16}) {
    for (const int64_t size : {0, 1, 5, 300}) {
      std::vector<std::atomic<int64_t>> first(size), second(size);
      int64_t sum = -1, at_end = -1;
      const std::vector<Phase> phases{
          {[&] { return size; }, [&](int64_t i) { first[i] += i; }},
          {[] { return 0; }, [](int64_t) { CHECK(false); }},
          {[&] {
             sum = std::accumulate(first.begin(), first.end(), int64_t{0});
             return size;
           },
           [&](int64_t i) { second[i] += sum + first[size - 1 - i]; }},
          {[&] {
             at_end = std::accumulate(second.begin(), second.end(), int64_t{0});
             return 0;
           },
           [](int64_t) {}},
      };
      run_phases(threads, phases);
      CHECK(sum == size * (size - 1) / 2);
      CHECK(at_end == (size + 1) * sum);
    }
  }
}

// An exception in a phase's preparation or chunk ends it, and later phases are skipped.
void test_exceptions_in_phases() {
  const auto refuse = [](bool really) {
    if (really) throw std::bad_alloc();
  };
  for (const int threads : {1, 4}) {
    for (int repeat = 0; repeat < 40; ++repeat) {
      for (const bool in_prepare : {false, true}) {
        const std::vector<Phase> phases{
            {[] { return 50; }, [](int64_t) {}},
            {[&] {
               refuse(in_prepare);
               return 100;
             },
             [&](int64_t i) { refuse(i == repeat); }},
            {[] { return 10; }, [](int64_t) { CHECK(false); }},
        };
        CHECK_THROWS(run_phases(threads, phases), std::bad_alloc);
      }
    }
  }
}

// Polls run only in the caller's thread; an exception of a poll skips the remaining chunks.
void test_polls() {
  const auto caller = std::this_thread::get_id();
  for (const int threads : {1, 4}) {
    std::atomic<int64_t> done{0};
    int64_t num_polls = 0;
    const Poll count = [&] {
      CHECK(std::this_thread::get_id() == caller);
      ++num_polls;
    };
    for (const int64_t items : {0, 1000}) {
      done = num_polls = 0;
      parallel_for(items, 10, threads, count,
                   [&](int64_t begin, int64_t end) { done += end - begin; });
      CHECK(done == items);
      CHECK(threads > 1 ? num_polls <= items / 10 : num_polls == items / 10);
    }
    done = num_polls = 0;
    const Poll fail = [&] {
      while (threads > 1 && done == 0) std::this_thread::yield();  // waits for a worker
      if (threads > 1 || ++num_polls == 3) throw std::bad_alloc();
    };
    CHECK_THROWS(parallel_for(2000, 1, threads, fail,
                              [&](int64_t, int64_t) {
                                ++done;
                                std::this_thread::sleep_for(std::chrono::milliseconds(1));
                              }),
                 std::bad_alloc);
    CHECK(threads > 1 ? done < 2000 : done == 2);
  }
}

}  // namespace

int main() {
  test_parallel_for();
  test_polls();
  test_exceptions_in_bodies();
  test_run_threads();
  test_phases();
  test_exceptions_in_phases();
  test_concurrent_callers();
  test_requests_add_up();
  test_nested();
  test_blocks_from_several_threads();
  if (kCanFork) test_fork();
  if (kCanFork) test_fork_inside_body();
  return check_result();
}
