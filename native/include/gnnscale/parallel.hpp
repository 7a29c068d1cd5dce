// Fork-join parallelism over a process-wide pool of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace gnnscale {

// Runs `body` in up to `num_threads` threads at once, the caller being one of them, and returns
// when all of them are done. The pool holds the sum of what is asked for at a time: callers do not
// wait for each other. A thread that comes when `body` has ended elsewhere does not join, so `body`
// must take its work from a shared counter and be correct when a single thread executes it. What
// `body` throws in any thread, such as bad_alloc, is thrown to the caller once all threads have
// left it, the first if there are several. A child of fork has a pool of its own; a fork inside of
// `body` is a runtime_error in the child.
void run_threads(int num_threads, const std::function<void()>& body);

// Calls `body(begin, end)` on chunks of `grain` items that cover [0, num_items).
void parallel_for(int64_t num_items, int64_t grain, int num_threads,
                  const std::function<void(int64_t, int64_t)>& body);

// What long work calls now and then, in the thread of its caller; what it throws ends the work and
// is thrown to the caller. May be empty.
using Poll = std::function<void()>;

// The same, with `poll` called before each chunk of the caller's thread. Other threads end the
// chunks that they are at.
void parallel_for(int64_t num_items, int64_t grain, int num_threads, const Poll& poll,
                  const std::function<void(int64_t, int64_t)>& body);

// A step of work in chunks.
struct Phase {
  std::function<int64_t()> prepare;         // says how many chunks there are
  std::function<void(int64_t chunk)> body;  // any number of them at once
};

// Runs the phases in order, each when the one before it has ended, in threads that stay together
// from the first to the last. `prepare` is run by one thread, alone. Where one throws, the phases
// that follow are left out.
void run_phases(int num_threads, std::span<const Phase> phases);

}  // namespace gnnscale
