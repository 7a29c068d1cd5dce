// Asynchronous reads of rows from a file that exceeds memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "gnnscale/rows.hpp"

namespace gnnscale {

// File with `num_rows` rows of `row_bytes` bytes, stored consecutively from byte `offset` on.
struct RowFile {
  std::string path;
  int64_t offset = 0;
  int64_t num_rows = 0;
  int64_t row_bytes = 0;
};

// `any`: io_uring for direct reads if this process may use it, otherwise threads.
enum class ReadEngine { any, io_uring, threads };

struct ReaderOptions {
  int depth = 64;             // maximum number of reads in flight
  int64_t max_gap_bytes = 0;  // maximum gap between rows of one request
  int64_t max_request_bytes = 1 << 18;
  ReadEngine engine = ReadEngine::any;
  bool direct = true;  // bypass the page cache if the file system can
};

inline constexpr int64_t kMaxFileRows = int64_t{1} << 33;
inline constexpr int64_t kMaxRowBytes = int64_t{1} << 20;
inline constexpr int64_t kMaxRequestBytes = int64_t{1} << 24;
inline constexpr int64_t kMaxReadOffset = int64_t{1} << 62;
inline constexpr int kMaxReadDepth = 1024;
// Maximum bytes of all reads in flight.
inline constexpr int64_t kMaxBufferBytes = int64_t{1} << 28;
// Maximum number of threads of the engine `threads`, whatever the depth.
inline constexpr int kMaxReadThreads = 32;

// Destination of rows: slot i begins `stride` bytes after slot i - 1.
struct RowPool {
  uint8_t* data = nullptr;
  int64_t stride = 0;
  int64_t num_slots = 0;  // at most 2^31
};

struct ReadCounters {
  int64_t requests = 0;
  int64_t bytes_read = 0;    // requested from the file, including gaps and alignment
  int64_t bytes_wanted = 0;  // distinct rows of each submission
  int64_t bytes_copied = 0;  // to slots
  double busy_s = 0.0;       // time with at least one read in flight
};

// The kernel failed to open or to read the file.
struct FileError : std::runtime_error {
  FileError(int number, const std::string& what) : std::runtime_error(what), code(number) {}
  int code;  // errno
};

// Reads rows with io_uring or with threads. The rows of a submission are sorted by file position,
// duplicates are read once, and rows with a small gap share a request. Requests use recycled
// buffers, from which rows are copied to their slots on arrival. Submissions are read in order;
// reads of the next submission start while the last reads of the previous one are in flight. Any
// thread may call; a forked child must not.
class RowReader {
 public:
  // Throws FileError if the file cannot be opened or the engine in `options` is unavailable;
  // invalid_argument if the file is too short or the buffers would exceed kMaxBufferBytes.
  RowReader(RowFile file, const ReaderOptions& options);
  // Closes the reader.
  ~RowReader();
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  // Starts reading row rows[i] into slot slots[i] of `pool`, for `size` rows, and returns a ticket.
  // The pool must stay valid until the ticket is done or the reader is closed. Two rows for one
  // slot leave either row, or a mix of both. Throws invalid_argument, and reads nothing, if a row
  // or a slot is out of range, or the reader is closed.
  int64_t submit(const RowIds& rows, const int32_t* slots, int64_t size, const RowPool& pool);
  // Waits up to `at_most`, and returns whether the submission is done. A done ticket is forgotten.
  // Throws FileError if a read failed or the reader was closed before all reads were made;
  // invalid_argument for an unknown ticket.
  bool wait(int64_t ticket, std::chrono::milliseconds at_most);
  bool is_done(int64_t ticket) const;
  // Returns whether rows may still be written to the submission's pool, even after its ticket was
  // forgotten.
  bool holds(int64_t ticket) const;
  // Returns the counts since the last call.
  ReadCounters take_counters();
  // Waits for reads in flight, and drops reads that have not started. No-op in a forked child.
  void close();

  const RowFile& file() const;
  ReadEngine engine() const;  // the engine in use
  bool direct() const;        // whether reads bypass the page cache

 private:
  struct State;
  State& state() const;  // throws invalid_argument in a forked child

  std::unique_ptr<State> state_;
};

}  // namespace gnnscale
