#include "gnnscale/row_reader.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "../src/disk/row_requests.hpp"
#include "check.hpp"
#include "gnnscale/random.hpp"

using namespace gnnscale;

namespace {

using Bytes = std::vector<uint8_t>;
constexpr auto kSoon = std::chrono::milliseconds(60000);

uint8_t byte_at(int64_t at) { return static_cast<uint8_t>(draw(7, static_cast<uint64_t>(at))); }

// A temporary file of pseudo-random bytes.
class TestFile {
 public:
  explicit TestFile(int64_t size) {
    const auto folder = std::filesystem::temp_directory_path();
    path = (folder / "gnnscale-rows-XXXXXX").string();
    close(mkstemp(path.data()));
    Bytes bytes(size);
    for (int64_t i = 0; i < size; ++i) bytes[i] = byte_at(i);
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<char*>(bytes.data()), size);
  }
  ~TestFile() { unlink(path.c_str()); }

  std::string path;
};

struct Wanted {
  std::vector<int64_t> rows;
  std::vector<int32_t> slots;
  Bytes pool;
};

Wanted some_rows(const RowFile& file, int64_t size, uint64_t seed) {
  Wanted request{{}, {}, Bytes(size * file.row_bytes)};
  for (int64_t i = 0; i < size; ++i) {
    request.rows.push_back(static_cast<int64_t>(below(draw(seed, i), file.num_rows)));
    request.slots.push_back(static_cast<int32_t>(size - 1 - i));
  }
  return request;
}

int64_t submit(RowReader& reader, Wanted& request) {
  const auto size = static_cast<int64_t>(request.rows.size());
  return reader.submit({request.rows.data(), true}, request.slots.data(), size,
                       {request.pool.data(), reader.file().row_bytes, size});
}

bool has_rows(const Wanted& request, const RowFile& file) {
  for (size_t i = 0; i < request.rows.size(); ++i) {
    for (int64_t j = 0; j < file.row_bytes; ++j) {
      const uint8_t byte = request.pool[request.slots[i] * file.row_bytes + j];
      if (byte != byte_at(file.offset + request.rows[i] * file.row_bytes + j)) return false;
    }
  }
  return true;
}

bool has_ring(const RowFile& file) {
  try {
    RowReader(file, {.engine = ReadEngine::io_uring});
    return true;
  } catch (const FileError&) {
    return false;
  }
}

void test_requests_by_hand() {
  const RowFile file{"", 128, 100, 1000};
  const Requests requests(file, {.max_gap_bytes = 512, .max_request_bytes = 2500}, 512);
  CHECK(requests.max_bytes() == 2560);
  // Bytes 128 to 1128, 1128 to 2128, then 4128 to 5128 after a gap of 3 blocks.
  std::vector<RowKey> keys;
  for (const int row : {0, 0, 1, 4, 6}) keys.push_back(RowKey::of(row, 0));
  Request request = requests.next(keys.data(), 0, 5);
  CHECK(request.begin == 0 && request.length == 2560 && request.needed == 2128);
  CHECK(request.first == 0 && request.last == 3 && request.distinct == 2);
  // The last row begins in the next block, and would exceed the longest request.
  request = requests.next(keys.data(), 3, 5);
  CHECK(request.begin == 4096 && request.length == 1536 && request.last == 4);
  CHECK(requests.next(keys.data(), 4, 5).begin == 6128 / 512 * 512);
  // A row longer than the maximum request is one request, wherever it begins.
  const Requests small({"", 511, 100, 1000}, {.max_request_bytes = 1}, 512);
  CHECK(small.max_bytes() == 1536);
  CHECK(small.next(keys.data(), 0, 5).length == 1536);
}

void test_sorting() {
  for (const int64_t size : {0, 1, 100, 2049, 50000}) {
    for (const int64_t num_rows : {int64_t{1}, int64_t{5}, int64_t{70000}, kMaxFileRows}) {
      std::vector<RowKey> keys, spare(size);
      int64_t sum = 0;
      for (int64_t i = 0; i < size; ++i) {
        keys.push_back(RowKey::of(static_cast<int64_t>(below(draw(3, i), num_rows)),
                                  static_cast<int32_t>(INT32_MAX - i)));
        sum += keys[i].row();
      }
      const RowKey* sorted = sort_by_row(keys.data(), spare.data(), size, num_rows);
      for (int64_t i = 0; i < size; ++i) {
        CHECK(i == 0 || sorted[i - 1].row() <= sorted[i].row());
        CHECK(sorted[i].row() ==
              static_cast<int64_t>(below(draw(3, INT32_MAX - sorted[i].slot()), num_rows)));
        sum -= sorted[i].row();
      }
      CHECK(sum == 0);
    }
  }
}

void test_rows(const ReaderOptions& options, int64_t row_bytes) {
  const TestFile data(128 + 3001 * row_bytes);  // not a whole number of blocks
  const RowFile file{data.path, 128, 3001, row_bytes};
  RowReader reader(file, options);
  std::vector<Wanted> requests;
  std::vector<int64_t> tickets;
  for (const int64_t size : {3000, 0, 1, 700, 2500}) {
    requests.push_back(some_rows(file, size, requests.size()));
    if (size > 0) requests.back().rows[0] = 3000;  // end of the file
  }
  for (Wanted& request : requests) tickets.push_back(submit(reader, request));
  int64_t num_rows = 0;
  for (size_t i = requests.size(); i-- > 0;) {
    CHECK(reader.wait(tickets[i], kSoon));
    CHECK(!reader.holds(tickets[i]));
    CHECK(has_rows(requests[i], file));
    num_rows += static_cast<int64_t>(requests[i].rows.size());
  }
  const ReadCounters counters = reader.take_counters();
  CHECK(counters.bytes_copied == num_rows * row_bytes);
  CHECK(counters.bytes_wanted < counters.bytes_copied &&
        counters.bytes_read >= counters.bytes_wanted);
  CHECK(counters.requests >= 4 && counters.busy_s > 0);
  CHECK(reader.take_counters().requests == 0);
}

void test_submissions_of_several_threads(ReadEngine engine) {
  const TestFile data(4000 * 64);
  const RowFile file{data.path, 0, 4000, 64};
  RowReader reader(file, {.depth = 5, .engine = engine});
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        Wanted request = some_rows(file, 100 + i, 100 * t + i);
        const int64_t ticket = submit(reader, request);
        while (!reader.wait(ticket, std::chrono::milliseconds(1))) reader.take_counters();
        CHECK(has_rows(request, file));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void test_rejected_arguments(ReadEngine engine) {
  const TestFile data(1000);
  const RowFile file{data.path, 8, 31, 32};
  CHECK_THROWS(RowReader({data.path, 9, 31, 32}, {.engine = engine}), std::invalid_argument);
  CHECK_THROWS(RowReader({"/", 0, 1, 1}, {.engine = engine}), std::invalid_argument);
  CHECK_THROWS(RowReader({data.path + "?", 0, 1, 1}, {.engine = engine}), FileError);
  CHECK_THROWS(RowReader(file, {.depth = 1024, .max_request_bytes = 1 << 24, .engine = engine}),
               std::invalid_argument);
  RowReader reader(file, {.engine = engine});
  Bytes pool(64);
  for (const auto& [row, slot] :
       {std::pair<int64_t, int32_t>{31, 0}, {-1, 0}, {0, 2}, {0, -1}, {int64_t{1} << 40, 0}}) {
    CHECK_THROWS(reader.submit({&row, true}, &slot, 1, {pool.data(), 32, 2}),
                 std::invalid_argument);
  }
  CHECK_THROWS(reader.wait(0, kSoon), std::invalid_argument);
  CHECK_THROWS(reader.is_done(0), std::invalid_argument);
  reader.close();
  reader.close();
  Wanted request = some_rows(file, 1, 0);
  CHECK_THROWS(submit(reader, request), std::invalid_argument);
}

// Only reads beyond the new end fail.
void test_truncated_file(const ReaderOptions& options) {
  const TestFile data(2000 * 100);
  const RowFile file{data.path, 0, 2000, 100};
  RowReader reader(file, options);
  CHECK(truncate(data.path.c_str(), 1000 * 100 + 50) == 0);
  Wanted valid = some_rows({data.path, 0, 1000, 100}, 500, 1);
  Wanted across_end = some_rows(file, 500, 2), after = valid;
  const int64_t tickets[] = {submit(reader, valid), submit(reader, across_end),
                             submit(reader, after)};
  CHECK(reader.wait(tickets[0], kSoon));
  CHECK_THROWS(reader.wait(tickets[1], kSoon), FileError);
  CHECK(reader.wait(tickets[2], kSoon));
  CHECK(has_rows(valid, file) && has_rows(after, file));
}

void test_closing_early(ReadEngine engine) {
  const TestFile data(20000 * 512);
  const RowFile file{data.path, 0, 20000, 512};
  for (const bool explicitly : {false, true}) {
    std::vector<Wanted> requests;  // the reader writes to it until it is closed
    RowReader reader(file, {.depth = 3, .max_request_bytes = 512, .engine = engine});
    for (int i = 0; i < 4; ++i) requests.push_back(some_rows(file, 5000, i));
    for (Wanted& request : requests) submit(reader, request);
    if (!explicitly) continue;
    std::thread waits([&] { CHECK_THROWS(reader.wait(3, kSoon), FileError); });
    reader.close();
    waits.join();
    for (int64_t ticket = 0; ticket < 3; ++ticket) {
      CHECK(!reader.holds(ticket));
      try {
        CHECK(reader.wait(ticket, kSoon));
      } catch (const FileError& error) {
        CHECK(error.code == ECANCELED);
      }
    }
  }
}

void test_forked_children_are_rejected(ReadEngine engine) {
  if (!kCanFork || kSanitized) return;
  const TestFile data(1000);
  auto reader =
      std::make_unique<RowReader>(RowFile{data.path, 0, 10, 100}, ReaderOptions{.engine = engine});
  const pid_t child = fork();
  if (child == 0) {
    CHECK_THROWS(reader->is_done(0), std::invalid_argument);
    reader->close();
    reader = nullptr;
    _exit(num_failures != 0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  Wanted request = some_rows(reader->file(), 10, 0);
  CHECK(reader->wait(submit(*reader, request), kSoon));
  CHECK(has_rows(request, reader->file()));
}

}  // namespace

int main() {
  test_requests_by_hand();
  test_sorting();
  std::vector<ReadEngine> engines{ReadEngine::threads};
  const TestFile data(100);
  if (has_ring({data.path, 0, 1, 1})) {
    engines.push_back(ReadEngine::io_uring);
  } else {
    std::fprintf(stderr, "io_uring is left out: this system does not let processes use it\n");
  }
  for (const ReadEngine engine : engines) {
    for (const bool direct : {true, false}) {
      for (const int64_t row_bytes : {4, 100, 512, 8192}) {
        test_rows({.depth = 7, .engine = engine, .direct = direct}, row_bytes);
        test_rows(
            {.max_gap_bytes = 5000, .max_request_bytes = 10000, .engine = engine, .direct = direct},
            row_bytes);
      }
      test_truncated_file({.engine = engine, .direct = direct});
      test_truncated_file({.max_request_bytes = 512, .engine = engine, .direct = direct});
    }
    test_submissions_of_several_threads(engine);
    test_rejected_arguments(engine);
    test_closing_early(engine);
    test_forked_children_are_rejected(engine);
  }
  return check_result();
}
