// A library with the interface of the compiled kernels, whose answer is known
// by hand: gradients[i] = scale * features[i] + batch[i] + edges[i] + weights[0].
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#ifdef GNNSCALE_LAYER_HEADER
#include GNNSCALE_LAYER_HEADER
#else
inline float added() { return 0; }
#endif
#ifndef GNNSCALE_N
#define GNNSCALE_N 2
#endif
#ifndef GNNSCALE_M
#define GNNSCALE_M 512
#endif
#ifndef GNNSCALE_ROW_WORDS
#define GNNSCALE_ROW_WORDS 98304
#endif
#ifndef GNNSCALE_COMPUTE_UNITS
#define GNNSCALE_COMPUTE_UNITS 4
#endif
#ifndef GNNSCALE_CLOCK_HZ
#define GNNSCALE_CLOCK_HZ 300000000
#endif
#ifndef BANK_BYTES
#define BANK_BYTES 1048576
#endif
#ifndef KERNEL
#define KERNEL "gnnscale_step"
#endif
#ifndef GNNSCALE_SOURCES
#define GNNSCALE_SOURCES ""
#endif
#ifndef FORMAT
#define FORMAT 1
#endif

struct Region {
  void *begin;
  int64_t num_bytes;
  const char *name;
};

namespace {
enum Mode { kCompute, kFail, kMeet, kHold };

std::atomic<int> meeting{0};
std::atomic<int> gate{0};
thread_local std::string error;
thread_local int64_t items = 0;
thread_local int64_t gradient_bytes = 0;

// Waits until `met` says so; a test that waits for ever is one that says
// nothing.
template <typename Met> bool within_seconds(Met met) {
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!met()) {
    if (std::chrono::steady_clock::now() > until)
      return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}
} // namespace

// What GCC makes one variable of for all libraries of a process, unless it is
// told otherwise.
inline int &own_size() {
  static int size = GNNSCALE_N;
  return size;
}

extern "C" {

const char *gnnscale_csim_design() {
  const auto argument = [](const char *name, const char *kind) {
    return std::string(R"({"name":")") + name + R"(","kind":")" + kind +
           R"("})";
  };
  static const std::string design =
      R"({"format":)" + std::to_string(FORMAT) +
      R"(,"kernel":")" KERNEL R"(","arguments":[)" +
      argument("batch", "buffer") + "," + argument("edges", "buffer") + "," +
      argument("features", "buffer") + "," +
      argument("weights", "buffer") + "," + argument("gradients", "buffer") +
      "," + argument("scratch", "buffer") + "," + argument("result", "buffer") +
      "," + argument("count", "int") + "," + argument("scale", "int") + "," +
      argument("mode", "int") + R"(],"n":)" + std::to_string(own_size()) +
      R"(,"m":)" + std::to_string(GNNSCALE_M) + R"(,"row_words":)" +
      std::to_string(GNNSCALE_ROW_WORDS) + R"(,"compute_units":)" +
      std::to_string(GNNSCALE_COMPUTE_UNITS) + R"(,"bank_bytes":)" +
      std::to_string(BANK_BYTES) + R"(,"clock_hz":)" +
      std::to_string(GNNSCALE_CLOCK_HZ) + R"(,"sources":")" GNNSCALE_SOURCES
                                          R"("})";
  return design.c_str();
}

void gnnscale_csim_regions(const Region *regions, int32_t count) {
  gradient_bytes = 0;
  for (int32_t i = 0; i < count; ++i)
    if (std::string(regions[i].name) == "gradients")
      gradient_bytes = regions[i].num_bytes;
}

const char *gnnscale_csim_error() { return error.c_str(); }

const char *gnnscale_csim_counter_names() { return "items,gradient_bytes"; }

void gnnscale_csim_counters(int64_t *out, int32_t count) {
  if (count > 0)
    out[0] = items;
  if (count > 1)
    out[1] = gradient_bytes;
}

void open_gate(int to) { gate = to; }

void gnnscale_step(const uint32_t *batch, const uint32_t *edges,
                   const float *features,
                   const float *weights, float *gradients, float *scratch,
                   uint32_t *result, int32_t count, int32_t scale,
                   int32_t mode) {
  error.clear();
  items = count;
  if (mode == kFail)
    error = "vertex 7 of\nlayer 1 is none of the batch";
  if (mode == kMeet) {
    ++meeting;
    if (!within_seconds([] { return meeting % 2 == 0; }))
      error = "nobody came";
  }
  if (mode == kHold && !within_seconds([] { return gate > 0; }))
    error = "the gate stayed shut";
  if (gradient_bytes < 4 * count)
    error = "gradients are too small";
  if (!error.empty())
    return;
  for (int32_t i = 0; i < count; ++i) {
    scratch[i] = static_cast<float>(scale) * features[i];
    gradients[i] =
        scratch[i] + static_cast<float>(batch[i] + edges[i]) + weights[0] +
        added();
  }
  result[0] = static_cast<uint32_t>(count);
  result[1] = static_cast<uint32_t>(scale);
}
}
