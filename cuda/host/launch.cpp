#include "host/launch.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "host/block.hpp"

namespace gnnscale::cuda_host {
namespace {

// Pool of idle blocks: creating their stacks takes longer than most kernels.
class IdleBlocks {
 public:
  std::unique_ptr<Block> take(unsigned threads) {
    {
      const std::lock_guard lock(mutex_);
      const auto match = std::find_if(blocks_.begin(), blocks_.end(), [&](const auto& candidate) {
        return candidate->threads() == threads;
      });
      if (match != blocks_.end()) {
        auto block = std::move(*match);
        blocks_.erase(match);
        return block;
      }
    }
    return std::make_unique<Block>(threads);
  }
  void give(std::unique_ptr<Block> block) {
    const std::lock_guard lock(mutex_);
    blocks_.push_back(std::move(block));
  }
  // Keeps a block whose threads have not finished: destroying it would cut threads off
  // mid-execution.
  void abandon(std::unique_ptr<Block> block) {
    const std::lock_guard lock(mutex_);
    abandoned_.push_back(std::move(block));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> blocks_, abandoned_;
};

IdleBlocks& idle_blocks() {
  static auto* const blocks = new IdleBlocks;  // outlives all threads that may use them
  return *blocks;
}

}  // namespace

std::vector<Kernel>& kernels() {
  static std::vector<Kernel> registry;
  return registry;
}

void launch(const Kernel& kernel, unsigned grid, unsigned block, void** arguments,
            unsigned host_threads) {
  if (grid == 0 || block == 0 || block > kMaxThreads) {
    throw std::runtime_error(kernel.name + ": " + std::to_string(grid) + " blocks of " +
                             std::to_string(block) + " threads");
  }
  std::atomic<unsigned> next{0};
  std::mutex mutex;
  std::string error;
  const auto run_blocks = [&] {
    std::unique_ptr<Block> own_block;
    try {
      own_block = idle_blocks().take(block);
      for (unsigned number; (number = next++) < grid;) {
        own_block->run(number, grid, kernel.call, arguments);
      }
      idle_blocks().give(std::move(own_block));
    } catch (const std::exception& thrown) {
      next = grid;
      const std::lock_guard lock(mutex);
      if (error.empty()) error = thrown.what();
      if (own_block != nullptr) idle_blocks().abandon(std::move(own_block));
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::min(host_threads, grid); ++i) threads.emplace_back(run_blocks);
  run_blocks();
  for (std::thread& thread : threads) thread.join();
  if (!error.empty()) throw std::runtime_error(kernel.name + ": " + error);
}

}  // namespace gnnscale::cuda_host
