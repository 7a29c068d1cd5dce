// The kernels and their C simulation as one shared library, which a simulated device loads instead
// of a bitstream. A single file, so that one compiler call builds a design.
#include "csim/fiber.cpp"
#include "csim/simulation.cpp"
#define gnnscale_step gnnscale_kernel
#include "kernels/step.cpp"
#undef gnnscale_step

#ifndef GNNSCALE_COMPUTE_UNITS
#define GNNSCALE_COMPUTE_UNITS 4
#endif
#ifndef GNNSCALE_SOURCES
#define GNNSCALE_SOURCES ""  // hash of the sources, if they may have changed since
#endif
#ifndef GNNSCALE_CLOCK_HZ
#define GNNSCALE_CLOCK_HZ 300000000
#endif

namespace {

using gnnscale::csim::BankModel;
using gnnscale::csim::Count;
using gnnscale::csim::Region;

constexpr double kClockHz = GNNSCALE_CLOCK_HZ;
constexpr double kBankBytes = 17179869184.0;  // 16 GiB of a U250's 64
constexpr double kBankBandwidth = 19.25e9;    // bytes per second of one DDR channel
// Refresh and read/write turnarounds of a controller leave 80 to 95 % for long bursts, by its guide
// (PG150): the midpoint.
constexpr double kBankEfficiency = 0.875;
constexpr double kPortBytes = sizeof(gnnscale::fpga::Word);

BankModel bank() {
  BankModel model;
  const double cycles = kPortBytes * kClockHz / (kBankBandwidth * kBankEfficiency);
  model.cycles_per_word = cycles > 1 ? cycles : 1;  // a port moves at most one word a cycle
  return model;
}

// Result of this thread's last call.
struct Call {
  std::vector<Region> regions;
  std::string error;
  int64_t counts[static_cast<int>(Count::num_counts)] = {};
};
thread_local Call call;

std::string describe() {
  using D = CompiledDesign;
  const auto number = [](const char* name, double value) {
    return ",\"" + std::string(name) + "\":" + std::to_string(static_cast<int64_t>(value));
  };
  std::string text = R"({"format":1,"kernel":"gnnscale_step","arguments":[)";
  for (const char* name :
       {"batch", "edges", "features", "weights", "gradients", "scratch", "result"}) {
    text += std::string(R"({"name":")") + name + R"(","kind":"buffer"},)";
  }
  for (const char* name :
       {"num_groups", "flags", "seed_low", "seed_high", "step_low", "step_high", "scale"}) {
    text += std::string(R"({"name":")") + name + R"(","kind":"int"},)";
  }
  text.back() = ']';
  return text + number("n", D::kPes) + number("m", D::kMultipliers) +
         number("compute_units", GNNSCALE_COMPUTE_UNITS) + number("clock_hz", kClockHz) +
         number("bank_bytes", kBankBytes) + number("bank_bandwidth", kBankBandwidth) +
         number("row_words", D::kRowWords) + number("gather_rows", D::kGatherRows) +
         number("edge_words", D::kEdgeWords) + number("max_words_out", D::kMaxWordsOut) +
         number("max_stages", D::kMaxStages) + R"(,"sources":")" GNNSCALE_SOURCES R"("})";
}

}  // namespace

extern "C" {

const char* gnnscale_csim_design() {
  static const std::string text = describe();
  return text.c_str();
}

void gnnscale_csim_regions(const Region* regions, int32_t count) {
  call.regions.assign(regions, regions + count);
}

const char* gnnscale_csim_error() { return call.error.c_str(); }

const char* gnnscale_csim_counter_names() { return gnnscale::csim::counter_names(); }

void gnnscale_csim_counters(int64_t* out, int32_t count) {
  for (int32_t i = 0; i < count && i < static_cast<int32_t>(Count::num_counts); ++i) {
    out[i] = call.counts[i];
  }
}

void gnnscale_step(const gnnscale::fpga::Word* batch, const gnnscale::fpga::Word* edges,
                   const gnnscale::fpga::Word* features, const gnnscale::fpga::Word* weights,
                   gnnscale::fpga::Word* gradients, gnnscale::fpga::Word* scratch,
                   gnnscale::fpga::Word* result, int32_t num_groups, int32_t flags,
                   int32_t seed_low, int32_t seed_high, int32_t step_low, int32_t step_high,
                   int32_t scale) {
  gnnscale::csim::Simulation simulation(bank());
  simulation.allow(std::move(call.regions));
  call.regions.clear();
  call.error.clear();
  try {
    const gnnscale::csim::Entered entered(simulation);
    using gnnscale::fpga::Port;
    gnnscale_kernel(Port(batch, Count::other_words), Port(edges, Count::edge_words),
                    Port(features, Count::feature_words), Port(weights, Count::weight_words),
                    Port(gradients, Count::gradient_words), Port(scratch, Count::scratch_words),
                    Port(result, Count::other_words), num_groups, flags, seed_low, seed_high,
                    step_low, step_high, scale);
  } catch (const std::exception& error) {
    call.error = error.what();
  }
  simulation.count(Count::cycles, simulation.now());
  for (int i = 0; i < static_cast<int>(Count::num_counts); ++i) {
    call.counts[i] = simulation.counted(static_cast<Count>(i));
  }
}

}  // extern "C"
