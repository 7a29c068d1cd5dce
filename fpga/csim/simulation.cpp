#include "csim/simulation.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <new>
#include <utility>

namespace gnnscale::csim {
namespace {
thread_local Simulation* this_thread = nullptr;
constexpr int64_t kMaxIdleCycles = 1000000;  // a product of two blocks takes less than a tenth

// A run needs megabytes, and runs are frequent: fresh pages would take longer than the run.
struct FreeMemory {
  std::mutex mutex;
  std::vector<std::pair<void*, size_t>> free;
};
FreeMemory& free_memory() {
  static auto* all = new FreeMemory;  // outlives threads that end after this library's statics
  return *all;
}
constexpr size_t kHeader = 64;  // holds the size
}  // namespace

std::unique_ptr<void, void (*)(void*)> take_memory(size_t num_bytes) {
  FreeMemory& memory = free_memory();
  char* block = nullptr;
  {
    const std::lock_guard lock(memory.mutex);
    const auto match =
        std::find_if(memory.free.begin(), memory.free.end(),
                     [&](const auto& free_block) { return free_block.second == num_bytes; });
    if (match != memory.free.end()) {
      block = static_cast<char*>(match->first);
      memory.free.erase(match);
    }
  }
  if (block == nullptr) {
    block = static_cast<char*>(operator new(num_bytes + kHeader, std::align_val_t{64}));
    *reinterpret_cast<size_t*>(block) = num_bytes;
  }
  return {block + kHeader, [](void* pointer) {
            char* begin = static_cast<char*>(pointer) - kHeader;
            FreeMemory& all = free_memory();
            const std::lock_guard lock(all.mutex);
            all.free.emplace_back(begin, *reinterpret_cast<size_t*>(begin));
          }};
}

const char* counter_names() {
  return "cycles,forward,loss,weight_gradients,backward,duplicated,edges,"
         "multiplying,transferring,"
         "feature_words,edge_words,weight_words,gradient_words,scratch_words,"
         "other_words,bursts,"
         "burst_gaps,latency,source_switches,routing_conflicts,hazards";
}

struct Simulation::Process {
  Process(std::string process_name, std::function<void()> body)
      : name(std::move(process_name)), fiber(std::move(body)) {}

  std::string name;
  Fiber fiber;
  int64_t depth = 1, stalled = 0;  // see Simulation
  // Wake-up conditions: a cycle, and then a stream.
  int64_t wakes_at = 0;
  const StreamState* reads = nullptr;
  const StreamState* writes = nullptr;
};

Simulation::Simulation(BankModel model) : model_(model) {}
Simulation::~Simulation() = default;

Simulation& Simulation::current() { return *this_thread; }

int64_t Simulation::wakes_at(const Process& process) const {
  if (process.reads != nullptr) return process.reads->readable_at(now_);
  if (process.writes != nullptr) return process.writes->writable_at(now_);
  return process.wakes_at;
}

void Simulation::run(std::vector<std::pair<std::string, std::function<void()>>> processes) {
  processes_.clear();
  progressed();
  for (auto& [name, body] : processes) {
    processes_.push_back(std::make_unique<Process>(std::move(name), std::move(body)));
    processes_.back()->wakes_at = now_;
  }
  const auto finish = [this] {
    processes_.clear();
    locals_.clear();
    active_ = nullptr;
    active_depth_ = 1;
  };
  try {
    while (!processes_.empty()) {
      for (auto& process : processes_) {
        if (wakes_at(*process) > now_) continue;
        active_ = process.get();
        active_depth_ = process->depth;
        active_stalled_ = process->stalled;
        process->reads = process->writes = nullptr;
        process->fiber.enter();
        process->depth = active_depth_;
        process->stalled = active_stalled_;
      }
      std::erase_if(processes_, [](const auto& candidate) { return candidate->fiber.done(); });
      if (processes_.empty()) break;
      int64_t next = StreamState::kNever;
      for (const auto& process : processes_) next = std::min(next, wakes_at(*process));
      // Processes that poll streams continue polling.
      if (next == StreamState::kNever || now_ - last_progress_ > kMaxIdleCycles) deadlock();
      // Only processes change streams, so nothing changes before. Processes that could still run in
      // this cycle run in the next one.
      now_ = std::max(next, now_ + 1);
    }
  } catch (...) {
    finish();
    throw;
  }
  finish();
}

void Simulation::sleep_until(int64_t cycle) {
  if (active_ == nullptr) {
    now_ = std::max(now_, cycle);
  } else if (cycle > now_) {
    active_->wakes_at = cycle;
    active_->fiber.leave();
  }
}

void Simulation::cycle(int64_t count) { sleep_until(now_ + count); }

// A second access in the same cycle is a limit of the stream's port, not counted as a stall.
void Simulation::wait_readable(StreamState& stream) {
  const int64_t begin = now_ + (stream.was_read(now_) ? 1 : 0);
  while (!stream.readable(now_)) {
    active_->reads = &stream;
    active_->fiber.leave();
  }
  active_stalled_ += std::max(now_ - begin, int64_t{0});
}

void Simulation::wait_writable(StreamState& stream) {
  const int64_t begin = now_ + (stream.was_written(now_) ? 1 : 0);
  while (!stream.writable(now_)) {
    active_->writes = &stream;
    active_->fiber.leave();
  }
  active_stalled_ += std::max(now_ - begin, int64_t{0});
}

void Simulation::deadlock() const {
  std::string text = "deadlock in cycle " + std::to_string(now_) + ":";
  for (const auto& process : processes_) {
    const bool reads = process->reads != nullptr;
    if (!reads && process->writes == nullptr) continue;
    text += " " + process->name + (reads ? " waits for data from " : " waits for room in ") +
            (reads ? process->reads : process->writes)->name() + ";";
  }
  text.pop_back();
  throw SimulationError(text);
}

Region Simulation::region_of(const void* begin) const {
  if (regions_.empty()) return {const_cast<void*>(begin), INT64_MAX, "a buffer"};
  const auto match = std::find_if(regions_.begin(), regions_.end(),
                                  [&](const auto& region) { return region.begin == begin; });
  if (match == regions_.end()) throw SimulationError("the kernel touched no buffer of the run");
  return *match;
}

void Simulation::transfer(int64_t ready_cycle, int64_t gap, Count kind) {
  // Ports have buffers, so the bank keeps working while a kernel takes no word.
  const double buffered = static_cast<double>(model_.buffered_words) * model_.cycles_per_word;
  bank_free_ = std::max(bank_free_, static_cast<double>(now_) - buffered);
  const double served =
      std::max(static_cast<double>(ready_cycle), bank_free_ + static_cast<double>(gap));
  bank_free_ = served + model_.cycles_per_word;
  count(kind);
  count(Count::transferring);
  sleep_until(static_cast<int64_t>(std::ceil(served)));
}

Entered::Entered(Simulation& simulation) : outer_(std::exchange(this_thread, &simulation)) {}
Entered::~Entered() { this_thread = outer_; }

}  // namespace gnnscale::csim
