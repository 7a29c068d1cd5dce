#include "gnnscale/elementwise.hpp"

#include <algorithm>
#include <cmath>

#include "border.hpp"
#include "gnnscale/attention.hpp"
#include "gnnscale/random.hpp"

namespace gnnscale {
namespace {

// A probability is a whole number of 1/65536; an element is kept with one of them at least.
constexpr double kProbabilities = 65536;

void bind_activation(py::module_& m) {
  m.def("relu_dropout", [](const py::object& x, const py::object& vertices, const py::object& p,
                           const py::object& seed, const py::object& step, const py::object& layer,
                           const py::object& num_threads) {
    const MutableMatrix values = mutable_matrix(x, "x");
    if (values.rows.stride != values.rows.length && values.rows.length != 0) {
      refuse_value("x", "rows with gaps", "contiguous arrays");
    }
    const Ids streams = ids(vertices, "vertices");
    check_size("vertices", streams.size, values.num_rows);
    const double drop =
        std::min(std::nearbyint(real(p, "p", 0, 1) * kProbabilities), kProbabilities - 1);
    const double scale = kProbabilities / (kProbabilities - drop);
    const uint64_t run_seed = word(seed, "seed"), at = word(step, "step");
    const uint64_t key = stream_key(Stream::dropout, run_seed, at, word(layer, "layer"));
    const int threads = thread_count(num_threads);
    NoGil released;
    relu_dropout({values.rows, streams.ids, values.num_rows, key, static_cast<uint32_t>(drop),
                  static_cast<float>(scale)},
                 threads);
    return scale;
  });
  m.def("relu_dropout_backward",
        [](const py::object& y, const py::object& grad, const py::object& out,
           const py::object& scale, const py::object& num_threads) {
          const Elements from = elements(y, "y"), gradient = elements(grad, "grad");
          const Elements to = mutable_elements(out, "out");
          check_size("grad", gradient.size, from.size);
          check_size("out", to.size, from.size);
          if (gradient.dtype != from.dtype) refuse_type("grad", "another type", "the type of y");
          if (to.dtype != from.dtype) refuse_type("out", "another type", "the type of y");
          const auto factor = static_cast<float>(real(scale, "scale", 0, kProbabilities));
          const int threads = thread_count(num_threads);
          NoGil released;
          relu_dropout_backward(from.data, gradient.data, to.data, from.dtype, from.size, factor,
                                threads);
        });
}

void bind_softmax(py::module_& m) {
  m.def("edge_softmax",
        [](const py::object& indptr, const py::object& scores, const py::object& bias,
           const py::object& alpha, const py::object& num_threads) {
          const auto offsets = vector<int64_t>(indptr, "indptr");
          if (offsets.size < 1)
            refuse_value("indptr", "no entry", "one more entry than destinations");
          int64_t heads = kAnySize;
          const auto from = table(scores, "scores", kAnySize, &heads);
          const auto importance = optional_vector<float>(bias, "bias", from.size);
          const auto to = mutable_table(alpha, "out", from.size, &heads);
          const int threads = thread_count(num_threads);
          NoGil released;
          check_offsets(offsets.data, offsets.size - 1, from.size, "indptr", threads);
          edge_softmax(offsets.data, offsets.size - 1, heads, from.data, importance.data, to.data,
                       threads);
        });
  m.def("edge_softmax_backward",
        [](const py::object& indptr, const py::object& alpha, const py::object& grad,
           const py::object& out, const py::object& num_threads) {
          const auto offsets = vector<int64_t>(indptr, "indptr");
          if (offsets.size < 1)
            refuse_value("indptr", "no entry", "one more entry than destinations");
          int64_t heads = kAnySize;
          const auto from = table(alpha, "alpha", kAnySize, &heads);
          const auto gradient = table(grad, "grad", from.size, &heads);
          const auto to = mutable_table(out, "out", from.size, &heads);
          const int threads = thread_count(num_threads);
          NoGil released;
          check_offsets(offsets.data, offsets.size - 1, from.size, "indptr", threads);
          edge_softmax_backward(offsets.data, offsets.size - 1, heads, from.data, gradient.data,
                                to.data, threads);
        });
}

}  // namespace

void bind_elementwise(py::module_& m) {
  bind_activation(m);
  bind_softmax(m);
}

}  // namespace gnnscale
