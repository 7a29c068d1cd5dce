#include "gnnscale/prefix_sums.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "gnnscale/prefetch.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kChunk = 1 << 16;
// Prefetch distance in vertices.
constexpr int64_t kAhead = 48;

int64_t num_chunks(int64_t size, int64_t chunk) { return size / chunk + (size % chunk != 0); }

// Calls use(number, begin, end) for chunks of `grain` items, with several threads.
template <typename Use>
void for_chunks(int64_t size, int64_t chunk, int num_threads, const Poll& poll, Use&& use) {
  parallel_for(num_chunks(size, chunk), 1, num_threads, poll, [&](int64_t first, int64_t last) {
    for (int64_t number = first; number < last; ++number) {
      const int64_t begin = number * chunk;
      use(number, begin, begin + std::min(chunk, size - begin));
    }
  });
}

// Reads the summands of an order's vertices: uint64_t for integers, double for reals.
template <typename Vertex, typename Sum>
class Reader {
  using Value = std::conditional_t<std::is_same_v<Sum, double>, float, int32_t>;

 public:
  Reader(const PrefixSums& task, const Value* values)
      : task_(task), values_(values), order_(static_cast<const Vertex*>(task.order.data)) {}

  Sum sum(int64_t begin, int64_t end) const {
    if (task_.falling && values_ != nullptr && task_.bytes.offsets == nullptr) {
      const Sum first = number(begin), last = number(end - 1);
      if (first == last) return first * static_cast<Sum>(end - begin);
    }
    Sum sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) fetch(order_[i + kAhead]);
      sum += number(i);
    }
    return sum;
  }

 private:
  // Returns the summand of the vertex at a position of the order.
  Sum number(int64_t position) const {
    const Vertex v = order_[position];
    if (!is_vertex(v)) [[unlikely]]
      refuse(position);
    const Value value = values_ != nullptr ? values_[v] : Value{0};
    return static_cast<Sum>(task_.bytes.of(v)) + static_cast<Sum>(value);
  }

  bool is_vertex(Vertex v) const { return v >= 0 && v < task_.num_vertices; }

  void fetch(Vertex v) const {
    if (!is_vertex(v)) return;
    task_.bytes.fetch(v);
    if (values_ != nullptr) prefetch(values_ + v);
  }

  [[noreturn]] void refuse(int64_t position) const {
    throw std::invalid_argument("order: " + std::to_string(order_[position]) + " at place " +
                                std::to_string(position) + ", allowed are 0 to " +
                                std::to_string(task_.num_vertices - 1));
  }

  const PrefixSums& task_;
  const Value* values_;
  const Vertex* order_;
};

// Writes the sums of every chunk, then adds the total of all preceding chunks.
template <typename Sum, typename Out, typename Value>
void add_up(const PrefixSums& task, const Value* values, int64_t interval, Out* sums,
            int num_threads, const Poll& poll) {
  const auto chunks = [&](const auto& reader) {
    for_chunks(task.num_ordered, interval, num_threads, poll,
               [&](int64_t i, int64_t begin, int64_t end) {
                 sums[i + 1] = static_cast<Out>(reader.sum(begin, end));
               });
  };
  task.order.wide ? chunks(Reader<int64_t, Sum>(task, values))
                  : chunks(Reader<int32_t, Sum>(task, values));
  Sum total = 0;  // may overflow if the order has repeated vertices
  for (int64_t i = 0; i <= num_chunks(task.num_ordered, interval); ++i) {
    if (i > 0) total += static_cast<Sum>(sums[i]);
    sums[i] = static_cast<Out>(total);
  }
}

// Rejects members out of range, and counts the vertices of each chunk and member.
std::vector<int64_t> count_members(const int16_t* member, int64_t size, int64_t num_members,
                                   int num_threads, const Poll& poll) {
  std::vector<int64_t> counts(num_chunks(size, kChunk) * num_members);
  for_chunks(size, kChunk, num_threads, poll, [&](int64_t chunk, int64_t begin, int64_t end) {
    int64_t* const of_chunk = counts.data() + chunk * num_members;
    for (int64_t i = begin; i < end; ++i) {
      if (member[i] < -1 || member[i] >= num_members) [[unlikely]] {
        throw std::invalid_argument("member: " + std::to_string(member[i]) + " at place " +
                                    std::to_string(i) + ", allowed are -1 to " +
                                    std::to_string(num_members - 1));
      }
      if (member[i] >= 0) ++of_chunk[member[i]];
    }
  });
  return counts;
}

}  // namespace

void running_sums(const PrefixSums& task, int64_t interval, int64_t* sums, int num_threads,
                  const Poll& poll) {
  add_up<uint64_t>(task, task.values, interval, sums, num_threads, poll);
}

void running_sums(const PrefixSums& task, int64_t interval, double* sums, int num_threads,
                  const Poll& poll) {
  add_up<double>(task, task.reals, interval, sums, num_threads, poll);
}

template <typename Vertex>
std::vector<Array<Vertex>> split_by_member(const Vertex* order, const int16_t* member,
                                           int64_t num_ordered, int64_t num_members,
                                           int num_threads, const Poll& poll) {
  std::vector<int64_t> offsets = count_members(member, num_ordered, num_members, num_threads, poll);
  std::vector<Array<Vertex>> split;
  for (int64_t k = 0; k < num_members; ++k) {
    int64_t next = 0;
    for (int64_t chunk = 0; chunk < num_chunks(num_ordered, kChunk); ++chunk) {
      next += std::exchange(offsets[chunk * num_members + k], next);
    }
    split.emplace_back(next);
    prefer_large_pages(split[k].data.get(), next * sizeof(Vertex));
  }
  for_chunks(num_ordered, kChunk, num_threads, poll,
             [&](int64_t chunk, int64_t begin, int64_t end) {
               int64_t* const next = offsets.data() + chunk * num_members;
               for (int64_t i = begin; i < end; ++i) {
                 const int16_t k = member[i];
                 if (k < 0) continue;
                 // `member` may be in memory that another process writes to.
                 if (k >= num_members || next[k] >= split[k].size) [[unlikely]] {
                   throw std::invalid_argument("member: changed while it was read");
                 }
                 split[k].data[next[k]++] = order[i];
               }
             });
  return split;
}

template std::vector<Array<int32_t>> split_by_member(const int32_t*, const int16_t*, int64_t,
                                                     int64_t, int, const Poll&);
template std::vector<Array<int64_t>> split_by_member(const int64_t*, const int16_t*, int64_t,
                                                     int64_t, int, const Poll&);

}  // namespace gnnscale
