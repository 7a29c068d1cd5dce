// A function with a stack of its own, which can be left and entered again.
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

  // Runs the body until it leaves or returns. What it throws is thrown here.
  void enter();
  // Called in the body: back to where it was entered.
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
