// Rows of a mapped file, asked for before they are read.
#pragma once

#include <cstdint>

#include "gnnscale/rows.hpp"

namespace gnnscale {

// Asks the system to read the pages of rows `ids` of `x`, and does not wait for them. Pages that
// are in memory cost a look, and so does memory that is no file's. Rows one after the other are
// asked for at once. A thread waits where the disk's queue is full.
void read_ahead(const Rows& x, const RowIds& ids, int64_t num_rows, int num_threads);

}  // namespace gnnscale
