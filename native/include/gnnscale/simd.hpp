// The instruction set that kernels compiled several times are chosen for.
#pragma once

namespace gnnscale {

// x86-64 micro-architecture levels: v3 has AVX2, v4 AVX-512.
enum class Isa { baseline, v3, v4 };

inline Isa isa() {
#ifdef GNNSCALE_X86
  static const Isa found = __builtin_cpu_supports("x86-64-v4")   ? Isa::v4
                           : __builtin_cpu_supports("x86-64-v3") ? Isa::v3
                                                                 : Isa::baseline;
  return found;
#else
  return Isa::baseline;
#endif
}

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
