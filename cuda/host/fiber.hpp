// Stacks that are left and entered again, a CUDA thread each.
//
// ThreadSanitizer is told that a switch orders nothing: what two CUDA threads of a block do between
// two barriers may happen in any order on a GPU, though here one follows the other.
#pragma once

#include <cstddef>

namespace gnnscale::cuda_host {

class Fibers {
 public:
  // `main` is called on a fiber's own stack, and must not return.
  Fibers(unsigned count, void (*main)(void* context, unsigned fiber), void* context);
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  // Runs a fiber until it leaves.
  void enter(unsigned fiber);
  // Called on a fiber's stack: back to where it was entered.
  void leave(unsigned fiber);
  // On the stack that is about to run: what came before `point` was passed by others is seen.
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
