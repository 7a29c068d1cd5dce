#include "gnnscale/elementwise.hpp"

#include <algorithm>
#include <cmath>

#include "argument_checks.hpp"
#include "gnnscale/attention.hpp"
#include "gnnscale/random.hpp"

namespace gnnscale {
namespace {

// Dropout probabilities are multiples of 1/65536; at least one multiple keeps an element.
constexpr double kProbabilities = 65536;

double drop_out(const py::object& x, const py::object& vertices, const py::object& p,
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
}

py::object drop_out_backward(const py::object& y, const py::object& grad, const py::object& scale,
                             const py::object& num_threads) {
  const Elements from = elements(y, "y"), gradient = elements(grad, "grad");
  check_size("grad", gradient.size, from.size);
  if (gradient.dtype != from.dtype) refuse_type("grad", "another type", "the type of y");
  const auto factor = static_cast<float>(real(scale, "scale", 0, kProbabilities));
  const int threads = thread_count(num_threads);
  const auto [out, data] = new_tensor_like(grad, "grad");
  {
    NoGil released;
    relu_dropout_backward(from.data, gradient.data, data, from.dtype, from.size, factor, threads);
  }
  return out;
}

py::object softmax(const py::object& indptr, const py::object& scores, const py::object& bias,
                   const py::object& num_threads) {
  const auto offsets = vector<int64_t>(indptr, "indptr");
  const int64_t num_dst = num_lists(offsets, "destinations");
  int64_t heads = kAnySize;
  const auto from = float_table(scores, "scores", kAnySize, &heads);
  const auto importance = optional_vector<float>(bias, "bias", from.size);
  const int threads = thread_count(num_threads);
  const auto [out, data] = new_tensor_like(scores, "scores");
  {
    NoGil released;
    check_offsets(offsets.data, num_dst, from.size, "indptr", threads);
    edge_softmax(offsets.data, num_dst, heads, from.data, importance.data,
                 static_cast<float*>(data), threads);
  }
  return out;
}

py::object softmax_backward(const py::object& indptr, const py::object& alpha,
                            const py::object& grad, const py::object& num_threads) {
  const auto offsets = vector<int64_t>(indptr, "indptr");
  const int64_t num_dst = num_lists(offsets, "destinations");
  int64_t heads = kAnySize;
  const auto from = float_table(alpha, "alpha", kAnySize, &heads);
  const auto gradient = float_table(grad, "grad", from.size, &heads);
  const int threads = thread_count(num_threads);
  const auto [out, data] = new_tensor_like(alpha, "alpha");
  {
    NoGil released;
    check_offsets(offsets.data, num_dst, from.size, "indptr", threads);
    edge_softmax_backward(offsets.data, num_dst, heads, from.data, gradient.data,
                          static_cast<float*>(data), threads);
  }
  return out;
}

}  // namespace

void bind_elementwise(py::module_& m) {
  m.def("relu_dropout", &drop_out, "x"_a, "vertices"_a, py::kw_only(), "p"_a, "seed"_a, "step"_a,
        "layer"_a, "num_threads"_a);
  m.def("relu_dropout_backward", naming<1>("grad", &drop_out_backward), "y"_a, "grad"_a,
        py::kw_only(), "scale"_a, "num_threads"_a);
  m.def("edge_softmax", naming<1>("scores", &softmax), "indptr"_a, "scores"_a, py::kw_only(),
        "bias"_a, "num_threads"_a);
  m.def("edge_softmax_backward", naming<1>("alpha", &softmax_backward), "indptr"_a, "alpha"_a,
        "grad"_a, py::kw_only(), "num_threads"_a);
}

}  // namespace gnnscale
