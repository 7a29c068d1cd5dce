// Fibers: stacks that can be left and re-entered, one for each CUDA thread.
//
// ThreadSanitizer is told that a switch orders nothing: the accesses of two CUDA threads between
// two barriers may happen in any order on a GPU, although the fibers run one after the other.
#pragma once

#include <cstddef>

namespace gnnscale::cuda_host {

class Fibers {
 public:
  // `main` runs on a fiber's own stack, and must not return.
  Fibers(unsigned count, void (*main)(void* context, unsigned fiber), void* context);
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  // Runs a fiber until it leaves.
  void enter(unsigned fiber);
  // Called on a fiber's stack: returns to the caller of `enter`.
  void leave(unsigned fiber);
  // Called on the stack that is about to run: accesses before other threads passed `point` are
  // visible.
  static void released(void* point);
  static void acquired(void* point);

 private:
  struct Stack;
  struct Caller;
  static void begin();

  unsigned count_;
  void (*main_)(void*, unsigned);
  void* context_;
  void* memory_;
  size_t bytes_;
  Stack* stacks_;
  Caller* caller_;
};

}  // namespace gnnscale::cuda_host
