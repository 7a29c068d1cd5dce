// Adjacency lists that exceed memory: all in a file, the lists of cached vertices also in memory.
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
  int64_t hits = 0;       // neighbors served from memory
  int64_t misses = 0;     // neighbors read from the file
  double waited_s = 0.0;  // for these reads, over all threads
  ReadCounters reads;
};

// Reads neighbors at given positions of a topology's adjacency lists. The lists of `held` vertices
// are copied to memory on construction; for all other vertices, only file blocks with a requested
// neighbor are read, as rows of one neighbor each. Any thread may read; a forked child must not.
//
// Requests that arrive while a read is in flight are merged into the next read, so a block that
// several hops request is read once: more sampling threads mean fewer reads per thread.
template <typename Vertex>
class DiskLists {
 public:
  // Takes the offsets of `graph`; its indices are not read. `held` are ascending vertices. Throws
  // TopologyError if a list of a held vertex is outside of the file, invalid_argument if `held`
  // does not ascend or has an id that is no vertex, and all exceptions of RowReader.
  DiskLists(const Topology<Vertex>& graph, const RowFile& file, const ReaderOptions& options,
            const std::vector<int64_t>& held);

  // Writes picked[e] for every edge e of the first `num_dst` destinations: the neighbor at
  // positions[e], which is within the destination's list. A written id may be out of range if the
  // file is damaged. Throws FileError.
  void read(const Pick<Vertex>& hop, int64_t num_dst, const int64_t* positions) const;

  const RowFile& file() const { return reader_.file(); }
  const Topology<Vertex>& graph() const { return graph_; }
  const RowReader& reader() const { return reader_; }
  // Returns the bytes of the lists in memory.
  int64_t num_bytes() const;
  // Returns the counts since the last call.
  ListCounters take_counters();

 private:
  void fill(const std::vector<int64_t>& held);
  // Neighbors that a thread has requested.
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
  std::vector<int64_t> starts_;  // [num_held + 1] offsets of the lists in `lists_`
  Array<Vertex> lists_;
  mutable std::mutex mutex_;
  mutable std::condition_variable read_;
  mutable std::vector<Wanted*> waiting_;
  mutable bool is_reading_ = false;
  const pid_t process_;
  mutable std::atomic<int64_t> hits_ = 0, misses_ = 0, waited_us_ = 0;
};

}  // namespace gnnscale
