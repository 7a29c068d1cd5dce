// Read-ahead of rows in a mapped file.
#pragma once

#include <cstdint>

#include "gnnscale/rows.hpp"

namespace gnnscale {

// Asks the kernel to read the pages of rows `ids` of `x`, without waiting for them. Pages in
// memory, and memory without a file, cost only the check. Consecutive rows make one request. A
// thread blocks while the disk's queue is full.
void read_ahead(const Rows& x, const RowIds& ids, int64_t num_rows, int num_threads);

}  // namespace gnnscale
