#include "gnnscale/read_ahead.hpp"

#include "border.hpp"

namespace gnnscale {

void bind_read_ahead(py::module_& m) {
  m.def("read_ahead",
        [](const py::object& x, const py::object& row_ids, const py::object& num_threads) {
          const Matrix from = matrix(x, "x");
          const Ids rows = ids(row_ids, "ids");
          const int threads = thread_count(num_threads);
          NoGil released;
          rows.check(rows.size, from.num_rows, "ids", threads);
          read_ahead(from.rows, rows.ids, rows.size, threads);
        });
}

}  // namespace gnnscale
