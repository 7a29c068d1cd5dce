// Rows of a file that is larger than memory, read in the background.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "gnnscale/rows.hpp"

namespace gnnscale {

// `num_rows` rows of `row_bytes` bytes, one after the other from byte `offset` on.
struct RowFile {
  std::string path;
  int64_t offset = 0;
  int64_t num_rows = 0;
  int64_t row_bytes = 0;
};

// `any` is io_uring for direct reads, if this process may use it, and else threads.
enum class ReadEngine { any, io_uring, threads };

struct ReaderOptions {
  int depth = 64;             // reads in flight at most
  int64_t max_gap_bytes = 0;  // read in vain rather than with another request
  int64_t max_request_bytes = 1 << 18;
  ReadEngine engine = ReadEngine::any;
  bool direct = true;  // past the page cache, if the file system can
};

inline constexpr int64_t kMaxFileRows = int64_t{1} << 33;
inline constexpr int64_t kMaxRowBytes = int64_t{1} << 20;
inline constexpr int64_t kMaxRequestBytes = int64_t{1} << 24;
inline constexpr int64_t kMaxReadOffset = int64_t{1} << 62;
inline constexpr int kMaxReadDepth = 1024;
// Of all reads in flight.
inline constexpr int64_t kMaxBufferBytes = int64_t{1} << 28;
// What the engine `threads` has at most, whatever the depth.
inline constexpr int kMaxReadThreads = 32;

// The slots that rows go to: slot i begins `stride` bytes after slot i - 1.
struct RowPool {
  uint8_t* data = nullptr;
  int64_t stride = 0;
  int64_t num_slots = 0;  // at most 2^31
};

struct ReadCounters {
  int64_t requests = 0;
  int64_t bytes_read = 0;    // asked of the file, with gaps and with what alignment adds
  int64_t bytes_wanted = 0;  // of the distinct rows of each submission
  int64_t bytes_copied = 0;  // to slots
  double busy_s = 0.0;       // with at least one read in flight
};

// The system's refusal to open or to read the file.
struct FileError : std::runtime_error {
  FileError(int number, const std::string& what) : std::runtime_error(what), code(number) {}
  int code;  // errno
};

// Reads rows by io_uring or by threads. A submission's rows are sorted by their place, a row that
// it names several times is read once, and neighbours with a small gap are one request. Requests
// go through buffers that are used again, and rows are copied to their slots when they arrive.
// Submissions are read in order: while the last rows of one are in flight, those of the next
// follow. Any thread may call; a child of fork must not.
class RowReader {
 public:
  // Throws FileError if the file cannot be opened, or if `options` name an engine that cannot be
  // used; invalid_argument if the file is too short or the buffers would take too much memory.
  RowReader(RowFile file, const ReaderOptions& options);
  // Closes.
  ~RowReader();
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  // Begins to read row rows[i] into slot slots[i] of `pool`, for `size` rows, and returns a ticket.
  // The pool must stay until the ticket is done or the reader is closed. Two rows of one slot leave
  // either of them, or parts of both. Throws invalid_argument, and reads nothing, if a row or a
  // slot is out of range, or the reader is closed.
  int64_t submit(const RowIds& rows, const int32_t* slots, int64_t size, const RowPool& pool);
  // Returns whether the submission is done within `at_most`. The ticket is then forgotten. Throws
  // FileError if a read failed or the reader was closed before all were made; invalid_argument if
  // no such ticket is known.
  bool wait(int64_t ticket, std::chrono::milliseconds at_most);
  bool is_done(int64_t ticket) const;
  // Whether rows may still be written to the pool of a submission, known or not.
  bool holds(int64_t ticket) const;
  // What was read since the last call.
  ReadCounters take_counters();
  // Waits for the reads in flight, and drops those that are still to be made. Nothing in a child of
  // fork.
  void close();

  const RowFile& file() const;
  ReadEngine engine() const;  // in use
  bool direct() const;        // whether reads pass by the page cache

 private:
  struct State;
  State& state() const;  // throws invalid_argument in a child of fork

  std::unique_ptr<State> state_;
};

}  // namespace gnnscale
