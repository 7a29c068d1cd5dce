#include "host/fiber.hpp"

#include <cstdint>
#include <new>

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define GNNSCALE_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define GNNSCALE_TSAN 1
#endif

#if defined(__x86_64__) && !defined(GNNSCALE_FIBER_UCONTEXT)
#define GNNSCALE_FAST_SWITCH 1
// Saves callee-saved registers to the old stack, switches to the new stack, and restores its
// registers: swapcontext() would make a system call for the signal mask each time.
extern "C" void gnnscale_cuda_switch(void** from, void* to) __attribute__((visibility("hidden")));
asm(R"(
  .text
  .hidden gnnscale_cuda_switch
  .globl gnnscale_cuda_switch
  .type gnnscale_cuda_switch, @function
gnnscale_cuda_switch:
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
  .size gnnscale_cuda_switch, . - gnnscale_cuda_switch
)");
#else
#include <ucontext.h>
#endif

// Switching and scheduling are no CUDA thread's accesses: hidden from ThreadSanitizer.
#define GNNSCALE_UNSEEN __attribute__((no_sanitize("thread")))

namespace gnnscale::cuda_host {
namespace {

#if defined(GNNSCALE_ASAN) || defined(GNNSCALE_TSAN)
constexpr size_t kStackBytes = size_t{1} << 18;  // sanitizers enlarge frames
#else
constexpr size_t kStackBytes = size_t{1} << 16;
#endif
constexpr size_t kGuardBytes = size_t{1} << 12;

#ifdef GNNSCALE_FAST_SWITCH
using Place = void*;
inline void jump(Place& from, Place& to) { gnnscale_cuda_switch(&from, to); }
#else
using Place = ucontext_t;
inline void jump(Place& from, Place& to) { swapcontext(&from, &to); }
#endif

thread_local Fibers* entering = nullptr;
thread_local unsigned entering_fiber = 0;

}  // namespace

struct Fibers::Stack {
  char* bottom = nullptr;
  Place here{};
  void* fake = nullptr;  // of AddressSanitizer
  void* tsan = nullptr;  // of ThreadSanitizer
};

struct Fibers::Caller {
  Place here{};
  void* fake = nullptr;
  void* tsan = nullptr;
  const void* bottom = nullptr;
  size_t bytes = 0;
};

Fibers::Fibers(unsigned count, void (*main)(void*, unsigned), void* context)
    : count_(count),
      main_(main),
      context_(context),
      memory_(nullptr),
      bytes_((kStackBytes + kGuardBytes) * count),
      stacks_(new Stack[count]),
      caller_(new Caller) {
  memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  for (unsigned i = 0; i < count; ++i) {
    char* guard = static_cast<char*>(memory_) + i * (kStackBytes + kGuardBytes);
    mprotect(guard, kGuardBytes, PROT_NONE);  // an overflow faults
    Stack& stack = stacks_[i];
    stack.bottom = guard + kGuardBytes;
#ifdef GNNSCALE_FAST_SWITCH
    // Six registers, then the return address of the first switch. At that point the stack must be 8
    // bytes off a multiple of 16, as after a call.
    auto* frame = reinterpret_cast<void**>(stack.bottom + kStackBytes) - 8;
    for (int word = 0; word < 8; ++word) frame[word] = nullptr;
    frame[6] = reinterpret_cast<void*>(&Fibers::begin);
    stack.here = frame;
#else
    getcontext(&stack.here);
    stack.here.uc_stack.ss_sp = stack.bottom;
    stack.here.uc_stack.ss_size = kStackBytes;
    stack.here.uc_link = nullptr;
    makecontext(&stack.here, &Fibers::begin, 0);
#endif
#ifdef GNNSCALE_TSAN
    stack.tsan = __tsan_create_fiber(0);
#endif
  }
}

Fibers::~Fibers() {
#ifdef GNNSCALE_TSAN
  for (unsigned i = 0; i < count_; ++i) __tsan_destroy_fiber(stacks_[i].tsan);
#endif
  munmap(memory_, bytes_);
  delete[] stacks_;
  delete caller_;
}

GNNSCALE_UNSEEN void Fibers::enter(unsigned fiber) {
  entering = this;
  entering_fiber = fiber;
  Stack& stack = stacks_[fiber];
#ifdef GNNSCALE_ASAN
  __sanitizer_start_switch_fiber(&caller_->fake, stack.bottom, kStackBytes);
#endif
#ifdef GNNSCALE_TSAN
  caller_->tsan = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(stack.tsan, __tsan_switch_to_fiber_no_sync);
#endif
  jump(caller_->here, stack.here);
#ifdef GNNSCALE_ASAN
  __sanitizer_finish_switch_fiber(caller_->fake, nullptr, nullptr);
#endif
}

GNNSCALE_UNSEEN void Fibers::leave(unsigned fiber) {
  Stack& stack = stacks_[fiber];
#ifdef GNNSCALE_ASAN
  __sanitizer_start_switch_fiber(&stack.fake, caller_->bottom, caller_->bytes);
#endif
#ifdef GNNSCALE_TSAN
  __tsan_switch_to_fiber(caller_->tsan, __tsan_switch_to_fiber_no_sync);
#endif
  jump(stack.here, caller_->here);
#ifdef GNNSCALE_ASAN
  __sanitizer_finish_switch_fiber(stack.fake, &caller_->bottom, &caller_->bytes);
#endif
}

GNNSCALE_UNSEEN void Fibers::begin() {
  Fibers* self = entering;
  const unsigned fiber = entering_fiber;
#ifdef GNNSCALE_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &self->caller_->bottom, &self->caller_->bytes);
#endif
  self->main_(self->context_, fiber);
  __builtin_trap();  // `main` never returns
}

void Fibers::released([[maybe_unused]] void* point) {
#ifdef GNNSCALE_TSAN
  __tsan_release(point);
#endif
}

void Fibers::acquired([[maybe_unused]] void* point) {
#ifdef GNNSCALE_TSAN
  __tsan_acquire(point);
#endif
}

}  // namespace gnnscale::cuda_host
