#include "read_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "gnnscale/checks.hpp"

namespace gnnscale {
namespace {

// Packs rows and slots; each is read once, so checked values are the ones used.
template <typename Id>
bool pack(const Id* rows, const int32_t* slots, int64_t size, int64_t num_rows, int64_t num_slots,
          RowKey* keys) {
  bool good = true;
  for (int64_t i = 0; i < size; ++i) {
    const Id row = rows[i];
    const int32_t slot = slots[i];
    good &= (row >= 0) & (row < num_rows) & (slot >= 0) & (slot < num_slots);
    keys[i] = RowKey::of(row, slot);
  }
  return good;
}

[[noreturn]] void refuse(const RowIds& rows, const int32_t* slots, int64_t size, int64_t num_rows,
                         int64_t num_slots) {
  if (rows.wide) {
    check_below(static_cast<const int64_t*>(rows.data), size, num_rows, "rows");
  } else {
    check_below(static_cast<const int32_t*>(rows.data), size, num_rows, "rows");
  }
  check_below(slots, size, num_slots, "slots");
  throw std::invalid_argument("rows: changed while they were read");
}

std::string read_error(const Submission& submission, const RowFile& file) {
  const std::string part = std::to_string(submission.error_length) + " bytes at " +
                           std::to_string(submission.error_begin);
  if (submission.error == ECANCELED) return "the reader was closed before all rows were read";
  if (submission.error == ENODATA) {
    return "the file ends within " + part + ", and had " + std::to_string(file.num_rows) +
           " rows of " + std::to_string(file.row_bytes) + " bytes when it was opened";
  }
  return "cannot read " + part + ": " + std::strerror(submission.error);
}

}  // namespace

int64_t ReadQueue::submit(const RowIds& rows, const int32_t* slots, int64_t size,
                          const RowPool& pool) {
  auto submission = std::make_shared<Submission>();
  submission->memory = Array<RowKey>(2 * size);
  submission->size = size;
  submission->pool = pool;
  RowKey* keys = submission->memory.data.get();
  const bool good = rows.wide ? pack(static_cast<const int64_t*>(rows.data), slots, size,
                                     file_.num_rows, pool.num_slots, keys)
                              : pack(static_cast<const int32_t*>(rows.data), slots, size,
                                     file_.num_rows, pool.num_slots, keys);
  if (!good) refuse(rows, slots, size, file_.num_rows, pool.num_slots);
  const std::lock_guard lock(mutex_);
  if (is_closed_) throw std::invalid_argument("rows: this reader is closed");
  tickets_.emplace(next_ticket_, submission);
  if (size == 0) {
    end(*submission);
  } else {
    waiting_.push_back(std::move(submission));
    if (std::exchange(is_starved_, false)) wake_();
  }
  return next_ticket_++;
}

std::shared_ptr<Submission> ReadQueue::find(int64_t ticket) const {
  const auto entry = tickets_.find(ticket);
  if (entry == tickets_.end()) {
    throw std::invalid_argument("ticket: " + std::to_string(ticket) +
                                ", allowed are those that were not waited for yet");
  }
  return entry->second;
}

bool ReadQueue::wait(int64_t ticket, std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Submission> submission = find(ticket);
  if (!done_.wait_for(lock, at_most, [&] { return submission->done; })) return false;
  tickets_.erase(ticket);
  if (submission->error != 0) throw FileError(submission->error, read_error(*submission, file_));
  return true;
}

bool ReadQueue::is_done(int64_t ticket) const {
  const std::lock_guard lock(mutex_);
  return find(ticket)->done;
}

bool ReadQueue::holds(int64_t ticket) const {
  const std::lock_guard lock(mutex_);
  const auto entry = tickets_.find(ticket);
  return entry != tickets_.end() && !entry->second->done;
}

ReadCounters ReadQueue::take_counters() {
  const std::lock_guard lock(mutex_);
  if (in_flight_ > 0) {
    const auto now = Clock::now();
    stop_clock(now);
    start_clock(now);
  }
  return std::exchange(counters_, {});
}

void ReadQueue::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  wake_();
}

void ReadQueue::cancel() {
  const std::lock_guard lock(mutex_);
  if (current_) waiting_.push_front(std::move(current_));
  current_ = nullptr;
  for (const auto& submission : waiting_) {
    if (submission->error == 0) submission->error = ECANCELED;
    end(*submission);
  }
  waiting_.clear();
}

ReadQueue::Next ReadQueue::next(Read& read, std::unique_lock<std::mutex>& lock) {
  for (;;) {
    if (is_closed_) return Next::closed;
    if (is_sorting_ || (!current_ && waiting_.empty())) {
      is_starved_ = true;
      return Next::nothing;
    }
    if (!current_) {
      current_ = std::move(waiting_.front());
      waiting_.pop_front();
      Submission& submission = *current_;
      RowKey* const keys = submission.memory.data.get();
      is_sorting_ = true;
      lock.unlock();
      submission.keys = sort_by_row(keys, keys + submission.size, submission.size, file_.num_rows);
      lock.lock();
      is_sorting_ = false;
      if (std::exchange(is_starved_, false)) wake_();
      continue;
    }
    Submission& submission = *current_;
    read = {current_, requests_.next(submission.keys, submission.next, submission.size)};
    ++submission.in_flight;
    submission.next = read.request.last;
    // The last read to finish completes the submission.
    if (submission.next == submission.size) current_ = nullptr;
    if (in_flight_++ == 0) start_clock(Clock::now());
    ++counters_.requests;
    counters_.bytes_read += read.request.length;
    return Next::read;
  }
}

uint8_t* ReadQueue::slot_of(const Read& read, int64_t alignment) const {
  const Request& request = read.request;
  if (request.last - request.first != 1 || request.length != file_.row_bytes) return nullptr;
  const RowPool& pool = read.of->pool;
  uint8_t* slot = pool.data + read.of->keys[request.first].slot() * pool.stride;
  return reinterpret_cast<uintptr_t>(slot) % static_cast<uintptr_t>(alignment) == 0 ? slot
                                                                                    : nullptr;
}

void ReadQueue::deliver(const Read& read, const uint8_t* bytes) const {
  requests_.copy(read.request, read.of->keys, bytes, read.of->pool);
}

void ReadQueue::finish(Read& read, int error) {
  if (--in_flight_ == 0) stop_clock(Clock::now());
  const std::shared_ptr<Submission> submission = std::exchange(read.of, nullptr);
  --submission->in_flight;
  if (error == 0) {
    counters_.bytes_wanted += read.request.distinct * file_.row_bytes;
    counters_.bytes_copied += (read.request.last - read.request.first) * file_.row_bytes;
  } else if (submission->error == 0) {
    submission->error = error;
    submission->error_begin = read.request.begin;
    submission->error_length = read.request.needed;
    // Skips the remaining keys of this submission.
    submission->next = submission->size;
    if (current_ == submission) current_ = nullptr;
  }
  if (submission->in_flight == 0 && submission->next == submission->size) end(*submission);
}

void ReadQueue::end(Submission& submission) {
  submission.done = true;
  submission.memory = {};
  done_.notify_all();
}

void ReadQueue::stop_clock(Clock::time_point now) {
  counters_.busy_s += std::chrono::duration<double>(now - busy_since_).count();
}

}  // namespace gnnscale
