// Tests of the names of mapped files, and of the exit of a process that reads a lost page.
#include "gnnscale/bus_errors.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "check.hpp"
#include "gnnscale/cache_lines.hpp"

using namespace gnnscale;

namespace {

constexpr size_t kPage = 4096;

// A mapped file of two pages, shortened to one.
struct Shortened {
  explicit Shortened(const std::string& suffix = "") {
    std::string pattern = "/tmp/gnnscale-bus-XXXXXX" + suffix;
    const int file = mkstemps(pattern.data(), static_cast<int>(suffix.size()));
    name = pattern;
    CHECK(ftruncate(file, 2 * kPage) == 0);
    data = static_cast<char*>(mmap(nullptr, 2 * kPage, PROT_READ, MAP_SHARED, file, 0));
    CHECK(ftruncate(file, kPage) == 0);
    close(file);
  }
  ~Shortened() {
    munmap(data, 2 * kPage);
    unlink(name.c_str());
  }
  std::string name;
  char* data = nullptr;
};

void test_a_mapped_file_is_named() {
  const Shortened file(" (a name, with blanks)");
  char name[4096];
  for (const size_t offset : {size_t{0}, kPage, 2 * kPage - 1}) {
    const size_t length = mapped_file(file.data + offset, name, sizeof(name));
    CHECK(std::string(name, length) == file.name);
  }
  CHECK(mapped_file(file.data, name, 4) == 4);
  CHECK(std::string(name, 4) == "/tmp");
  const std::vector<char> memory(10 * kPage);
  CHECK(mapped_file(memory.data() + kPage, name, sizeof(name)) == 0);
  CHECK(mapped_file(nullptr, name, sizeof(name)) == 0);
}

struct Ended {
  int status;
  std::string text;
};

// Runs `work` in a child. Returns its exit status and output.
template <typename Work>
Ended run_child(Work&& work) {
  int line[2];
  CHECK(pipe(line) == 0);
  const pid_t child = fork();
  if (child == 0) {
    end_on_bus_error(line[1], ": is gone\n", 77);
    work();
    _exit(0);
  }
  close(line[1]);
  Ended result{};
  char buffer[4096];
  for (ssize_t count; (count = read(line[0], buffer, sizeof(buffer))) > 0;) {
    result.text.append(buffer, static_cast<size_t>(count));
  }
  close(line[0]);
  waitpid(child, &result.status, 0);
  return result;
}

void test_a_lost_page_ends_the_process_with_a_line() {
  const Shortened file;
  const Ended first =
      run_child([&] { static_cast<void>(*static_cast<volatile char*>(file.data)); });
  CHECK(WIFEXITED(first.status) && WEXITSTATUS(first.status) == 0 && first.text.empty());
  const Ended second =
      run_child([&] { static_cast<void>(*static_cast<volatile char*>(file.data + kPage)); });
  CHECK(WIFEXITED(second.status) && WEXITSTATUS(second.status) == 77);
  CHECK(second.text == file.name + ": is gone\n");
}

void test_a_sent_signal_kills() {
  const Ended result = run_child([] { kill(getpid(), SIGBUS); });
  CHECK(WIFSIGNALED(result.status) && WTERMSIG(result.status) == SIGBUS);
  CHECK(result.text.empty());
}

void test_flushed_lines_keep_their_data() {
  std::vector<unsigned char> data(100'003);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i * 7);
  for (const size_t first : {size_t{0}, size_t{1}, size_t{63}}) {
    flush_cache_lines(data.data() + first, data.size() - first);
    flush_cache_lines(data.data() + first, 0);
  }
  bool same = true;
  for (size_t i = 0; i < data.size(); ++i) same &= data[i] == static_cast<unsigned char>(i * 7);
  CHECK(same);
}

}  // namespace

int main() {
  test_a_mapped_file_is_named();
  test_flushed_lines_keep_their_data();
  // Sanitizers install handlers.
  if (kCanFork && !kSanitized) {
    test_a_lost_page_ends_the_process_with_a_line();
    test_a_sent_signal_kills();
  }
  return check_result();
}
