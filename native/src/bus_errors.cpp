#include "gnnscale/bus_errors.hpp"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>

namespace gnnscale {
namespace {

struct Report {
  int descriptor = -1;
  int status = 1;
  char after[kMaxBusErrorText] = {};
  size_t length = 0;
};
Report report;
std::atomic_flag reporting = ATOMIC_FLAG_INIT;

// Reads an open file character by character, without allocation.
class Characters {
 public:
  explicit Characters(int descriptor) : descriptor_(descriptor) {}

  // Returns the next character; -1 at the end.
  int next() {
    if (begin_ == end_) {
      ssize_t count;
      do {
        count = read(descriptor_, buffer_, sizeof(buffer_));
      } while (count < 0 && errno == EINTR);
      if (count <= 0) return -1;
      begin_ = 0;
      end_ = static_cast<size_t>(count);
    }
    return static_cast<unsigned char>(buffer_[begin_++]);
  }

 private:
  int descriptor_;
  char buffer_[2048];
  size_t begin_ = 0, end_ = 0;
};

// Reads a hexadecimal number, and the character that follows it.
uintptr_t read_hex(Characters& text, int* after) {
  uintptr_t value = 0;
  for (;;) {
    const int c = text.next();
    if (c >= '0' && c <= '9') {
      value = 16 * value + static_cast<uintptr_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = 16 * value + static_cast<uintptr_t>(c - 'a' + 10);
    } else {
      *after = c;
      return value;
    }
  }
}

// Copies the rest of a line from its first slash on, if `is_match`.
size_t read_name(Characters& text, bool is_match, char* name, size_t capacity) {
  size_t length = 0;
  bool in_name = false;
  for (int c = text.next(); c != '\n' && c != -1; c = text.next()) {
    in_name = in_name || c == '/';
    if (is_match && in_name && length < capacity) name[length++] = static_cast<char>(c);
  }
  return length;
}

void write_all(int descriptor, const char* data, size_t length) {
  while (length > 0) {
    const ssize_t count = write(descriptor, data, length);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    data += count;
    length -= static_cast<size_t>(count);
  }
}

void on_bus_error(int number, siginfo_t* info, void*) {
  char name[PATH_MAX];
  // Positive codes come from the kernel; all other signals were sent by a process.
  const size_t length = info->si_code > 0 ? mapped_file(info->si_addr, name, sizeof(name)) : 0;
  if (length == 0) {
    signal(number, SIG_DFL);
    raise(number);  // delivered after the handler returns
    return;
  }
  // Several threads may fault on one file; only the first reports.
  while (reporting.test_and_set()) pause();
  write_all(report.descriptor, name, length);
  write_all(report.descriptor, report.after, report.length);
  _exit(report.status);
}

}  // namespace

size_t mapped_file(const void* address, char* name, size_t capacity) {
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return 0;
  const auto target = reinterpret_cast<uintptr_t>(address);
  Characters text(maps);
  size_t length = 0;
  for (bool matches = false; !matches;) {
    // A line is "begin-end rights offset device inode name"; the name begins with a slash.
    int after = 0;
    const uintptr_t begin = read_hex(text, &after);
    if (after != '-') break;
    const uintptr_t end = read_hex(text, &after);
    matches = begin <= target && target < end;
    length = read_name(text, matches, name, capacity);
  }
  close(maps);
  return length;
}

void end_on_bus_error(int descriptor, std::string_view after, int status) {
  report.descriptor = descriptor;
  report.status = status;
  report.length = std::min(after.size(), kMaxBusErrorText);
  std::memcpy(report.after, after.data(), report.length);
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGBUS, &action, nullptr) != 0) {
    throw std::system_error(errno, std::generic_category(), "sigaction");
  }
}

}  // namespace gnnscale
