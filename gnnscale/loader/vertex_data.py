"""What a neighbour loader reads of a Graph, a PyG ``Data`` or a DGL graph: topology and rows."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.dataset import from_arrays
from gnnscale.feature import read_from_disk
from gnnscale.graph import Graph, GraphError

__all__ = ["LoaderData", "VertexRows", "allocate", "read_data"]

#: Row types that the native gather hands out as they are.
_GATHERED = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
#: DGL's customary names, and PyG's.
_PYG_NAMES = {"feat": "x", "label": "y"}


def allocate(shape: tuple[int, ...], dtype: torch.dtype, *, pinned: bool) -> torch.Tensor:
    """Return a tensor that is not initialised, in page-locked memory if ``pinned``."""
    if pinned:
        return torch.empty(shape, dtype=dtype, pin_memory=True)
    return ops.empty(shape, dtype)


@dataclass(frozen=True, kw_only=True)
class VertexRows:
    """A row of some kind for every vertex.

    Attributes:
        array: ``[num_vertices, ...]``; bfloat16 as its bits.
        storage: name of the element type in ``array``, where it is a matrix that the native
            gather reads; None for anything else.
        dtype: type of the rows that ``take`` returns.
        from_disk: whether most rows are not in memory when they are read.
    """

    array: NDArray[Any]
    storage: str | None
    dtype: torch.dtype
    from_disk: bool = False

    @classmethod
    def of(cls, name: str, values: Any, num_vertices: int) -> VertexRows:
        """Wrap the user's tensor or array ``values``, which is not copied if contiguous.

        Raises:
            GraphError: it is neither, not on the CPU, or does not have a row for every vertex.
        """
        if isinstance(values, np.ndarray):
            values = torch.from_numpy(values)
        if not isinstance(values, torch.Tensor):
            raise GraphError(
                f"vertex attribute {name!r} is a {type(values).__name__}, "
                "allowed are tensors and arrays"
            )
        if values.device.type != "cpu":
            raise GraphError(f"vertex attribute {name!r} is on {values.device}, allowed is cpu")
        if values.ndim == 0 or len(values) != num_vertices:
            raise GraphError(
                f"vertex attribute {name!r} is {list(values.shape)}, "
                f"allowed is a row for each of {num_vertices} vertices"
            )
        values = values.detach().contiguous()
        bits = values.view(torch.int16) if values.dtype == torch.bfloat16 else values
        storage = _GATHERED.get(values.dtype) if values.ndim == 2 else None
        return cls(array=bits.numpy(), storage=storage, dtype=values.dtype)

    def take(self, ids: NDArray[np.int64], *, num_threads: int, pinned: bool) -> torch.Tensor:
        """Return rows ``ids``, ``[len(ids), ...]`` of type ``dtype``."""
        out = allocate((len(ids), *self.array.shape[1:]), self.dtype, pinned=pinned)
        if self.storage is not None:
            gather = ops.gather_from_disk if self.from_disk else ops.gather
            return gather((self.array, self.storage), ids, out=out, num_threads=num_threads)
        bits = out.view(torch.int16) if self.dtype == torch.bfloat16 else out
        # Ids are in range; any mode but "raise" lets NumPy write to `out` directly.
        np.take(self.array, ids, axis=0, out=bits.numpy(), mode="clip")
        return out


@dataclass(frozen=True, kw_only=True)
class LoaderData:
    """The parts of the user's graph.

    Attributes:
        graph: the topology.
        rows: per-vertex data by PyG's names: features ``x``, labels ``y``, and others by their own.
        constants: a PyG graph's other attributes, which every batch repeats.
        id_dtype: the type of ids in a DGL graph.
    """

    graph: Graph
    rows: dict[str, VertexRows]
    constants: dict[str, Any] = field(default_factory=dict)
    id_dtype: torch.dtype = torch.int64


def read_data(data: Any) -> LoaderData:
    """Take apart a Graph, a homogeneous PyG ``Data`` or a homogeneous DGL graph.

    Rows keep their type, but a Graph's float16 and uint8 features, which are ways of storing,
    become float32.

    Raises:
        GraphError: it is none of these, or carries what a loader cannot hand on.
    """
    if isinstance(data, Graph):
        return _read_graph(data)
    dgl, pyg = sys.modules.get("dgl"), sys.modules.get("torch_geometric")
    if pyg is not None and isinstance(data, pyg.data.Data):
        return _read_pyg(data)
    if dgl is not None and isinstance(data, dgl.DGLGraph) and data.is_homogeneous:
        return _read_dgl(data)
    raise GraphError(
        f"data is a {type(data).__name__}, allowed are gnnscale.Graph and homogeneous graphs of "
        "torch_geometric (Data) and DGL"
    )


def _read_graph(graph: Graph) -> LoaderData:
    dtype = torch.bfloat16 if graph.feature_dtype == "bfloat16" else torch.float32
    label_dtype = torch.uint8 if graph.multilabel else torch.int64
    if graph.regression:
        label_dtype = torch.float32
    rows = {
        "x": VertexRows(
            array=graph.features,
            storage=graph.feature_dtype,
            dtype=dtype,
            from_disk=read_from_disk(graph),
        ),
        "y": VertexRows(array=graph.labels, storage=None, dtype=label_dtype),
    }
    return LoaderData(graph=graph, rows=rows)


def _topology(src: torch.Tensor, dst: torch.Tensor, num_vertices: int) -> Graph:
    no_features = np.empty((num_vertices, 0), np.float32)
    return from_arrays((src.numpy(), dst.numpy()), no_features, name="data")


def _read_pyg(data: Any) -> LoaderData:
    fields = data.to_dict()
    edge_index = fields.pop("edge_index", None)
    if edge_index is None:
        raise GraphError("data has no edge_index")
    on_edges = [name for name in fields if data.is_edge_attr(name)]
    if on_edges:
        raise GraphError(
            f"data has edge attributes {', '.join(on_edges)}, allowed are none: "
            "batches carry no edge data; remove them if the model does not read them"
        )
    num_vertices = data.num_nodes
    fields.pop("num_nodes", None)
    rows = {
        name: VertexRows.of(name, values, num_vertices)
        for name, values in fields.items()
        if data.is_node_attr(name)
    }
    constants = {name: value for name, value in fields.items() if name not in rows}
    graph = _topology(edge_index[0], edge_index[1], num_vertices)
    return LoaderData(graph=graph, rows=rows, constants=constants)


def _read_dgl(graph: Any) -> LoaderData:
    num_vertices = graph.num_nodes()
    rows = {
        _PYG_NAMES.get(name, name): VertexRows.of(name, values, num_vertices)
        for name, values in graph.ndata.items()
        if name != "_ID"  # dgl.NID, which batches set themselves
    }
    src, dst = graph.edges()
    return LoaderData(graph=_topology(src, dst, num_vertices), rows=rows, id_dtype=graph.idtype)
