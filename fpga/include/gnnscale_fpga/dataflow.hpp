// The same source as hardware and as C simulation: streams, processes, and
// device memory.
//
// Vitis HLS gets its own streams and plain loops. C simulation gets streams
// whose bounds hold, processes that run side by side, and a clock:
// clock_cycle() ends an iteration of a pipelined loop.
#pragma once

#include "gnnscale_fpga/word.hpp"

#ifdef __VITIS_HLS__

#include <hls_stream.h>
#include <hls_streamofblocks.h>

namespace gnnscale::fpga {

template <class T>
using Stream = hls::stream<T>;
template <class T>
using Blocks = hls::stream_of_blocks<T>;
template <class T>
using WriteLock = hls::write_lock<T>;
template <class T>
using ReadLock = hls::read_lock<T>;

enum class Count {
  forward,
  loss,
  weight_gradients,
  backward,
  duplicated,
  edges,
  multiplying,
  feature_words,
  edge_words,
  weight_words,
  gradient_words,
  scratch_words,
  other_words,
  source_switches,
  routing_conflicts,
  hazards
};

struct Elapsed {
  explicit Elapsed(Count /*what*/) {}
};
inline void clock_cycle(int /*cycles*/ = 1) {}
inline void count(Count /*what*/, int /*amount*/ = 1) {}
inline Word load(const Word* port, int word, Count /*kind*/) { return port[word]; }
inline void store(Word* port, int word, const Word& value, Count /*kind*/) { port[word] = value; }

}  // namespace gnnscale::fpga

#define GNNSCALE_PRAGMA(text) _Pragma(#text)
#define STREAM(type, name, fifo, latency) \
  hls::stream<type> name;                 \
  GNNSCALE_PRAGMA(HLS stream variable = name depth = fifo)
#define STREAMS(type, name, count, fifo, latency) \
  hls::stream<type> name[count];                  \
  GNNSCALE_PRAGMA(HLS stream variable = name depth = fifo)
#define STREAM_STAGES(type, name, stages, count, fifo, latency) \
  hls::stream<type> name[stages][count];                        \
  GNNSCALE_PRAGMA(HLS stream variable = name depth = fifo)
#define BLOCKS(type, name, depth) hls::stream_of_blocks<type, depth> name
#define DATAFLOW(region)
#define PROCESS(region, name, index, function, ...) function(__VA_ARGS__)
#define RUN(region)

#else

#include <tuple>
#include <type_traits>

#include "csim/simulation.hpp"

namespace gnnscale::fpga {

using csim::Blocks;
using csim::Count;
using csim::ReadLock;
using csim::Stream;
using csim::WriteLock;

inline void clock_cycle(int64_t cycles = 1) { csim::Simulation::current().cycle(cycles); }
inline void count(Count what, int64_t amount = 1) {
  csim::Simulation::current().count(what, amount);
}
inline Word load(const Word* port, int word, Count kind) {
  csim::Simulation::current().touch(port, word, false, kind);
  return port[word];
}
inline void store(Word* port, int word, const Word& value, Count kind) {
  csim::Simulation::current().touch(port, word, true, kind);
  port[word] = value;
}

// Counts the cycles from here to the end of its scope.
class Elapsed {
 public:
  explicit Elapsed(Count what) : what_(what), begin_(csim::Simulation::current().now()) {}
  ~Elapsed() { count(what_, csim::Simulation::current().now() - begin_); }
  Elapsed(const Elapsed&) = delete;
  Elapsed& operator=(const Elapsed&) = delete;

 private:
  Count what_;
  int64_t begin_;
};

// The processes of a dataflow region.
class Dataflow {
 public:
  template <class... Parameters, class... Arguments>
  void add(const char* name, int index, void (*function)(Parameters...), Arguments&&... arguments) {
    // A process outlives this call, and what it refers to must.
    static_assert(
        ((!std::is_reference_v<Parameters> || std::is_lvalue_reference_v<Arguments>) && ...));
    processes_.emplace_back(
        index < 0 ? name : std::string(name) + " " + std::to_string(index),
        [function, bound = std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)]() {
          std::apply(function, bound);
        });
  }
  void run() { csim::Simulation::current().run(std::move(processes_)); }

 private:
  std::vector<std::pair<std::string, std::function<void()> > > processes_;
};

template <class T>
void shape(Stream<T>& stream, const char* name, int depth, int latency) {
  stream.set_name(name);
  stream.shape(depth, latency);
}
template <class T, size_t count>
void shape(Stream<T> (&streams)[count], const char* name, int depth, int latency) {
  for (size_t i = 0; i < count; ++i) {
    streams[i].set_name(std::string(name) + " " + std::to_string(i));
    streams[i].shape(depth, latency);
  }
}

}  // namespace gnnscale::fpga

// A stream of `fifo` elements after a pipeline of `latency` cycles.
#define STREAM(type, name, fifo, latency) \
  Stream<type> name;                      \
  shape(name, #name, fifo, latency)
#define STREAMS(type, name, count, fifo, latency) \
  Stream<type> name[count];                       \
  shape(name, #name, fifo, latency)
// The streams before and after each stage of a network; the first have a latency.
#define STREAM_STAGES(type, name, stages, count, fifo, latency) \
  Stream<type> name[stages][count];                             \
  for (int stage = 0; stage < stages; ++stage) shape(name[stage], #name, fifo, stage ? 1 : latency)
// Arrays that two processes take turns on: one is filled while another is read.
#define BLOCKS(type, name, depth) \
  Blocks<type> name(depth);       \
  name.set_name(#name)
#define DATAFLOW(region) Dataflow region
#define PROCESS(region, name, index, function, ...) region.add(name, index, function, __VA_ARGS__)
#define RUN(region) region.run()

#endif
