// A block of CUDA threads on one thread of the host.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "host/fiber.hpp"

namespace gnnscale::cuda_host {

constexpr unsigned kWarp = 32;
constexpr unsigned kMaxThreads = 1024;

// Collective operations of a warp's lanes.
enum class Collective : uint8_t { none, shuffle, ballot, match, meet };

// State of a CUDA thread.
struct Lane {
  enum class At : uint8_t { running, spinning, block_barrier, collective, done };

  At at = At::done;
  Collective kind = Collective::none;
  uint32_t mask = 0;    // lanes that participate
  unsigned source = 0;  // lane whose value it receives
  uint64_t value = 0;   // value it passes
  uint64_t result = 0;  // value it receives
};

// Synchronization points for ThreadSanitizer. Threads that have left a barrier may arrive at the
// next one before others leave it, so two points alternate.
struct Order {
  struct Meeting {
    char points[2] = {};
    unsigned number = 0;  // number of earlier barriers

    void* point() { return &points[number % 2]; }
  };

  char begin = 0, end = 0;
  Meeting block;
  Meeting lanes[kMaxThreads];  // by the lowest participating lane
};

// Runs the threads of one block round-robin, each until it waits. The threads are reused for later
// blocks.
class Block {
 public:
  explicit Block(unsigned threads);

  unsigned threads() const { return threads_; }

  // Runs `call(arguments)` in every thread. Throws std::runtime_error on a deadlock or if a thread
  // throws; the block is unusable afterwards.
  void run(unsigned block, unsigned grid, void (*call)(void**), void** arguments);

  // Called by the running CUDA thread.
  void sync_threads();
  uint64_t collective(Collective kind, uint32_t mask, uint64_t value, unsigned source);
  void spin();

 private:
  static void main(void* self, unsigned thread);
  void leave(Lane::At at);
  bool pass();
  void release_block();
  void finish_warp(unsigned warp);
  void finish(unsigned first, uint32_t mask);
  uint32_t alike(unsigned first, uint32_t mask, uint64_t value) const;
  std::string stuck() const;

  unsigned threads_;
  std::unique_ptr<Lane[]> lanes_;
  Fibers fibers_;
  void (*call_)(void**) = nullptr;
  void** arguments_ = nullptr;
  std::string error_;
  unsigned live_ = 0, waiting_ = 0;
  Order order_;
};

// Coordinates of the running CUDA thread.
struct Place {
  Block* block = nullptr;
  unsigned thread = 0, block_index = 0, block_size = 0, grid = 0;
};
extern constinit thread_local Place here;

}  // namespace gnnscale::cuda_host
