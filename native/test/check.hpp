// Minimal test framework: CHECK reports a failure and continues; a test's main returns
// check_result().
#pragma once

#include <atomic>
#include <cstdio>

// The address sanitizer's own locks do not survive a fork next to a busy thread, and the thread
// sanitizer cannot follow a child that starts threads.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kCanFork = false;
#else
inline constexpr bool kCanFork = true;
#endif

inline std::atomic<int> num_failures{0};

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      ++num_failures;                                                                \
    }                                                                                \
  } while (false)

#define CHECK_THROWS(statement, type)             \
  do {                                            \
    bool thrown = false;                          \
    try {                                         \
      statement;                                  \
    } catch (const type&) {                       \
      thrown = true;                              \
    }                                             \
    CHECK(thrown && #statement " throws " #type); \
  } while (false)

inline int check_result() {
  if (num_failures == 0) return 0;
  std::fprintf(stderr, "%d checks failed\n", num_failures.load());
  return 1;
}
