// Abstractions that let one source serve hardware and C simulation: streams, processes, loops and
// device memory.
//
// Vitis HLS gets its own streams and ports, and loops with pragmas. C simulation gets streams with
// enforced bounds, concurrent processes, and a clock.
//
// A loop is written
//
//   LOOP(name)
//   for (...) {
//     PIPELINED(name, interval, depth);
//
// with its initiation interval and the cycles from the begin to the end of an iteration. Vitis HLS
// is asked for both, and C simulation charges both: trip count x interval, and the depth once
// whenever the loop is entered. An iteration's writes to a stream are visible `depth` cycles after
// its begin.
#pragma once

#include "gnnscale_fpga/word.hpp"

#ifdef __VITIS_HLS__

#include <hls_burst_maxi.h>
#include <hls_stream.h>

namespace gnnscale::fpga {

template <class T>
using Stream = hls::stream<T>;
using Port = hls::burst_maxi<Word>;

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
inline void count(Count /*what*/, int /*amount*/ = 1) {}

template <int count>
struct SumWindow {
  void use(int /*sum*/, bool /*reads*/) {}
};

}  // namespace gnnscale::fpga

#define GNNSCALE_PRAGMA(text) _Pragma(#text)
// A FIFO of LUTs, at most 32 deep.
#define GNNSCALE_FIFO(name, fifo)                          \
  GNNSCALE_PRAGMA(HLS stream variable = name depth = fifo) \
  GNNSCALE_PRAGMA(HLS bind_storage variable = name type = fifo impl = lutram)
#define STREAM(type, name, fifo) \
  hls::stream<type> name;        \
  GNNSCALE_FIFO(name, fifo)
#define STREAMS(type, name, count, fifo) \
  hls::stream<type> name[count];         \
  GNNSCALE_FIFO(name, fifo)
#define STREAM_STAGES(type, name, stages, count, fifo) \
  hls::stream<type> name[stages][count];               \
  GNNSCALE_FIFO(name, fifo)
#define LOOP(name) \
  name:
// A flushable pipeline: iterations in flight complete even without further input.
#define PIPELINED(name, interval, depth)                  \
  GNNSCALE_PRAGMA(HLS pipeline II = interval style = flp) \
  GNNSCALE_PRAGMA(HLS latency max = depth)                \
  static_assert((interval) > 0 && (depth) > 0)
#define DATAFLOW(region)
#define PROCESS(region, name, index, function, ...) function(__VA_ARGS__)
#define RUN(region)

#else

#include <tuple>
#include <type_traits>

#include "csim/simulation.hpp"

namespace gnnscale::fpga {

using csim::Count;
using csim::Stream;
using Port = csim::Port<Word>;

inline void count(Count what, int64_t amount = 1) {
  csim::Simulation::current().count(what, amount);
}

// Checks the promise of a dependence pragma: none of `count` sums is read before its last write.
template <int count>
class SumWindow {
 public:
  SumWindow() {
    for (int64_t& cycle : free_at_) cycle = 0;
  }
  void use(int sum, bool reads) {
    const int64_t now = csim::Simulation::current().now();
    if (reads && now < free_at_[sum]) {
      throw csim::SimulationError("a sum is read before it is written");
    }
    free_at_[sum] = now + kSumWindow;
  }

 private:
  int64_t free_at_[count];
};

// Counts the cycles from its construction to the end of its scope.
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
void shape(Stream<T>& stream, const char* name, int fifo) {
  stream.set_name(name);
  stream.shape(fifo);
}
template <class T, size_t count>
void shape(Stream<T> (&streams)[count], const char* name, int fifo) {
  for (size_t i = 0; i < count; ++i) {
    streams[i].set_name(std::string(name) + " " + std::to_string(i));
    streams[i].shape(fifo);
  }
}
template <class T, size_t stages, size_t count>
void shape(Stream<T> (&streams)[stages][count], const char* name, int fifo) {
  for (auto& stage : streams) shape(stage, name, fifo);
}

}  // namespace gnnscale::fpga

#define STREAM(type, name, fifo) \
  Stream<type> name;             \
  shape(name, #name, fifo)
#define STREAMS(type, name, count, fifo) \
  Stream<type> name[count];              \
  shape(name, #name, fifo)
// Declares the streams before and after each stage of a network.
#define STREAM_STAGES(type, name, stages, count, fifo) \
  Stream<type> name[stages][count];                    \
  shape(name, #name, fifo)
#define LOOP(name) for (gnnscale::csim::Loop name; (name).enters();)
#define PIPELINED(name, interval, depth) \
  const gnnscale::csim::Iteration name##_iteration(name, interval, depth)
#define DATAFLOW(region) Dataflow region
#define PROCESS(region, name, index, function, ...) region.add(name, index, function, __VA_ARGS__)
#define RUN(region) region.run()

#endif
