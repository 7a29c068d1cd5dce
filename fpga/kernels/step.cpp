// The kernel as the host sees it. Its arguments are in the order of the
// bitstream's.
#include "kernels/step.hpp"

#ifndef GNNSCALE_N
#define GNNSCALE_N 2
#endif
#ifndef GNNSCALE_M
#define GNNSCALE_M 512
#endif
#ifdef GNNSCALE_LAYER_HEADER
#include GNNSCALE_LAYER_HEADER
#else
#include "gnnscale_fpga/functions.hpp"
using LayerFunctions = gnnscale::fpga::WeightedSum;
#endif

namespace {
using CompiledDesign = gnnscale::fpga::Design<GNNSCALE_N, GNNSCALE_M>;

uint64_t joined(int32_t low, int32_t high) {
  return static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 | static_cast<uint32_t>(low);
}

}  // namespace

extern "C" void gnnscale_step(const gnnscale::fpga::Word* batch, const gnnscale::fpga::Word* edges,
                              const gnnscale::fpga::Word* features,
                              const gnnscale::fpga::Word* weights, gnnscale::fpga::Word* gradients,
                              gnnscale::fpga::Word* scratch, gnnscale::fpga::Word* result,
                              int32_t num_groups, int32_t flags, int32_t seed_low,
                              int32_t seed_high, int32_t step_low, int32_t step_high,
                              int32_t scale) {
#pragma HLS interface m_axi port = batch bundle = batch max_read_burst_length = 64
#pragma HLS interface m_axi port = edges bundle = edges max_read_burst_length = 64
#pragma HLS interface m_axi port = features bundle = features max_read_burst_length = 64
#pragma HLS interface m_axi port = weights bundle = weights max_read_burst_length = 64
#pragma HLS interface m_axi port = gradients bundle = gradients max_write_burst_length = 64
#pragma HLS interface m_axi port = scratch bundle = scratch max_write_burst_length = 64
#pragma HLS interface m_axi port = result bundle = result
  using namespace gnnscale::fpga;
  const Memory memory = {batch, edges, features, weights, gradients, scratch, result};
  const Request request = {flags, joined(seed_low, seed_high), joined(step_low, step_high),
                           float_of(scale)};
#ifdef __VITIS_HLS__
  static Chip<CompiledDesign> chip;
#pragma HLS array_partition variable = chip.rows dim = 1 complete
#pragma HLS bind_storage variable = chip.rows type = ram_2p impl = uram
#pragma HLS array_partition variable = chip.sums dim = 1 complete
#pragma HLS array_partition variable = chip.sums dim = 2 complete
#pragma HLS bind_storage variable = chip.sums type = ram_2p impl = bram
#else
  auto& chip = gnnscale::csim::Simulation::current().on_chip<Chip<CompiledDesign> >();
#endif
  train_step<CompiledDesign, LayerFunctions>(memory, num_groups, request, chip);
}
