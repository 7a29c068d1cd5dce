#include "csim/fiber.hpp"

#include <exception>
#include <new>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define GNNSCALE_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define GNNSCALE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GNNSCALE_ASAN 1
#elif __has_feature(thread_sanitizer)
#define GNNSCALE_TSAN 1
#endif
#endif
#ifdef GNNSCALE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef GNNSCALE_TSAN
#include <sanitizer/tsan_interface.h>
#endif

// Saves callee-saved registers to the old stack, switches to the new stack, and restores its
// registers. swapcontext() makes a system call for the signal mask at every switch, which takes
// twenty times longer.
#if defined(__x86_64__) && !defined(GNNSCALE_CSIM_UCONTEXT)
#define GNNSCALE_FAST_SWITCH 1
extern "C" void gnnscale_csim_switch(void** from, void* to) __attribute__((visibility("hidden")));
asm(R"(
  .text
  .hidden gnnscale_csim_switch
  .globl gnnscale_csim_switch
  .type gnnscale_csim_switch, @function
gnnscale_csim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size gnnscale_csim_switch, . - gnnscale_csim_switch
)");
#endif

namespace gnnscale::csim {
namespace {

// Kernels keep their memories on the stack. Untouched pages use no memory.
constexpr size_t kStackBytes = size_t{16} << 20;

// Free stacks of this thread.
class Stacks {
 public:
  ~Stacks() {
    for (void* free_stack : free_) munmap(free_stack, kStackBytes);
  }
  void* take() {
    if (!free_.empty()) {
      void* stack = free_.back();
      free_.pop_back();
      return stack;
    }
    void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) throw std::bad_alloc();
    mprotect(stack, static_cast<size_t>(sysconf(_SC_PAGESIZE)),
             PROT_NONE);  // an overflow faults
    return stack;
  }
  void give(void* stack) {
#ifdef GNNSCALE_ASAN
    __asan_unpoison_memory_region(stack,
                                  kStackBytes);  // frames that were never left
#endif
    free_.push_back(stack);
  }

 private:
  std::vector<void*> free_;
};

thread_local Stacks stacks;

}  // namespace

struct Fiber::Context {
  void* stack = nullptr;
  std::exception_ptr thrown;
#ifdef GNNSCALE_FAST_SWITCH
  void* here = nullptr;    // stack pointer of the suspended body
  void* caller = nullptr;  // stack pointer of the caller of enter()
#else
  ucontext_t here{}, caller{};
#endif
#ifdef GNNSCALE_ASAN
  void* fake_here = nullptr;
  void* fake_caller = nullptr;
  const void* caller_stack = nullptr;
  size_t caller_bytes = 0;
#endif
#ifdef GNNSCALE_TSAN
  void* tsan_here = nullptr;
  void* tsan_caller = nullptr;
#endif

  void to_body() {
#ifdef GNNSCALE_ASAN
    __sanitizer_start_switch_fiber(&fake_caller, stack, kStackBytes);
#endif
#ifdef GNNSCALE_TSAN
    tsan_caller = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(tsan_here, 0);
#endif
#ifdef GNNSCALE_FAST_SWITCH
    gnnscale_csim_switch(&caller, here);
#else
    swapcontext(&caller, &here);
#endif
#ifdef GNNSCALE_ASAN
    __sanitizer_finish_switch_fiber(fake_caller, nullptr, nullptr);
#endif
  }

  void to_caller([[maybe_unused]] bool for_good) {
#ifdef GNNSCALE_ASAN
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_here, caller_stack, caller_bytes);
#endif
#ifdef GNNSCALE_TSAN
    __tsan_switch_to_fiber(tsan_caller, 0);
#endif
#ifdef GNNSCALE_FAST_SWITCH
    gnnscale_csim_switch(&here, caller);
#else
    swapcontext(&here, &caller);
#endif
    arrived();
  }

  void arrived() {
#ifdef GNNSCALE_ASAN
    __sanitizer_finish_switch_fiber(fake_here, &caller_stack, &caller_bytes);
#endif
  }
};

#ifdef GNNSCALE_FAST_SWITCH
namespace {
thread_local void* entering = nullptr;  // fiber whose body is starting
}
#endif

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), context_(new Context) {
  context_->stack = stacks.take();
  char* top = static_cast<char*>(context_->stack) + kStackBytes;
#ifdef GNNSCALE_FAST_SWITCH
  // Six registers, then the return address of the first switch. At that point the stack must be 8
  // bytes off a multiple of 16, as after a call.
  auto* frame = reinterpret_cast<void**>(top) - 8;
  for (int i = 0; i < 8; ++i) frame[i] = nullptr;
  void (*begin)() = [] { main(static_cast<Fiber*>(entering)); };
  frame[6] = reinterpret_cast<void*>(begin);
  context_->here = frame;
#else
  getcontext(&context_->here);
  context_->here.uc_stack.ss_sp = context_->stack;
  context_->here.uc_stack.ss_size = static_cast<size_t>(top - static_cast<char*>(context_->stack));
  context_->here.uc_link = nullptr;
  // makecontext passes ints.
  const auto address = reinterpret_cast<uintptr_t>(this);
  void (*begin)(unsigned, unsigned) = [](unsigned low, unsigned high) {
    main(reinterpret_cast<Fiber*>(static_cast<uintptr_t>(high) << 32 | low));
  };
  makecontext(&context_->here, reinterpret_cast<void (*)()>(begin), 2,
              static_cast<unsigned>(address), static_cast<unsigned>(address >> 32));
#endif
#ifdef GNNSCALE_TSAN
  context_->tsan_here = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef GNNSCALE_TSAN
  __tsan_destroy_fiber(context_->tsan_here);
#endif
  stacks.give(context_->stack);
  delete context_;
}

void Fiber::enter() {
#ifdef GNNSCALE_FAST_SWITCH
  entering = this;
#endif
  context_->to_body();
  if (context_->thrown) std::rethrow_exception(std::exchange(context_->thrown, nullptr));
}

void Fiber::leave() { context_->to_caller(false); }

void Fiber::main(Fiber* self) {
  self->context_->arrived();
  try {
    self->body_();
  } catch (...) {
    self->context_->thrown = std::current_exception();
  }
  self->done_ = true;
  self->context_->to_caller(true);
}

}  // namespace gnnscale::csim
