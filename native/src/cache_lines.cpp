#include "gnnscale/cache_lines.hpp"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace gnnscale {

#if defined(__x86_64__)
namespace {

constexpr size_t kLine = 64;

bool has_clflushopt() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & (1u << 23)) != 0;
}

// Flushes without ordering between lines, which is faster.
__attribute__((target("clflushopt"))) void flush_unordered(const char* begin, const char* end) {
  for (const char* line = begin; line < end; line += kLine) {
    _mm_clflushopt(const_cast<char*>(line));
  }
}

// Flushes line by line; every x86-64 processor supports it.
void flush_ordered(const char* begin, const char* end) {
  for (const char* line = begin; line < end; line += kLine) _mm_clflush(line);
}

}  // namespace

bool flush_cache_lines(const void* data, size_t num_bytes) {
  static const bool unordered = has_clflushopt();
  const auto* end = static_cast<const char*>(data) + num_bytes;
  const auto start = reinterpret_cast<uintptr_t>(data) & ~uintptr_t{kLine - 1};
  const auto* begin = reinterpret_cast<const char*>(start);
  unordered ? flush_unordered(begin, end) : flush_ordered(begin, end);
  _mm_mfence();
  return true;
}

#elif defined(__aarch64__)

bool flush_cache_lines(const void* data, size_t num_bytes) {
  uint64_t type = 0;
  __asm__("mrs %0, ctr_el0" : "=r"(type));
  const uintptr_t line = uintptr_t{4} << ((type >> 16) & 15);
  const auto start = reinterpret_cast<uintptr_t>(data), end = start + num_bytes;
  for (uintptr_t at = start & ~(line - 1); at < end; at += line) {
    __asm__ volatile("dc civac, %0" : : "r"(at) : "memory");
  }
  __asm__ volatile("dsb ish" : : : "memory");
  return true;
}

#else

bool flush_cache_lines(const void*, size_t) { return false; }

#endif

}  // namespace gnnscale
