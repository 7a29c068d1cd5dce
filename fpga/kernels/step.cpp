// The kernel's host interface. Its arguments are in the order of the bitstream's.
//
// GNNSCALE_DESIGN is defined if there is a header of the sizes, which `gnnscale generate` writes.
#ifdef GNNSCALE_DESIGN
#include "gnnscale_design.hpp"
#endif
#include "kernels/step.hpp"

#ifndef GNNSCALE_N
#define GNNSCALE_N 2
#endif
#ifndef GNNSCALE_M
#define GNNSCALE_M 256
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

extern "C" void gnnscale_step(gnnscale::fpga::Port batch, gnnscale::fpga::Port edges,
                              gnnscale::fpga::Port features, gnnscale::fpga::Port weights,
                              gnnscale::fpga::Port gradients, gnnscale::fpga::Port scratch,
                              gnnscale::fpga::Port result, int32_t num_groups, int32_t flags,
                              int32_t seed_low, int32_t seed_high, int32_t step_low,
                              int32_t step_high, int32_t scale) {
// Four bursts of 4 KiB cover the latency; a port's buffer holds all of them.
#pragma HLS interface m_axi port = batch bundle = batch latency = 64 max_read_burst_length = \
    64 num_read_outstanding = 4
#pragma HLS interface m_axi port = edges bundle = edges latency = 64 max_read_burst_length = \
    64 num_read_outstanding = 4
#pragma HLS interface m_axi port = features bundle = features latency = 64 max_read_burst_length = \
    64 num_read_outstanding = 4
#pragma HLS interface m_axi port = weights bundle = weights latency = 64 max_read_burst_length = \
    64 num_read_outstanding = 4
#pragma HLS interface m_axi port = gradients bundle = gradients latency =           \
    64 max_read_burst_length = 64 num_read_outstanding = 4 max_write_burst_length = \
        64 num_write_outstanding = 4
#pragma HLS interface m_axi port = scratch bundle = scratch latency = 64 max_read_burst_length = \
    64 num_read_outstanding = 4 max_write_burst_length = 64 num_write_outstanding = 4
#pragma HLS interface m_axi port = result bundle = result latency = 64 max_write_burst_length = \
    64 num_write_outstanding = 4
  using namespace gnnscale::fpga;
  const Request request = {flags, joined(seed_low, seed_high), joined(step_low, step_high),
                           float_of(scale)};
#ifdef __VITIS_HLS__
  Rows<CompiledDesign> rows;
  GatherSums<CompiledDesign> first_sums, second_sums;
#pragma HLS array_partition variable = rows type = complete dim = 1
#pragma HLS bind_storage variable = rows type = ram_2p impl = uram
#pragma HLS array_partition variable = first_sums type = complete dim = 1
#pragma HLS array_partition variable = second_sums type = complete dim = 1
#pragma HLS bind_storage variable = first_sums type = ram_2p impl = bram
#pragma HLS bind_storage variable = second_sums type = ram_2p impl = uram
#else
  struct Chip {
    Rows<CompiledDesign> rows;
    GatherSums<CompiledDesign> first_sums, second_sums;
  };
  auto& [rows, first_sums, second_sums] = gnnscale::csim::Simulation::current().on_chip<Chip>();
#endif
  train_step<CompiledDesign, LayerFunctions>(batch, edges, features, weights, gradients, scratch,
                                             result, num_groups, request, rows, first_sums,
                                             second_sums);
}
