// NumPy arrays in, NumPy arrays out, the GIL released in between. Shapes and types are checked by
// gnnscale/ops.py, the only importer.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>

#include "gnnscale/attention.hpp"
#include "gnnscale/csc.hpp"
#include "gnnscale/elementwise.hpp"
#include "gnnscale/generate.hpp"
#include "gnnscale/rows.hpp"
#include "gnnscale/sampler.hpp"

namespace py = pybind11;
using namespace gnnscale;

namespace {

template <typename T>
using In = py::array_t<T, py::array::c_style>;
template <typename T>
using Optional = std::optional<In<T>>;
using NoGil = py::gil_scoped_release;

// Hands a native array to NumPy without copying.
template <typename T>
py::array_t<T> to_numpy(Array<T>&& array) {
  T* data = array.data.release();
  py::capsule owner(data, &return_block);
  return py::array_t<T>(array.size, data, owner);
}

template <typename T>
const T* data_or_null(const Optional<T>& array) {
  return array ? array->data() : nullptr;
}

int64_t stride_of(const py::array& array) { return array.strides(0) / array.itemsize(); }

Rows rows(const py::array& array, int dtype) {
  return {array.data(), static_cast<DType>(dtype), array.shape(1), stride_of(array)};
}

MutableRows mutable_rows(py::array& array, int dtype) {
  return {array.mutable_data(), static_cast<DType>(dtype), array.shape(1), stride_of(array)};
}

RowIds row_ids(const std::optional<py::array>& ids) {
  if (!ids) return {};
  return {ids->data(), ids->itemsize() == 8};
}

template <typename Vertex>
py::tuple batch_to_python(SampledBatch<Vertex>&& batch) {
  py::list blocks;
  for (BlockArrays& block : batch.blocks) {
    py::object importance = py::none();
    if (block.importance.data) importance = to_numpy(std::move(block.importance));
    blocks.append(py::make_tuple(to_numpy(std::move(block.indptr)),
                                 to_numpy(std::move(block.indices)), block.num_src, importance));
  }
  py::object edge_vertices = py::none();
  if (batch.edge_vertices.data) edge_vertices = to_numpy(std::move(batch.edge_vertices));
  return py::make_tuple(to_numpy(std::move(batch.input_vertices)), blocks, edge_vertices);
}

// Keeps the topology's arrays alive for as long as the samplers that read them.
template <typename Vertex>
struct BoundSampler {
  In<int64_t> indptr;
  In<Vertex> indices;
  SamplerPool<Vertex> pool;

  BoundSampler(In<int64_t> p, In<Vertex> i)
      : indptr(p), indices(i), pool({p.size() - 1, p.data(), i.data()}) {}
};

template <typename Vertex>
void bind_sampler(py::module_& m, const char* name) {
  using Bound = BoundSampler<Vertex>;
  py::class_<Bound>(m, name)
      .def(py::init<In<int64_t>, In<Vertex>>(), py::arg().noconvert(), py::arg().noconvert())
      .def("sample_neighbors",
           [](Bound& self, const In<Vertex>& seeds, const std::vector<int64_t>& fanouts,
              bool replace, uint64_t seed, uint64_t step, int num_threads, bool only_new) {
             SampledBatch<Vertex> batch = [&] {
               NoGil released;
               return self.pool.with_sampler([&](Sampler<Vertex>& sampler) {
                 return sampler.sample_neighbors(seeds.data(), seeds.size(), fanouts, replace, seed,
                                                 step, num_threads, only_new);
               });
             }();
             return batch_to_python(std::move(batch));
           })
      .def("sample_layers", [](Bound& self, const In<Vertex>& seeds,
                               const std::vector<int64_t>& sizes, uint64_t seed, uint64_t step) {
        SampledBatch<Vertex> batch = [&] {
          NoGil released;
          return self.pool.with_sampler([&](Sampler<Vertex>& sampler) {
            return sampler.sample_layers(seeds.data(), seeds.size(), sizes, seed, step);
          });
        }();
        return batch_to_python(std::move(batch));
      });
}

template <typename Vertex>
void bind_csc(py::module_& m) {
  m.def(
      "count_in_degrees",
      [](const In<Vertex>& dst, In<int64_t> counts) {
        int64_t* out = counts.mutable_data();
        NoGil released;
        count_in_degrees(dst.data(), dst.size(), out);
      },
      py::arg().noconvert(), py::arg().noconvert());
  m.def(
      "csc_fill",
      [](const In<Vertex>& src, const In<Vertex>& dst, int64_t first, int64_t last,
         In<int64_t> cursor, In<Vertex> out) {
        int64_t* at = cursor.mutable_data();
        Vertex* to = out.mutable_data();
        NoGil released;
        csc_fill(src.data(), dst.data(), dst.size(), first, last, at, to);
      },
      py::arg().noconvert(), py::arg().noconvert(), py::arg(), py::arg(), py::arg().noconvert(),
      py::arg().noconvert());
  m.def(
      "csc_sort",
      [](const In<int64_t>& indptr, In<Vertex> indices, bool drop_duplicates, int num_threads) {
        py::array_t<int64_t> new_indptr(indptr.size());
        Vertex* lists = indices.mutable_data();
        int64_t* out = new_indptr.mutable_data();
        {
          NoGil released;
          csc_sort(indptr.data(), indptr.size() - 1, lists, drop_duplicates, out, num_threads);
        }
        return new_indptr;
      },
      py::arg().noconvert(), py::arg().noconvert(), py::arg(), py::arg());
}

void bind_memory(py::module_& m) {
  m.def("empty", [](int64_t num_bytes) { return to_numpy(Array<uint8_t>(num_bytes)); });
  m.def("keep_freed_memory", &keep_freed_memory);
}

void bind_rows(py::module_& m) {
  m.def("simd_level", &simd_level);
  m.def("gather", [](const py::array& x, int x_dtype, const py::array& ids, py::array out,
                     int out_dtype, int num_threads) {
    const Gather task{rows(x, x_dtype),
                      {ids.data(), ids.itemsize() == 8},
                      ids.size(),
                      mutable_rows(out, out_dtype)};
    NoGil released;
    gather(task, num_threads);
  });
  m.def("read_rows", [](int fd, const py::array& ids, py::array out, int num_threads) {
    void* to = out.mutable_data();
    const int64_t row_bytes = out.shape(1) * out.itemsize();
    const int error = [&] {
      NoGil released;
      const RowIds rows{ids.data(), ids.itemsize() == 8};
      return read_rows(fd, rows, ids.size(), row_bytes, to, num_threads);
    }();
    if (error != 0) {
      errno = error;
      PyErr_SetFromErrno(PyExc_OSError);
      throw py::error_already_set();
    }
  });
  m.def("aggregate",
        [](const py::array& x, int x_dtype, const std::optional<py::array>& ids,
           const In<int64_t>& indptr, const In<int32_t>& indices,
           const std::optional<py::array>& weights, bool ids_per_edge,
           const Optional<float>& dst_scale, const std::optional<py::array>& self, int self_dtype,
           const std::optional<py::array>& self_ids, const Optional<float>& self_scale,
           int64_t num_self, const std::optional<py::array>& gate, int gate_dtype, py::array out,
           int out_dtype, int num_threads) {
          Aggregate task{rows(x, x_dtype), row_ids(ids), indptr.data(), indices.data(),
                         indptr.size() - 1};
          if (weights) {
            task.weights = static_cast<const float*>(weights->data());
            task.weight_stride = stride_of(*weights);
          }
          task.ids_per_edge = ids_per_edge;
          task.dst_scale = data_or_null(dst_scale);
          if (self) task.self = rows(*self, self_dtype);
          task.self_ids = row_ids(self_ids);
          task.self_scale = data_or_null(self_scale);
          task.num_self = num_self;
          if (gate) task.gate = rows(*gate, gate_dtype);
          task.out = mutable_rows(out, out_dtype);
          NoGil released;
          aggregate(task, num_threads);
        });
  m.def("edge_dot", [](const py::array& a, const py::array& x, const In<int64_t>& indptr,
                       const In<int32_t>& indices, py::array out, int num_threads) {
    float* to = static_cast<float*>(out.mutable_data());
    const int64_t stride = stride_of(out);
    NoGil released;
    edge_dot(rows(a, 0), rows(x, 0), indptr.data(), indices.data(), indptr.size() - 1, to, stride,
             num_threads);
  });
  m.def(
      "expand_edges",
      [](const In<int64_t>& indptr, const In<int32_t>& indices, int64_t first_dst, In<int64_t> src,
         In<int64_t> dst) {
        int64_t* to_src = src.mutable_data();
        int64_t* to_dst = dst.mutable_data();
        NoGil released;
        expand_edges(indptr.data(), indices.data(), indptr.size() - 1, first_dst, to_src, to_dst);
      },
      py::arg(), py::arg(), py::arg(), py::arg().noconvert(), py::arg().noconvert());
  m.def("transpose_block", [](const In<int64_t>& indptr, const In<int32_t>& indices,
                              int64_t num_src, const std::optional<py::array>& weights,
                              const Optional<float>& dst_scale) {
    Array<int64_t> out_indptr(num_src + 1);
    Array<int32_t> out_indices(indices.size());
    Array<float> out_weights(indices.size());
    const BlockTranspose block{indptr.data(),
                               indices.data(),
                               indptr.size() - 1,
                               num_src,
                               weights ? static_cast<const float*>(weights->data()) : nullptr,
                               weights ? stride_of(*weights) : 1,
                               data_or_null(dst_scale)};
    {
      NoGil released;
      transpose_block(block, out_indptr.data.get(), out_indices.data.get(), out_weights.data.get());
    }
    return py::make_tuple(to_numpy(std::move(out_indptr)), to_numpy(std::move(out_indices)),
                          to_numpy(std::move(out_weights)));
  });
}

void bind_elementwise(py::module_& m) {
  m.def("relu_dropout",
        [](py::array x, int dtype, uint64_t key, uint32_t drop, float scale, int num_threads) {
          void* data = x.mutable_data();
          NoGil released;
          relu_dropout(data, static_cast<DType>(dtype), x.size(), key, drop, scale, num_threads);
        });
  m.def("relu_dropout_backward", [](const py::array& y, const py::array& grad, py::array out,
                                    int dtype, float scale, int num_threads) {
    void* data = out.mutable_data();
    NoGil released;
    relu_dropout_backward(y.data(), grad.data(), data, static_cast<DType>(dtype), y.size(), scale,
                          num_threads);
  });
  m.def("edge_softmax", [](const In<int64_t>& indptr, const In<float>& scores,
                           const Optional<float>& bias, In<float> alpha, int num_threads) {
    float* out = alpha.mutable_data();
    NoGil released;
    edge_softmax(indptr.data(), indptr.size() - 1, scores.shape(1), scores.data(),
                 data_or_null(bias), out, num_threads);
  });
  m.def("edge_softmax_backward", [](const In<int64_t>& indptr, const In<float>& alpha,
                                    const In<float>& grad, In<float> out, int num_threads) {
    float* to = out.mutable_data();
    NoGil released;
    edge_softmax_backward(indptr.data(), indptr.size() - 1, alpha.shape(1), alpha.data(),
                          grad.data(), to, num_threads);
  });
}

void bind_generators(py::module_& m) {
  const auto to_pair = [](EdgeList&& edges) {
    return py::make_tuple(to_numpy(std::move(edges.src)), to_numpy(std::move(edges.dst)));
  };
  m.def("rmat_edges", [to_pair](int64_t num_vertices, int64_t num_edges, double a, double b,
                                double c, uint64_t seed, int num_threads) {
    EdgeList edges = [&] {
      NoGil released;
      return rmat_edges(num_vertices, num_edges, a, b, c, seed, num_threads);
    }();
    return to_pair(std::move(edges));
  });
  m.def("planted_partition_edges", [to_pair](const In<int32_t>& community, const In<float>& weight,
                                             int64_t num_edges, double within, uint64_t seed) {
    EdgeList edges = [&] {
      NoGil released;
      return planted_partition_edges(community.data(), weight.data(), community.size(), num_edges,
                                     within, seed);
    }();
    return to_pair(std::move(edges));
  });
}

}  // namespace

PYBIND11_MODULE(_native, m, py::mod_gil_not_used()) {
  bind_sampler<int32_t>(m, "Sampler32");
  bind_sampler<int64_t>(m, "Sampler64");
  bind_csc<int32_t>(m);
  bind_csc<int64_t>(m);
  bind_memory(m);
  bind_rows(m);
  bind_elementwise(m);
  bind_generators(m);
}
