// Selection of the instruction set of kernels that are compiled several times.
#pragma once

namespace gnnscale {

// x86-64 micro-architecture levels: v3 has AVX2, v4 AVX-512.
enum class Isa { baseline, v3, v4 };

// Returns the highest level that this processor supports.
Isa supported_isa();

// Returns the level in use: at most the one named by GNNSCALE_SIMD_LEVEL, which is read once.
// Throws std::invalid_argument for an unknown name.
Isa isa();

// Returns "baseline", "v3" or "v4".
const char* name_of(Isa isa);

}  // namespace gnnscale

// NAME in the namespace of the instruction set in use.
#ifdef GNNSCALE_X86
#define GNNSCALE_FOR_ISA(NAME)                                 \
  (gnnscale::isa() == gnnscale::Isa::v4   ? gnnscale::v4::NAME \
   : gnnscale::isa() == gnnscale::Isa::v3 ? gnnscale::v3::NAME \
                                          : gnnscale::baseline::NAME)
#else
#define GNNSCALE_FOR_ISA(NAME) gnnscale::baseline::NAME
#endif
