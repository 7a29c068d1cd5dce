// Fiber: a function with a stack of its own, which can be left and re-entered.
#pragma once

#include <cstddef>
#include <functional>

namespace gnnscale::csim {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it leaves or returns. Rethrows the body's exceptions.
  void enter();
  // Called in the body: returns to the caller of `enter`.
  void leave();
  bool done() const { return done_; }

 private:
  struct Context;
  static void main(Fiber* self);

  std::function<void()> body_;
  Context* context_;
  bool done_ = false;
};

}  // namespace gnnscale::csim
