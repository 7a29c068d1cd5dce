#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "gnnscale/simd.hpp"

namespace gnnscale {

Isa supported_isa() {
#ifdef GNNSCALE_X86
  return __builtin_cpu_supports("x86-64-v4")   ? Isa::v4
         : __builtin_cpu_supports("x86-64-v3") ? Isa::v3
                                               : Isa::baseline;
#else
  return Isa::baseline;
#endif
}

const char* name_of(Isa isa) { return isa == Isa::v4 ? "v4" : isa == Isa::v3 ? "v3" : "baseline"; }

namespace {

Isa limited_isa() {
  const char* requested = std::getenv("GNNSCALE_SIMD_LEVEL");
  if (requested == nullptr || *requested == '\0') return supported_isa();
  for (const Isa level : {Isa::baseline, Isa::v3, Isa::v4}) {
    if (std::string_view(requested) == name_of(level)) return std::min(level, supported_isa());
  }
  throw std::invalid_argument("GNNSCALE_SIMD_LEVEL=" + std::string(requested) +
                              ": must be baseline, v3 or v4");
}

}  // namespace

Isa isa() {
  static const Isa level = limited_isa();
  return level;
}

}  // namespace gnnscale
