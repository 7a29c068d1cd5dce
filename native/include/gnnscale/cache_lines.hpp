// What the processor's caches hold of an array.
#pragma once

#include <cstddef>

namespace gnnscale {

// Removes an array from all caches of the processor, so that the next read is one of memory.
// Returns whether the processor has an instruction for that which programs may use.
bool flush_cache_lines(const void* data, size_t num_bytes);

}  // namespace gnnscale
