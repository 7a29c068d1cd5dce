// Cycle-accurate C simulation of dataflow: processes on fibers, pipelined loops, streams of bounded
// depth, and a bank of device memory.
//
// All processes run in one thread, so that a simulation is deterministic. An iteration of a
// pipelined loop executes in one clock cycle. Its writes to a stream become visible when the
// iteration has left the pipeline, at the earliest in the next cycle, so the order of processes
// within a cycle does not matter. Device memory is the exception: of two ports with requests in one
// cycle, the process that was added first is served first.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "csim/fiber.hpp"

namespace gnnscale::csim {

// Counters, in output order; see counter_names().
enum class Count {
  cycles,   // of the whole run
  forward,  // cycles of each region, in execution order
  loss,
  weight_gradients,
  backward,
  duplicated,     // cycles in which the feature duplicator sent a row
  edges,          // gathered messages
  multiplying,    // busy cycles of the systolic array
  transferring,   // words moved by the bank, a cycle each at full bandwidth
  feature_words,  // transferred words by content
  edge_words,
  weight_words,
  gradient_words,
  scratch_words,
  other_words,
  bursts,
  burst_gaps,         // cycles between bursts
  latency,            // cycles until the first word after a jump
  source_switches,    // rows taken by scatter PEs
  routing_conflicts,  // cycles in which two messages wanted one output of a switch
  hazards,            // cycles in which a gather PE waited for a sum
  num_counts
};
const char* counter_names();

// A deadlock, or an access to memory that a kernel must not touch.
class SimulationError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

class StreamState;

// Timing of device memory at one AXI port.
struct BankModel {
  int64_t burst_words = 64;      // 4 KiB, the longest burst of AXI
  int64_t gap_cycles = 1;        // between consecutive bursts
  int64_t latency_cycles = 64;   // from a request to its first word
  int64_t buffered_words = 64;   // buffer of a port, by which the bank can run ahead or behind
  double cycles_per_word = 1.0;  // from the bank's bandwidth and the clock
};

struct Region {
  void* begin;
  int64_t num_bytes;
  const char* name;
};

// Returns memory for one run; it is recycled for the next run.
std::unique_ptr<void, void (*)(void*)> take_memory(size_t num_bytes);

class Simulation {
 public:
  explicit Simulation(BankModel model);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // Returns the simulation of this thread; see Entered.
  static Simulation& current();

  void allow(std::vector<Region> regions) { regions_ = std::move(regions); }

  // Runs `processes` until all have returned.
  void run(std::vector<std::pair<std::string, std::function<void()>>> processes);

  int64_t now() const { return now_; }
  void progressed() { last_progress_ = now_; }  // something moved through a stream
  void cycle(int64_t count = 1);                // advances the calling process
  void wait_readable(StreamState& stream);
  void wait_writable(StreamState& stream);
  // Returns the depth of the calling process's pipelined loop; 1 outside of loops.
  int64_t depth() const { return active_depth_; }
  void set_depth(int64_t depth) { active_depth_ = depth; }
  // Returns the cycles that the calling process has waited for empty or full streams.
  int64_t stalled() const { return active_stalled_; }
  // Returns the buffer that begins at `begin`; throws if the kernel may not touch it.
  Region region_of(const void* begin) const;
  // Moves a word that the bank could move from cycle `ready_cycle` on, after a gap.
  void transfer(int64_t ready_cycle, int64_t gap, Count kind);
  const BankModel& model() const { return model_; }

  // On-chip memory, not cleared.
  template <class T>
  T& on_chip() {
    if (chip_ == nullptr) chip_ = take_memory(sizeof(T));
    return *static_cast<T*>(chip_.get());
  }

  // Memory of a process, allocated outside of its small stack, until its region ends.
  template <class T>
  T& local() {
    locals_.push_back(take_memory(sizeof(T)));
    return *static_cast<T*>(locals_.back().get());
  }

  void count(Count what, int64_t amount = 1) { counts_[static_cast<int>(what)] += amount; }
  int64_t counted(Count what) const { return counts_[static_cast<int>(what)]; }

 private:
  struct Process;
  int64_t wakes_at(const Process& process) const;
  void sleep_until(int64_t cycle);
  [[noreturn]] void deadlock() const;

  BankModel model_;
  std::vector<Region> regions_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::unique_ptr<void, void (*)(void*)> chip_{nullptr, nullptr};
  std::vector<std::unique_ptr<void, void (*)(void*)>> locals_;
  Process* active_ = nullptr;
  int64_t now_ = 0;
  int64_t last_progress_ = 0;
  // State of the running process, or of code outside of all processes.
  int64_t active_depth_ = 1, active_stalled_ = 0;
  double bank_free_ = 0;
  int64_t counts_[static_cast<int>(Count::num_counts)] = {};
};

// Makes a simulation the current one of this thread.
class Entered {
 public:
  explicit Entered(Simulation& simulation);
  ~Entered();
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  Simulation* outer_;
};

// Type-independent state of a stream.
class StreamState {
 public:
  StreamState() = default;
  StreamState(const StreamState&) = delete;
  StreamState& operator=(const StreamState&) = delete;

  void set_name(std::string name) { name_ = std::move(name); }
  const std::string& name() const { return name_; }
  // Sets the capacity to `fifo` elements, plus elements still in the writer's pipeline.
  void shape(int64_t fifo) {
    fifo_ = fifo;
    ready_at_.assign(static_cast<size_t>(fifo + kMaxDepth), 0);
  }

  // One element a cycle enters and leaves, as in a hardware FIFO.
  bool readable(int64_t now) const {
    return size_ > 0 && ready_at_[static_cast<size_t>(head_)] <= now && last_read_ != now;
  }
  bool writable(int64_t now) const {
    return size_ + (last_read_ == now ? 1 : 0) < room() && last_write_ != now;
  }
  // Returns the first cycle from `now` on in which the stream is readable if no other process acts
  // before; kNever if another process must act.
  int64_t readable_at(int64_t now) const {
    if (size_ == 0) return kNever;
    return std::max(ready_at_[static_cast<size_t>(head_)], last_read_ == now ? now + 1 : now);
  }
  int64_t writable_at(int64_t now) const {
    if (size_ >= room()) return kNever;
    return writable(now) ? now : now + 1;
  }
  static constexpr int64_t kNever = INT64_MAX;
  static constexpr int64_t kMaxDepth = 128;  // maximum depth of a pipeline
  bool was_read(int64_t now) const { return last_read_ == now; }
  bool was_written(int64_t now) const { return last_write_ == now; }

 protected:
  // A written element leaves the writer's pipeline `depth` cycles later.
  int64_t push(int64_t now, int64_t depth) {
    depth_ = depth;
    const int64_t at = (head_ + size_) % capacity();
    ready_at_[static_cast<size_t>(at)] = now + depth;
    last_write_ = now;
    ++size_;
    return at;
  }
  int64_t pop(int64_t now) {
    const int64_t at = head_;
    head_ = head_ + 1 == capacity() ? 0 : head_ + 1;
    last_read_ = now;
    --size_;
    return at;
  }
  int64_t capacity() const { return static_cast<int64_t>(ready_at_.size()); }
  int64_t head() const { return head_; }

 private:
  int64_t room() const { return fifo_ + depth_ - 1; }

  std::string name_ = "a stream";
  std::vector<int64_t> ready_at_;
  int64_t fifo_ = 0, depth_ = 1, head_ = 0, size_ = 0;
  int64_t last_read_ = -1, last_write_ = -1;
};

// hls::stream with an enforced bound.
template <class T>
class Stream : public StreamState {
 public:
  void shape(int64_t fifo) {
    StreamState::shape(fifo);
    elements_.resize(static_cast<size_t>(capacity()));
  }
  bool empty() const { return !readable(simulation_.now()); }
  bool full() const { return !writable(simulation_.now()); }
  // Returns the next element of a non-empty stream.
  const T& front() const { return elements_[static_cast<size_t>(head())]; }
  T read() {
    if (!readable(simulation_.now())) simulation_.wait_readable(*this);
    simulation_.progressed();
    return elements_[static_cast<size_t>(pop(simulation_.now()))];
  }
  void write(const T& element) {
    if (!writable(simulation_.now())) simulation_.wait_writable(*this);
    simulation_.progressed();
    elements_[static_cast<size_t>(push(simulation_.now(), simulation_.depth()))] = element;
  }

 private:
  Simulation& simulation_ = Simulation::current();
  std::vector<T> elements_;
};

// A pipelined loop. At its end, its pipeline drains.
class Loop {
 public:
  Loop() = default;
  ~Loop() {
    if (depth_ == 0 || std::uncaught_exceptions() > 0) return;
    simulation_.set_depth(1);
    simulation_.cycle(depth_);
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Returns true once: the condition of the `for` whose body is the loop's statement.
  bool enters() { return !std::exchange(entered_, true); }

 private:
  friend class Iteration;
  Simulation& simulation_ = Simulation::current();
  int64_t depth_ = 0;  // 0: no iteration yet
  bool entered_ = false;
};

// An iteration of a loop: the next one begins `interval` cycles later. An iteration that waits for
// a stream begins when the stream is ready.
class Iteration {
 public:
  Iteration(Loop& loop, int64_t interval, int64_t depth)
      : simulation_(loop.simulation_), next_(simulation_.now() + interval - simulation_.stalled()) {
    if (loop.depth_ == depth) return;
    loop.depth_ = depth;
    simulation_.set_depth(depth);
  }
  ~Iteration() {
    if (std::uncaught_exceptions() > 0) return;
    const int64_t next = next_ + simulation_.stalled();
    simulation_.cycle(std::max(next - simulation_.now(), int64_t{1}));
  }
  Iteration(const Iteration&) = delete;
  Iteration& operator=(const Iteration&) = delete;

 private:
  Simulation& simulation_;
  int64_t next_;  // cycle of the next iteration, excluding stalls
};

// hls::burst_maxi: a port to device memory with explicit burst requests. Issuing a request takes no
// time; data requested early enough is ready when it is read.
template <class T>
class Port {
 public:
  Port(const T* begin, Count kind) : begin_(const_cast<T*>(begin)), kind_(kind) {}

  void read_request(int64_t first, int64_t count) {
    request(reads_, first, count, Simulation::current().model().latency_cycles, "read");
  }
  // A write need not arrive before the next word.
  void write_request(int64_t first, int64_t count) { request(writes_, first, count, 0, "wrote"); }
  T read() { return *next(reads_); }
  void write(const T& word) { *next(writes_) = word; }
  void write_response() {}

 private:
  struct Request {
    int64_t next;  // word
    int64_t end;
    int64_t ready_cycle;  // cycle in which the first word can be moved
    bool has_begun;
  };
  // Incomplete requests. An abandoned process must own no other memory.
  struct Requests {
    static constexpr size_t kMax = 16;
    std::array<Request, kMax> slots;
    size_t first = 0, count = 0;
  };

  void request(Requests& requests, int64_t first, int64_t count, int64_t latency,
               const char* what) {
    if (count <= 0) return;
    Simulation& simulation = Simulation::current();
    const Region region = simulation.region_of(begin_);
    const int64_t words = region.num_bytes / static_cast<int64_t>(sizeof(T));
    if (first < 0 || first + count > words) {
      throw SimulationError(std::string("the kernel ") + what + " word " +
                            std::to_string(first < 0 ? first : std::max(first, words)) + " of " +
                            region.name + ", which has " + std::to_string(words));
    }
    if (requests.count == Requests::kMax) {
      throw SimulationError("the kernel has too many requests of " + std::string(region.name));
    }
    const size_t at = (requests.first + requests.count++) % Requests::kMax;
    requests.slots[at] = {first, first + count, simulation.now() + latency, false};
  }
  T* next(Requests& requests) {
    if (requests.count == 0) {
      throw SimulationError("the kernel moved a word that it did not request");
    }
    Simulation& simulation = Simulation::current();
    const BankModel& model = simulation.model();
    Request& current = requests.slots[requests.first];
    int64_t gap = 0;
    if (!current.has_begun) {
      current.has_begun = true;
      simulation.count(Count::bursts);
      simulation.count(Count::latency,
                       std::max(current.ready_cycle - simulation.now(), int64_t{0}));
    } else if (current.next % model.burst_words == 0) {
      gap = model.gap_cycles;
      simulation.count(Count::bursts);
      simulation.count(Count::burst_gaps, gap);
    }
    simulation.transfer(current.ready_cycle, gap, kind_);
    T* word = begin_ + current.next++;
    if (current.next == current.end) {
      requests.first = (requests.first + 1) % Requests::kMax;
      --requests.count;
    }
    return word;
  }

  T* begin_;
  Count kind_;
  Requests reads_, writes_;
};

}  // namespace gnnscale::csim
