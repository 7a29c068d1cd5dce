// Kernels of every instruction set that this machine supports.
#pragma once

#include <vector>

#include "../src/simd/activation_kernels.hpp"
#include "../src/simd/labor_kernels.hpp"
#include "../src/simd/maxima_kernels.hpp"
#include "../src/simd/pair_kernels.hpp"
#include "../src/simd/pick_kernels.hpp"
#include "../src/simd/row_kernels.hpp"
#include "../src/simd/update_kernels.hpp"
#include "../src/simd/weighted_kernels.hpp"

struct Kernels {
  const gnnscale::RowKernels* rows;
  const gnnscale::PickKernels* pick;
  const gnnscale::ActivationKernels* activation;
  const gnnscale::LaborKernels* labor;
  const gnnscale::WeightedKernels* weighted;
  const gnnscale::UpdateKernels* update;
  const gnnscale::MaximaKernels* maxima;
  const gnnscale::PairKernels* pairs;
};

inline std::vector<Kernels> available_kernels() {
  std::vector<Kernels> kernels{
      {&gnnscale::baseline::row_kernels, &gnnscale::baseline::pick_kernels,
       &gnnscale::baseline::activation_kernels, &gnnscale::baseline::labor_kernels,
       &gnnscale::baseline::weighted_kernels, &gnnscale::baseline::update_kernels,
       &gnnscale::baseline::maxima_kernels, &gnnscale::baseline::pair_kernels}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("x86-64-v3")) {
    kernels.push_back({&gnnscale::v3::row_kernels, &gnnscale::v3::pick_kernels,
                       &gnnscale::v3::activation_kernels, &gnnscale::v3::labor_kernels,
                       &gnnscale::v3::weighted_kernels, &gnnscale::v3::update_kernels,
                       &gnnscale::v3::maxima_kernels, &gnnscale::v3::pair_kernels});
  }
  if (__builtin_cpu_supports("x86-64-v4")) {
    kernels.push_back({&gnnscale::v4::row_kernels, &gnnscale::v4::pick_kernels,
                       &gnnscale::v4::activation_kernels, &gnnscale::v4::labor_kernels,
                       &gnnscale::v4::weighted_kernels, &gnnscale::v4::update_kernels,
                       &gnnscale::v4::maxima_kernels, &gnnscale::v4::pair_kernels});
  }
#endif
  return kernels;
}
