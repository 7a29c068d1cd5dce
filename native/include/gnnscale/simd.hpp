// The instruction set that kernels compiled several times are chosen for.
#pragma once

namespace gnnscale {

// x86-64 micro-architecture levels: v3 has AVX2, v4 AVX-512.
enum class Isa { baseline, v3, v4 };

// The highest level that this processor has.
Isa supported_isa();

// The level in use: at most what GNNSCALE_SIMD_LEVEL names, which is read once. A name that is none
// of the three throws std::invalid_argument.
Isa isa();

// "baseline", "v3" or "v4".
const char* name_of(Isa isa);

}  // namespace gnnscale

// NAME of the namespace of the instruction set in use.
#ifdef GNNSCALE_X86
#define GNNSCALE_FOR_ISA(NAME)                                 \
  (gnnscale::isa() == gnnscale::Isa::v4   ? gnnscale::v4::NAME \
   : gnnscale::isa() == gnnscale::Isa::v3 ? gnnscale::v3::NAME \
                                          : gnnscale::baseline::NAME)
#else
#define GNNSCALE_FOR_ISA(NAME) gnnscale::baseline::NAME
#endif
