// Fork-join parallelism over a process-wide pool of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace gnnscale {

// Runs `body` in up to `num_threads` threads, the caller among them, and returns when all have
// finished. The pool has as many threads as all concurrent callers request, so callers do not wait
// for each other. A thread that arrives after `body` has finished elsewhere does not join, so
// `body` must take its work from a shared counter and be correct when a single thread executes it.
// Exceptions of `body` in any thread, such as bad_alloc, are rethrown to the caller after all
// threads have finished; of several exceptions, the first. A forked child has a pool of its own; a
// fork inside `body` is a runtime_error in the child.
void run_threads(int num_threads, const std::function<void()>& body);

// Calls `body(begin, end)` on chunks of `grain` items that cover [0, num_items).
void parallel_for(int64_t num_items, int64_t grain, int num_threads,
                  const std::function<void(int64_t, int64_t)>& body);

// Callback that long-running work calls periodically in its caller's thread; an exception from it
// ends the work and is rethrown to the caller. May be empty.
using Poll = std::function<void()>;

// parallel_for that calls `poll` before each chunk of the caller's thread. After an exception the
// worker threads finish their current chunks.
void parallel_for(int64_t num_items, int64_t grain, int num_threads, const Poll& poll,
                  const std::function<void(int64_t, int64_t)>& body);

// Phase of parallel work in chunks.
struct Phase {
  std::function<int64_t()> prepare;         // returns the number of chunks
  std::function<void(int64_t chunk)> body;  // runs in several threads
};

// Runs the phases in order, with a barrier after each, in one set of threads. One thread runs
// `prepare`. After an exception the following phases are skipped.
void run_phases(int num_threads, std::span<const Phase> phases);

}  // namespace gnnscale
