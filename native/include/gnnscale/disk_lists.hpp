// Neighbour lists that exceed memory: some of them in memory, all of them in a file.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include "gnnscale/memory.hpp"
#include "gnnscale/ranked_slots.hpp"
#include "gnnscale/row_reader.hpp"
#include "gnnscale/topology.hpp"

namespace gnnscale {

template <typename Vertex>
struct Pick;

struct ListCounters {
  int64_t hits = 0;       // neighbours that were in memory
  int64_t misses = 0;     // neighbours that were read from the file
  double waited_s = 0.0;  // for them, over all threads
  ReadCounters reads;
};

// Reads neighbours at given places of the lists of a topology. Those of `held` vertices are copied
// to memory at the start; of the others, exactly the blocks that have a wanted neighbour are read,
// as rows of one neighbour each. Any thread may read; a child of fork must not.
//
// What threads want while others' neighbours are on their way is read at once afterwards: a block
// that several hops need is read once. So the more threads sample, the less is read for each.
template <typename Vertex>
class DiskLists {
 public:
  // `graph` has the offsets; its indices are not read. `held` are ascending vertices.
  // Throws TopologyError if a list of theirs does not lie within the file, invalid_argument if they
  // do not ascend or are no vertices, and what RowReader throws.
  DiskLists(const Topology<Vertex>& graph, const RowFile& file, const ReaderOptions& options,
            const std::vector<int64_t>& held);

  // Writes picked[e] for every edge e of the first `num_dst` destinations: the neighbour at
  // positions[e], which lies in the list of its destination. What is written may be no vertex.
  // Throws FileError.
  void read(const Pick<Vertex>& hop, int64_t num_dst, const int64_t* positions) const;

  const RowFile& file() const { return reader_.file(); }
  const Topology<Vertex>& graph() const { return graph_; }
  const RowReader& reader() const { return reader_; }
  // Bytes of what is in memory.
  int64_t num_bytes() const;
  // What was read since the last call.
  ListCounters take_counters();

 private:
  void fill(const std::vector<int64_t>& held);
  // Neighbours that a thread waits for.
  struct Wanted {
    const int64_t* rows;
    const int32_t* slots;
    int64_t size;
    Vertex* to;
    int64_t num_slots;
    bool done = false;
    std::exception_ptr error = nullptr;
  };

  void await(Wanted& mine) const;
  std::vector<Wanted*> take_waiting() const;
  void fetch_all(const std::vector<Wanted*>& wanted) const;
  void fetch(const int64_t* rows, const int32_t* slots, int64_t size, Vertex* to,
             int64_t num_slots) const;

  const Topology<Vertex> graph_;
  mutable RowReader reader_;
  const RankedSlots ranks_;
  std::vector<int64_t> starts_;  // [num_held + 1] of each list in `lists_`, and the end
  Array<Vertex> lists_;
  mutable std::mutex mutex_;
  mutable std::condition_variable read_;
  mutable std::vector<Wanted*> waiting_;
  mutable bool is_reading_ = false;
  const pid_t process_;
  mutable std::atomic<int64_t> hits_ = 0, misses_ = 0, waited_us_ = 0;
};

}  // namespace gnnscale
