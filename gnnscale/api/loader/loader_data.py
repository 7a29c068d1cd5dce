"""What a loader reads of a Graph, a PyG ``Data`` or a DGL graph: topology, and rows of data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.core import Array, GraphError, Int64Array
from gnnscale.data import from_arrays
from gnnscale.data.array_inputs import is_from, other_graph, refuse_masked
from gnnscale.features import read_from_disk
from gnnscale.graph import Graph

#: Row types that the native gather hands out as they are.
_GATHERED = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
#: DGL's customary names, and PyG's.
_PYG_NAMES = {"feat": "x", "label": "y"}
_PYG_EDGE_NAMES = {"weight": "edge_weight", "feat": "edge_attr"}


def allocate(shape: tuple[int, ...], dtype: torch.dtype, *, pinned: bool) -> torch.Tensor:
    """Return a tensor that is not initialised, in page-locked memory if ``pinned``."""
    if pinned:
        return torch.empty(shape, dtype=dtype, pin_memory=True)
    return ops.empty(shape, dtype)


@dataclass(frozen=True, kw_only=True)
class AlignedRows:
    """A row of some kind for every vertex, or for every edge."""

    array: Array  #: ``[number of them, ...]``; bfloat16 as its bits
    #: name of the element type in ``array``, if it is a matrix that the native gather reads; None
    #: for anything else
    storage: str | None
    dtype: torch.dtype  #: type of the rows that ``take`` returns
    from_disk: bool = False  #: whether most rows are not in memory when they are read
    #: columns of a row that ``take`` returns; None for those of ``array``
    width: int | None = None

    @classmethod
    def of(cls, name: str, values: Any, count: int, *, kind: str = "vertex") -> AlignedRows:
        """Wrap the user's tensor or array ``values``, which is not copied if contiguous.

        Args:
            values: ``[count, ...]``.
            kind: ``vertex`` or ``edge``.

        Raises:
            GraphError: it is neither, not on the CPU, or does not have a row for each of them.
        """
        plural = {"vertex": "vertices", "edge": "edges"}[kind]
        refuse_masked(values, f"{kind} attribute {name!r}")
        if isinstance(values, np.ndarray):
            values = torch.from_numpy(values)
        if not isinstance(values, torch.Tensor):
            raise GraphError(
                f"{kind} attribute {name!r} is a {type(values).__name__}, "
                "allowed are tensors and arrays"
            )
        if values.device.type != "cpu":
            raise GraphError(f"{kind} attribute {name!r} is on {values.device}, allowed is cpu")
        if values.ndim == 0 or len(values) != count:
            raise GraphError(
                f"{kind} attribute {name!r} is {list(values.shape)}, "
                f"allowed is a row for each of {count} {plural}"
            )
        values = values.detach().contiguous()
        bits = values.view(torch.int16) if values.dtype == torch.bfloat16 else values
        storage = _GATHERED.get(values.dtype) if values.ndim == 2 else None
        return cls(array=bits.numpy(), storage=storage, dtype=values.dtype)

    def take(self, ids: Int64Array, *, num_threads: int, pinned: bool) -> torch.Tensor:
        """Return rows ``ids``, ``[len(ids), ...]`` of type ``dtype``."""
        shape = self.array.shape[1:] if self.width is None else (self.width,)
        out = allocate((len(ids), *shape), self.dtype, pinned=pinned)
        if self.storage is not None:
            gather = ops.gather_from_disk if self.from_disk else ops.gather
            return gather((self.array, self.storage), ids, out=out, num_threads=num_threads)
        bits = out.view(torch.int16) if self.dtype == torch.bfloat16 else out
        # Ids are in range; any mode but "raise" lets NumPy write to `out` directly.
        np.take(self.array, ids, axis=0, out=bits.numpy(), mode="clip")
        return out


@dataclass(frozen=True, kw_only=True)
class LoaderData:
    """The parts of the user's graph."""

    graph: Graph  #: the topology
    #: per-vertex data by PyG's names: features ``x``, labels ``y``, and others by their own
    rows: dict[str, AlignedRows]
    #: per-edge data by PyG's names, weights ``edge_weight`` and others by their own, in the user's
    #: order of edges
    edge_rows: dict[str, AlignedRows] = field(default_factory=dict)
    #: whether the graph's own weights are data that batches carry; else they are ``edge_rows``, or
    #: none
    hands_weights: bool = False
    #: the graph's own rows of features of edges, which batches carry as ``edge_attr``; None if it
    #: has no such, or they are among ``edge_rows``
    edge_features: AlignedRows | None = None
    #: a PyG graph's other attributes, which every batch repeats
    constants: dict[str, Any] = field(default_factory=dict)
    id_dtype: torch.dtype = torch.int64  #: the type of ids in a DGL graph


@dataclass(frozen=True, kw_only=True)
class EdgeUse:
    """What a loader needs of the edges of a user's graph."""

    weight: str | None = None  #: the attribute that neighbours are drawn by; None if all are alike
    numbered: bool = False  #: whether batches have the numbers of edges, even if edges have no data


def read_data(data: Any, use: EdgeUse) -> LoaderData:
    """Take apart a Graph, a homogeneous PyG ``Data`` or a homogeneous DGL graph.

    Rows keep their type, but a Graph's float16, uint8, int8 and int4 features, which are ways of
    storing, become float32.

    Raises:
        GraphError: it is none of these, or carries what a loader cannot hand on; or its edges have
            no such weights.
    """
    if isinstance(data, Graph):
        return _read_graph(data, use)
    if is_from(data, "torch_geometric", "data.Data"):
        return _read_pyg(data, use)
    if is_from(data, "dgl", "DGLGraph") and data.is_homogeneous:
        return _read_dgl(data, use)
    raise GraphError(
        f"data is a {other_graph(data)}; allowed are gnnscale.Graph and homogeneous graphs of "
        "torch_geometric (Data) and DGL"
    )


def _read_graph(graph: Graph, use: EdgeUse) -> LoaderData:
    weighted = graph.edge_weights is not None
    if use.weight is not None and not (weighted and use.weight == "edge_weight"):
        has = "'edge_weight'" if weighted else "none: its edges have no weights"
        raise GraphError(f"weights {use.weight!r} of {graph.name}: allowed is {has}")
    dtype = torch.bfloat16 if graph.feature_dtype == "bfloat16" else torch.float32
    label_dtype = torch.uint8 if graph.multilabel else torch.int64
    if graph.regression:
        label_dtype = torch.float32
    rows = {
        "x": AlignedRows(
            array=graph.features,
            storage=graph.feature_dtype,
            dtype=dtype,
            from_disk=read_from_disk(graph),
            width=graph.num_features,
        ),
        "y": AlignedRows(array=graph.labels, storage=None, dtype=label_dtype),
    }
    features = None
    if graph.edge_features is not None:
        array = graph.edge_features
        features = AlignedRows(array=array, storage="float32", dtype=torch.float32)
    return LoaderData(graph=graph, rows=rows, hands_weights=weighted, edge_features=features)


def _topology(
    ends: tuple[torch.Tensor, torch.Tensor],
    num_vertices: int,
    edge_rows: dict[str, AlignedRows],
    use: EdgeUse,
) -> Graph:
    weights = None
    if use.weight is not None:
        if use.weight not in edge_rows:
            known = ", ".join(map(repr, edge_rows)) or "none: its edges have no data"
            raise GraphError(f"weights {use.weight!r} of data: allowed is {known}")
        rows = edge_rows[use.weight]
        weights = rows.take(np.arange(len(ends[0])), num_threads=1, pinned=False).float()
        weights = weights[:, 0] if weights.ndim == 2 and weights.shape[1] == 1 else weights
    return from_arrays(
        (ends[0].numpy(), ends[1].numpy()),
        np.empty((num_vertices, 0), np.float32),
        name="data",
        edge_weights=weights,
        number_edges=use.numbered or bool(edge_rows),
    )


def _read_pyg(data: Any, use: EdgeUse) -> LoaderData:
    fields = data.to_dict()
    edge_index = fields.pop("edge_index", None)
    if edge_index is None:
        raise GraphError("data has no edge_index")
    num_vertices, num_edges = data.num_nodes, edge_index.shape[1]
    fields.pop("num_nodes", None)
    edge_rows = {
        name: AlignedRows.of(name, values, num_edges, kind="edge")
        for name, values in fields.items()
        if data.is_edge_attr(name) and name != "e_id"  # which batches set themselves
    }
    rows = {
        name: AlignedRows.of(name, values, num_vertices)
        for name, values in fields.items()
        if data.is_node_attr(name)
    }
    known = (*rows, *edge_rows, "e_id")
    constants = {name: value for name, value in fields.items() if name not in known}
    graph = _topology((edge_index[0], edge_index[1]), num_vertices, edge_rows, use)
    return LoaderData(graph=graph, rows=rows, edge_rows=edge_rows, constants=constants)


def _read_dgl(graph: Any, use: EdgeUse) -> LoaderData:
    num_vertices, num_edges = graph.num_nodes(), graph.num_edges()
    rows = {
        _PYG_NAMES.get(name, name): AlignedRows.of(name, values, num_vertices)
        for name, values in graph.ndata.items()
        if name != "_ID"  # dgl.NID, which batches set themselves
    }
    edge_rows = {
        _PYG_EDGE_NAMES.get(name, name): AlignedRows.of(name, values, num_edges, kind="edge")
        for name, values in graph.edata.items()
        if name != "_ID"  # dgl.EID
    }
    if use.weight is not None:
        use = replace(use, weight=_PYG_EDGE_NAMES.get(use.weight, use.weight))
    # A graph that is kept by destination alone does not list its edges by their numbers.
    src, dst, numbers = graph.edges(form="all", order=None)
    by_number = numbers.argsort()
    ends = (src[by_number], dst[by_number])
    topology = _topology(ends, num_vertices, edge_rows, use)
    return LoaderData(graph=topology, rows=rows, edge_rows=edge_rows, id_dtype=graph.idtype)
