// Tests of shared sums by threads that stand for processes, each with its own SharedSum, and by
// processes.
#include "gnnscale/shared_sum.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"

using namespace gnnscale;

namespace {

struct Stopped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Zeroed memory that processes share.
struct Memory {
  explicit Memory(int64_t size) : num_bytes(SharedSum::num_bytes(size)) {
    data = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { munmap(data, num_bytes); }

  int64_t num_bytes;
  void* data;
};

const SharedSum::Poll nothing = [] {};

// Calls work(rank, sums) in a thread for each rank, and returns the exception of each.
template <typename Work>
std::vector<std::string> run_ranks(int64_t size, Work&& work) {
  const Memory memory(size);
  std::vector<std::string> errors(size);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      SharedSum sums(memory.data, rank, size);
      try {
        work(rank, sums);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Values whose float sums depend on the order.
template <typename T>
T value_of(int64_t rank, int64_t i) {
  const auto plain = static_cast<T>((rank * 7919 + i * 104729) % 1013 - 500);
  if constexpr (std::is_integral_v<T>) return plain * 1000003;
  return plain * static_cast<T>(i % 3 == 0 ? 1e6 : 1e-3) / 3;
}

template <typename T>
bool sums_in_rank_order(int64_t size, int64_t count) {
  std::vector<std::vector<T>> results(size);
  const auto errors = run_ranks(size, [&](int64_t rank, SharedSum& sums) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      results[rank].resize(count);
      for (int64_t i = 0; i < count; ++i) results[rank][i] = value_of<T>(rank, i + repeat);
      sums.add(results[rank].data(), count, nothing);
    }
  });
  bool same = true;
  for (int64_t i = 0; i < count; ++i) {
    T expected = value_of<T>(0, i + 2);
    for (int64_t rank = 1; rank < size; ++rank) expected += value_of<T>(rank, i + 2);
    for (const auto& values : results) same = same && values[i] == expected;
  }
  for (const std::string& error : errors) same = same && error.empty();
  return same;
}

void test_sums() {
  for (const int64_t size : {1, 2, 3, 5}) {
    // Fewer values than ranks, empty slices, and more than one slot.
    for (const int64_t count : {0, 1, 7, 16, 33, 5000, 300'001}) {
      CHECK(sums_in_rank_order<float>(size, count));
      CHECK(sums_in_rank_order<double>(size, count));
      CHECK(sums_in_rank_order<int64_t>(size, count));
    }
  }
}

void test_integers_wrap_around() {
  int64_t result = 0;
  run_ranks(2, [&](int64_t rank, SharedSum& sums) {
    int64_t value = rank == 0 ? std::numeric_limits<int64_t>::max() : 1;
    sums.add(&value, 1, nothing);
    if (rank == 0) result = value;
  });
  CHECK(result == std::numeric_limits<int64_t>::min());
}

void test_leaving_ends_the_sums_of_peers() {
  const auto errors = run_ranks(3, [&](int64_t rank, SharedSum& sums) {
    float value = 1;
    sums.add(&value, 1, nothing);
    CHECK(value == 3);
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      sums.leave();
    }
    sums.add(&value, 1, nothing);
  });
  for (const std::string& error : errors) CHECK(error == "rank 1 has left");
}

void test_mismatched_values_end_the_sums() {
  auto errors = run_ranks(2, [&](int64_t rank, SharedSum& sums) {
    std::vector<float> values(10);
    sums.add(values.data(), 10 - rank, nothing);
  });
  CHECK(errors[0] == "rank 1 sums other values than rank 0");
  CHECK(errors[1] == "rank 0 sums other values than rank 1");
  errors = run_ranks(2, [&](int64_t rank, SharedSum& sums) {
    double real = 1;
    int64_t whole = 1;
    rank == 0 ? sums.add(&real, 1, nothing) : sums.add(&whole, 1, nothing);
  });
  CHECK(!errors[0].empty() && !errors[1].empty());
}

void test_a_poll_exception_ends_the_sum() {
  const Memory memory(2);
  SharedSum sums(memory.data, 0, 2), other(memory.data, 1, 2);
  float value = 1;
  int polls = 0;
  std::string within;
  const auto poll = [&] {
    if (++polls < 3) return;
    try {
      sums.add(&value, 1, nothing);
    } catch (const std::runtime_error& error) {
      within = error.what();
    }
    throw Stopped("stopped");
  };
  CHECK_THROWS(sums.add(&value, 1, poll), Stopped);
  CHECK(polls == 3);
  CHECK(within == "another thread sums");
  CHECK_THROWS(sums.add(&value, 1, nothing), std::runtime_error);  // it has left
  CHECK_THROWS(other.add(&value, 1, nothing), std::runtime_error);
}

// A process is killed during a sum: its peer, which polls, detects it.
void test_a_killed_process() {
  const Memory memory(2);
  const pid_t child = fork();
  if (child == 0) {
    SharedSum sums(memory.data, 1, 2);
    std::vector<float> values(5000, 2);
    for (int repeat = 0; repeat < 100; ++repeat) sums.add(values.data(), 5000, nothing);
    raise(SIGKILL);
  }
  SharedSum sums(memory.data, 0, 2);
  std::vector<float> values(5000);
  const auto poll = [&] {
    if (waitpid(child, nullptr, WNOHANG) == child) throw Stopped("it has ended");
  };
  bool right = true;
  for (int repeat = 0; repeat < 100; ++repeat) {
    std::fill(values.begin(), values.end(), 1.0F);
    sums.add(values.data(), 5000, poll);
    right = right && values[0] > 1 && values[0] == values[4999];
  }
  CHECK(right);
  CHECK_THROWS(sums.add(values.data(), 5000, poll), Stopped);
}

// Garbage written by a faulty process corrupts sums only.
void test_garbage_in_shared_memory() {
  const Memory memory(3);
  std::memset(memory.data, 0xab, memory.num_bytes);
  SharedSum sums(memory.data, 2, 3);
  std::vector<double> values(200'000, 1);
  int polls = 0;
  const auto poll = [&] {
    if (++polls == 2) throw Stopped("stopped");
  };
  CHECK_THROWS(sums.add(values.data(), 200'000, poll), std::runtime_error);
}

}  // namespace

int main() {
  test_sums();
  test_integers_wrap_around();
  test_leaving_ends_the_sums_of_peers();
  test_mismatched_values_end_the_sums();
  test_a_poll_exception_ends_the_sum();
  if (kCanFork) test_a_killed_process();
  test_garbage_in_shared_memory();
  return check_result();
}
