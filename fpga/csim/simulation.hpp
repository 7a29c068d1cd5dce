// C simulation of dataflow, cycle by cycle: processes on fibers, streams of
// bounded depth, and a bank of device memory.
//
// All processes run in one thread, so that a simulation gives the same cycles
// every time. What a process does between two calls of cycle() happens in one
// cycle of the clock; what it writes to a stream is there in the next cycle at
// the earliest, so that the order of processes within a cycle does not matter.
// Device memory is the exception: of two ports that ask in the same cycle, the
// process that was added first is served first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "csim/fiber.hpp"

namespace gnnscale::csim {

// What is counted, in this order; see counter_names().
enum class Count {
  cycles,   // of the whole run
  forward,  // cycles of each region, one after the other
  loss,
  weight_gradients,
  backward,
  duplicated,     // cycles in which the feature duplicator sent a row
  edges,          // messages that were gathered
  multiplying,    // cycles of the systolic array
  transferring,   // words that the bank moved, a cycle each at full bandwidth
  feature_words,  // of them, by what they are
  edge_words,
  weight_words,
  gradient_words,
  scratch_words,
  other_words,
  bursts,
  burst_gaps,         // cycles between bursts
  latency,            // cycles until the first word after a jump
  source_switches,    // rows that scatter PEs took
  routing_conflicts,  // cycles in which two messages wanted one side of a switch
  hazards,            // cycles in which a gather PE waited for a sum
  num_counts
};
const char* counter_names();

// A deadlock, or memory that a kernel must not touch.
class SimulationError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

class StreamState;

// Device memory as a kernel finds it at one AXI port.
struct BankModel {
  int64_t burst_words = 64;      // 4 KiB, the longest burst of AXI
  int64_t gap_cycles = 1;        // between two bursts that follow each other
  int64_t latency_cycles = 64;   // until the first word after a jump
  double cycles_per_word = 1.0;  // of the bank, at its bandwidth and the clock's rate
};

struct Region {
  void* begin;
  int64_t num_bytes;
  const char* name;
};

// Memory for one run; it goes back for the next one.
std::unique_ptr<void, void (*)(void*)> take_memory(size_t num_bytes);

class Simulation {
 public:
  explicit Simulation(BankModel model);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // The simulation that this thread is in; see Entered.
  static Simulation& current();

  void allow(std::vector<Region> regions) { regions_ = std::move(regions); }

  // Runs `processes` until all have returned.
  void run(std::vector<std::pair<std::string, std::function<void()>>> processes);

  int64_t now() const { return now_; }
  void progressed() { last_progress_ = now_; }  // something moved through a stream
  void cycle(int64_t count = 1);                // of the process that calls
  void wait_readable(StreamState& stream);
  void wait_writable(StreamState& stream);
  // Time and bounds of one word after the port that begins at `port`.
  void touch(const void* port, int64_t word, bool writes, Count kind);

  // Memory on the chip, with whatever was left in it.
  template <class T>
  T& on_chip() {
    if (chip_ == nullptr) chip_ = take_memory(sizeof(T));
    return *static_cast<T*>(chip_.get());
  }

  void count(Count what, int64_t amount = 1) { counts_[static_cast<int>(what)] += amount; }
  int64_t counted(Count what) const { return counts_[static_cast<int>(what)]; }

 private:
  struct Process;
  struct Port {
    const void* begin;
    bool writes;
    int64_t num_words;  // of the buffer
    const char* name;
    int64_t next_word = -1;
    int64_t left = 0;  // words of the burst
  };
  int64_t wakes_at(const Process& process) const;
  void sleep_until(int64_t cycle);
  [[noreturn]] void deadlock() const;
  Port& port_of(const void* begin, bool writes);
  [[noreturn]] void out_of_bounds(const Port& port, int64_t word) const;

  BankModel model_;
  std::vector<Region> regions_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<Port> ports_;
  std::unique_ptr<void, void (*)(void*)> chip_{nullptr, nullptr};
  Process* active_ = nullptr;
  int64_t now_ = 0;
  int64_t last_progress_ = 0;
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

// What a simulation knows of a stream, whatever it carries.
class StreamState {
 public:
  StreamState() = default;
  StreamState(const StreamState&) = delete;
  StreamState& operator=(const StreamState&) = delete;

  void set_name(std::string name) { name_ = std::move(name); }
  const std::string& name() const { return name_; }
  // `depth` elements fit, beside what is still on its way through `latency`
  // cycles of pipeline.
  void shape(int64_t depth, int64_t latency) {
    capacity_ = depth + latency - 1;
    latency_ = latency;
    ready_at_.assign(static_cast<size_t>(capacity_), 0);
  }

  // One element a cycle enters and leaves, as from a FIFO in hardware.
  bool readable(int64_t now) const {
    return size_ > 0 && ready_at_[static_cast<size_t>(head_)] <= now && !just(last_read_, now);
  }
  bool writable(int64_t now) const {
    return size_ + (last_read_ == now ? 1 : 0) < capacity_ && !just(last_write_, now);
  }
  // The first cycle from `now` on in which it is so, unless another process
  // does something before; kNever if that takes another process.
  int64_t readable_at(int64_t now) const {
    if (size_ == 0) return kNever;
    return std::max(ready_at_[static_cast<size_t>(head_)], just(last_read_, now) ? now + 1 : now);
  }
  int64_t writable_at(int64_t now) const {
    if (size_ == capacity_) return kNever;
    return writable(now) ? now : now + 1;
  }
  static constexpr int64_t kNever = INT64_MAX;

 protected:
  explicit StreamState(bool one_a_cycle) : one_a_cycle_(one_a_cycle) {}
  int64_t head() const { return head_; }
  int64_t tail() const { return (head_ + size_) % capacity_; }
  int64_t push(int64_t now) {
    const int64_t at = tail();
    ready_at_[static_cast<size_t>(at)] = now + latency_;
    last_write_ = now;
    ++size_;
    return at;
  }
  int64_t pop(int64_t now) {
    const int64_t at = head_;
    head_ = head_ + 1 == capacity_ ? 0 : head_ + 1;
    last_read_ = now;
    --size_;
    return at;
  }
  int64_t capacity() const { return capacity_; }

 private:
  bool just(int64_t last, int64_t now) const { return one_a_cycle_ && last == now; }

  bool one_a_cycle_ = true;
  std::string name_ = "a stream";
  std::vector<int64_t> ready_at_;
  int64_t capacity_ = 0, latency_ = 1, head_ = 0, size_ = 0;
  int64_t last_read_ = -1, last_write_ = -1;
};

// hls::stream with a bound that holds.
template <class T>
class Stream : public StreamState {
 public:
  void shape(int64_t depth, int64_t latency) {
    StreamState::shape(depth, latency);
    elements_.resize(static_cast<size_t>(capacity()));
  }
  bool empty() const { return !readable(simulation_.now()); }
  bool full() const { return !writable(simulation_.now()); }
  T read() {
    if (!readable(simulation_.now())) simulation_.wait_readable(*this);
    simulation_.progressed();
    return elements_[static_cast<size_t>(pop(simulation_.now()))];
  }
  void write(const T& element) {
    if (!writable(simulation_.now())) simulation_.wait_writable(*this);
    simulation_.progressed();
    elements_[static_cast<size_t>(push(simulation_.now()))] = element;
  }

 private:
  Simulation& simulation_ = Simulation::current();
  std::vector<T> elements_;
};

// hls::stream_of_blocks: arrays of type T that a producer and a consumer take
// turns on. What is released in a cycle is there in the next one.
template <class T>
class Blocks : public StreamState {
 public:
  explicit Blocks(int depth)
      : StreamState(false), memory_(take_memory(static_cast<size_t>(depth) * sizeof(T))) {
    shape(depth, 1);
  }

  T& acquire_to_write() {
    Simulation& simulation = Simulation::current();
    if (!writable(simulation.now())) simulation.wait_writable(*this);
    return block(tail());
  }
  const T& acquire_to_read() {
    Simulation& simulation = Simulation::current();
    if (!readable(simulation.now())) simulation.wait_readable(*this);
    return block(head());
  }
  void release_written() { push(Simulation::current().now()); }
  void release_read() { pop(Simulation::current().now()); }

 private:
  T& block(int64_t number) { return static_cast<T*>(memory_.get())[number]; }

  std::unique_ptr<void, void (*)(void*)> memory_;
};

// hls::write_lock: a block that belongs to the producer as long as the lock lives.
template <class T>
class WriteLock {
 public:
  explicit WriteLock(Blocks<T>& blocks) : blocks_(blocks), block_(blocks.acquire_to_write()) {}
  ~WriteLock() { blocks_.release_written(); }
  WriteLock(const WriteLock&) = delete;
  WriteLock& operator=(const WriteLock&) = delete;
  operator T&() { return block_; }

 private:
  Blocks<T>& blocks_;
  T& block_;
};

// hls::read_lock: the same for the consumer.
template <class T>
class ReadLock {
 public:
  explicit ReadLock(Blocks<T>& blocks) : blocks_(blocks), block_(blocks.acquire_to_read()) {}
  ~ReadLock() { blocks_.release_read(); }
  ReadLock(const ReadLock&) = delete;
  ReadLock& operator=(const ReadLock&) = delete;
  operator const T&() { return block_; }

 private:
  Blocks<T>& blocks_;
  const T& block_;
};

}  // namespace gnnscale::csim
