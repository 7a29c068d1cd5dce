// Control of the processor's caches.
#pragma once

#include <cstddef>

namespace gnnscale {

// Evicts an array from all processor caches, so that the next read comes from memory. Returns
// whether the processor has an unprivileged instruction for the eviction.
bool flush_cache_lines(const void* data, size_t num_bytes);

}  // namespace gnnscale
