#include "gnnscale/disk_lists.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "../simd/pick_kernels.hpp"
#include "gnnscale/checks.hpp"
#include "gnnscale/limits.hpp"

namespace gnnscale {
namespace {

// Neighbors that the initial fill reads as one batch; their keys take a few MiB.
constexpr int64_t kFill = int64_t{1} << 20;
// Destinations of one look-up.
constexpr int64_t kLookUp = 512;
// Maximum sleep between two checks.
constexpr auto kPatience = std::chrono::hours(1);

const std::vector<int64_t>& checked(const std::vector<int64_t>& cached, int64_t num_vertices) {
  check_below(cached.data(), std::ssize(cached), num_vertices, "held");
  for (size_t i = 1; i < cached.size(); ++i) {
    if (cached[i] > cached[i - 1]) continue;
    throw std::invalid_argument("held: " + std::to_string(cached[i]) + " after " +
                                std::to_string(cached[i - 1]) + ", allowed are ascending vertices");
  }
  return cached;
}

}  // namespace

template <typename Vertex>
DiskLists<Vertex>::DiskLists(const Topology<Vertex>& graph, const RowFile& file,
                             const ReaderOptions& options, const std::vector<int64_t>& cached)
    : graph_(graph),
      reader_(file, options),
      ranks_(graph.num_vertices,
             {{{checked(cached, graph.num_vertices).data(), true}, std::ssize(cached)}}),
      starts_(cached.size() + 1),
      process_(getpid()) {
  for (size_t i = 0; i < cached.size(); ++i) {
    starts_[i + 1] = starts_[i] + graph_.list(static_cast<Vertex>(cached[i])).degree;
  }
  lists_ = Array<Vertex>(starts_.back());
  fill(cached);
  reader_.take_counters();
}

template <typename Vertex>
void DiskLists<Vertex>::fill(const std::vector<int64_t>& cached) {
  Array<int64_t> rows(std::min(kFill, lists_.size));
  Array<int32_t> slots(rows.size);
  std::iota(slots.data.get(), slots.data.get() + slots.size, 0);
  int64_t list = 0;
  for (int64_t first = 0; first < lists_.size; first += kFill) {
    const int64_t last = std::min(first + kFill, lists_.size);
    for (int64_t at = first; at < last; ++list) {
      const int64_t begin = graph_.indptr[cached[list]] + (at - starts_[list]);
      const int64_t end = std::min(starts_[list + 1], last);
      std::iota(rows.data.get() + (at - first), rows.data.get() + (end - first), begin);
      at = end;
      if (starts_[list + 1] > last) break;  // the next part begins within this list
    }
    fetch(rows.data.get(), slots.data.get(), last - first, lists_.data.get() + first, last - first);
  }
}

template <typename Vertex>
void DiskLists<Vertex>::fetch(const int64_t* rows, const int32_t* slots, int64_t size, Vertex* to,
                              int64_t num_slots) const {
  if (size == 0) return;
  const RowPool pool{reinterpret_cast<uint8_t*>(to), sizeof(Vertex), num_slots};
  const int64_t ticket = reader_.submit({rows, true}, slots, size, pool);
  while (!reader_.wait(ticket, kPatience)) continue;
}

// The first thread without a concurrent reader reads for all waiting threads.
template <typename Vertex>
void DiskLists<Vertex>::await(Wanted& request) const {
  if (process_ != getpid()) {  // another thread may have held the mutex during the fork
    throw std::invalid_argument("lists: they are of the process before the fork");
  }
  std::unique_lock lock(mutex_);
  waiting_.push_back(&request);
  while (!request.done) {
    if (is_reading_) {
      read_.wait(lock);
      continue;
    }
    const std::vector<Wanted*> requests = take_waiting();
    is_reading_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      fetch_all(requests);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    is_reading_ = false;
    for (Wanted* request : requests) {
      request->error = error;
      request->done = true;
    }
    read_.notify_all();
  }
  if (request.error) std::rethrow_exception(request.error);
}

// Takes as many waiting requests, in order, as fit into one submission.
template <typename Vertex>
auto DiskLists<Vertex>::take_waiting() const -> std::vector<Wanted*> {
  size_t count = 0;
  for (int64_t size = 0; count < waiting_.size(); ++count) {
    size += waiting_[count]->size;
    if (count > 0 && size > kMaxLocal) break;
  }
  const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<Wanted*> requests(waiting_.begin(), end);
  waiting_.erase(waiting_.begin(), end);
  return requests;
}

template <typename Vertex>
void DiskLists<Vertex>::fetch_all(const std::vector<Wanted*>& requests) const {
  if (requests.size() == 1) {
    const Wanted& only = *requests.front();
    return fetch(only.rows, only.slots, only.size, only.to, only.num_slots);
  }
  int64_t size = 0;
  for (const Wanted* request : requests) size += request->size;
  Array<int64_t> rows(size);
  Array<int32_t> slots(size);
  Array<Vertex> neighbors(size);
  std::iota(slots.data.get(), slots.data.get() + size, 0);
  int64_t* to = rows.data.get();
  for (const Wanted* request : requests) to = std::copy_n(request->rows, request->size, to);
  fetch(rows.data.get(), slots.data.get(), size, neighbors.data.get(), size);
  const Vertex* from = neighbors.data.get();
  for (const Wanted* request : requests) {
    for (int64_t i = 0; i < request->size; ++i) request->to[request->slots[i]] = *from++;
  }
}

template <typename Vertex>
void DiskLists<Vertex>::read(const Pick<Vertex>& hop, int64_t num_dst,
                             const int64_t* positions) const {
  const int64_t num_edges = hop.indptr[num_dst];
  Array<int64_t> rows(num_edges);
  Array<int32_t> slots(num_edges);
  int64_t num_missing = 0;
  int64_t vertices[kLookUp];
  int32_t ranks[kLookUp];
  for (int64_t first = 0; first < num_dst; first += kLookUp) {
    const int64_t size = std::min(kLookUp, num_dst - first);
    for (int64_t i = 0; i < size; ++i) {
      vertices[i] = hop.edges.row(static_cast<int64_t>(hop.vertices[first + i]));
      ranks_.prefetch(vertices[i]);
    }
    ranks_.rank(vertices, size, ranks);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t dst = first + i, rank = ranks[i];
      // Picks are from a part of the list if the sampler narrowed it.
      const bool is_part = rank >= 0 && starts_[rank + 1] - starts_[rank] != hop.degrees[dst];
      const typename Topology<Vertex>::List part{hop.begins[dst], hop.degrees[dst]};
      const auto list = is_part ? graph_.list(vertices[i]) : part;
      // An offset may have changed since the list was copied; the copy is then ignored.
      const bool is_held = rank >= 0 && starts_[rank + 1] - starts_[rank] == list.degree &&
                           part.begin >= list.begin &&
                           part.begin + part.degree <= list.begin + list.degree;
      const int64_t shift = is_held ? starts_[rank] - list.begin : 0;
      for (int64_t edge = hop.indptr[dst]; edge < hop.indptr[dst + 1]; ++edge) {
        if (is_held) {
          hop.picked[edge] = lists_.data[positions[edge] + shift];
        } else {
          rows.data[num_missing] = positions[edge];
          slots.data[num_missing++] = static_cast<int32_t>(edge);
        }
      }
    }
  }
  hits_ += num_edges - num_missing;
  misses_ += num_missing;
  if (num_missing == 0) return;
  const auto start = std::chrono::steady_clock::now();
  Wanted request{rows.data.get(), slots.data.get(), num_missing, hop.picked, num_edges};
  await(request);
  const auto wait_time = std::chrono::steady_clock::now() - start;
  waited_us_ += std::chrono::duration_cast<std::chrono::microseconds>(wait_time).count();
}

template <typename Vertex>
int64_t DiskLists<Vertex>::num_bytes() const {
  return lists_.size * static_cast<int64_t>(sizeof(Vertex)) +
         static_cast<int64_t>(starts_.size() * sizeof(int64_t)) + ranks_.num_bytes();
}

template <typename Vertex>
ListCounters DiskLists<Vertex>::take_counters() {
  return {hits_.exchange(0), misses_.exchange(0),
          1e-6 * static_cast<double>(waited_us_.exchange(0)), reader_.take_counters()};
}

template class DiskLists<int32_t>;
template class DiskLists<int64_t>;

}  // namespace gnnscale
