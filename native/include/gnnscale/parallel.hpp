// Fork-join parallelism over a process-wide pool of threads.
#pragma once

#include <cstdint>
#include <functional>

namespace gnnscale {

// Runs `body` in up to `num_threads` threads at once, the caller being one of them, and returns
// when all of them are done. Threads that are busy elsewhere may not join, so `body` must take its
// work from a shared counter and be correct when a single thread executes it. What `body` throws in
// any thread, such as bad_alloc, is thrown to the caller once all threads have left it.
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

}  // namespace gnnscale
