#include "host/block.hpp"

#include <chrono>
#include <stdexcept>
#include <thread>

// The scheduler's own accesses are no CUDA thread's accesses: hidden from ThreadSanitizer.
#define GNNSCALE_UNSEEN __attribute__((no_sanitize("thread")))

namespace gnnscale::cuda_host {

constinit thread_local Place here;

namespace {

// Timeout of spinning threads: the awaited blocks run, or have run, unless there is a bug.
constexpr std::chrono::seconds kPatience{60};

unsigned first_of(uint32_t mask) { return mask == 0 ? 0 : __builtin_ctz(mask); }

}  // namespace

Block::Block(unsigned threads)
    : threads_(threads), lanes_(new Lane[threads]), fibers_(threads, &Block::main, this) {}

GNNSCALE_UNSEEN void Block::run(unsigned block, unsigned grid, void (*call)(void**),
                                void** arguments) {
  call_ = call;
  arguments_ = arguments;
  here = {this, 0, block, threads_, grid};
  live_ = threads_;
  waiting_ = 0;
  for (unsigned i = 0; i < threads_; ++i) lanes_[i] = {Lane::At::running};
  // Happens after the host's work before the launch, and after this thread's previous block: blocks
  // share the memory of `__shared__`.
  Fibers::released(&order_.begin);
  auto spinning_since = std::chrono::steady_clock::time_point::max();
  while (live_ > 0) {
    if (pass()) {
      spinning_since = std::chrono::steady_clock::time_point::max();
      continue;
    }
    if (!error_.empty()) {
      Fibers::acquired(&order_.end);
      throw std::runtime_error(error_);
    }
    bool spins = false;
    for (unsigned i = 0; i < threads_; ++i) spins |= lanes_[i].at == Lane::At::spinning;
    const auto now = std::chrono::steady_clock::now();
    if (spinning_since > now) spinning_since = now;
    if (!spins || now - spinning_since > kPatience) throw std::runtime_error(stuck());
    std::this_thread::yield();
  }
  Fibers::acquired(&order_.end);
}

// Enters each thread that can run. Returns whether any progressed beyond spinning.
GNNSCALE_UNSEEN bool Block::pass() {
  bool further = false;
  for (unsigned i = 0; i < threads_ && error_.empty(); ++i) {
    Lane& lane = lanes_[i];
    if (lane.at != Lane::At::running && lane.at != Lane::At::spinning) continue;
    here.thread = i;
    fibers_.enter(i);
    further |= lane.at != Lane::At::spinning;
  }
  return further && error_.empty();
}

GNNSCALE_UNSEEN void Block::main(void* self, unsigned thread) {
  auto* block = static_cast<Block*>(self);
  for (;;) {
    Fibers::acquired(&block->order_.begin);
    try {
      block->call_(block->arguments_);
    } catch (const std::exception& error) {
      block->error_ = error.what();
    }
    Fibers::released(&block->order_.end);
    --block->live_;
    block->lanes_[thread].at = Lane::At::done;
    // Waiting lanes must not wait for an exited thread.
    block->finish_warp(thread / kWarp);
    block->release_block();
    block->fibers_.leave(thread);
  }
}

GNNSCALE_UNSEEN void Block::leave(Lane::At at) {
  lanes_[here.thread].at = at;
  fibers_.leave(here.thread);
}

void Block::spin() { leave(Lane::At::spinning); }

GNNSCALE_UNSEEN void Block::sync_threads() {
  void* const point = order_.block.point();
  Fibers::released(point);
  ++waiting_;
  lanes_[here.thread].at = Lane::At::block_barrier;
  release_block();
  // The last thread to arrive continues immediately.
  if (lanes_[here.thread].at == Lane::At::block_barrier) fibers_.leave(here.thread);
  Fibers::acquired(point);
}

// Releases the barrier if all remaining threads have arrived.
GNNSCALE_UNSEEN void Block::release_block() {
  if (waiting_ == 0 || waiting_ < live_) return;
  waiting_ = 0;
  ++order_.block.number;
  for (unsigned i = 0; i < threads_; ++i) {
    if (lanes_[i].at == Lane::At::block_barrier) lanes_[i].at = Lane::At::running;
  }
}

GNNSCALE_UNSEEN uint64_t Block::collective(Collective kind, uint32_t mask, uint64_t value,
                                           unsigned source) {
  const unsigned first = here.thread / kWarp * kWarp;
  void* const point = order_.lanes[first + first_of(mask)].point();
  Fibers::released(point);
  Lane& lane = lanes_[here.thread];
  lane.at = Lane::At::collective;
  lane.kind = kind;
  lane.mask = mask;
  lane.value = value;
  lane.source = source;
  finish(first, mask);
  if (lane.at == Lane::At::collective) fibers_.leave(here.thread);
  Fibers::acquired(point);
  return lane.result;
}

// Completes collectives of a warp after one of its threads has exited.
GNNSCALE_UNSEEN void Block::finish_warp(unsigned warp) {
  const unsigned first = warp * kWarp;
  for (unsigned i = first; i < first + kWarp && i < threads_; ++i) {
    if (lanes_[i].at == Lane::At::collective) finish(first, lanes_[i].mask);
  }
}

// Returns the mask of a collective's lanes that passed `value`.
GNNSCALE_UNSEEN uint32_t Block::alike(unsigned first, uint32_t mask, uint64_t value) const {
  uint32_t lanes = 0;
  for (unsigned i = 0; i < kWarp && first + i < threads_; ++i) {
    const Lane& lane = lanes_[first + i];
    const bool takes_part = (mask >> i & 1) != 0 && lane.at == Lane::At::collective;
    if (takes_part && lane.value == value) lanes |= uint32_t{1} << i;
  }
  return lanes;
}

// Completes the collective of some lanes if all remaining lanes have arrived.
GNNSCALE_UNSEEN void Block::finish(unsigned first, uint32_t mask) {
  const unsigned size = threads_ - first < kWarp ? threads_ - first : kWarp;
  uint32_t ballot = 0;
  Collective kind = Collective::none;
  for (unsigned i = 0; i < size; ++i) {
    const Lane& lane = lanes_[first + i];
    if ((mask >> i & 1) == 0 || lane.at == Lane::At::done) continue;
    if (lane.at != Lane::At::collective || lane.mask != mask) return;
    if (kind != Collective::none && kind != lane.kind) {
      error_ = "lanes of a warp do different things together";
      return;
    }
    kind = lane.kind;
    ballot |= uint32_t(lane.value != 0) << i;
  }
  for (unsigned i = 0; i < size; ++i) {
    Lane& lane = lanes_[first + i];
    if ((mask >> i & 1) == 0 || lane.at != Lane::At::collective) continue;
    const unsigned source = lane.source < size ? lane.source : i;
    lane.result = kind == Collective::ballot  ? ballot
                  : kind == Collective::match ? alike(first, mask, lane.value)
                                              : lanes_[first + source].value;
  }
  ++order_.lanes[first + first_of(mask)].number;
  for (unsigned i = 0; i < size; ++i) {
    Lane& lane = lanes_[first + i];
    if ((mask >> i & 1) != 0 && lane.at == Lane::At::collective) lane.at = Lane::At::running;
  }
}

std::string Block::stuck() const {
  unsigned counts[5] = {};
  for (unsigned i = 0; i < threads_; ++i) ++counts[static_cast<unsigned>(lanes_[i].at)];
  return "block " + std::to_string(here.block_index) +
         ": its threads wait in vain: " + std::to_string(counts[2]) + " for the block, " +
         std::to_string(counts[3]) + " for their warp, " + std::to_string(counts[1]) +
         " for other blocks, " + std::to_string(counts[4]) + " are done";
}

}  // namespace gnnscale::cuda_host
