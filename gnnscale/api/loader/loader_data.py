"""Data of a loader: the topology and the attributes of a graph without types."""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.api.loader.trees import check_graph_times, time_fields
from gnnscale.core import Array, GraphError, Int64Array
from gnnscale.data import from_arrays
from gnnscale.data.array_inputs import describe_graph, is_instance_of, refuse_masked
from gnnscale.data.peers import pyg_fields
from gnnscale.data.validation import check_weights
from gnnscale.features import read_from_disk
from gnnscale.graph import Graph

#: Row types that the native gather supports.
_GATHERED = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
#: Bytes up to which rows move to large pages, which takes one to three seconds for 1 GiB. Batches
#: of a few epochs regain the time; a larger graph has more rows for each batch, and may not.
_MOVED_BYTES = 1 << 30
#: PyG's names of attributes of vertices and of edges, by DGL's customary names.
_PYG_NAMES = ({"feat": "x", "label": "y"}, {"weight": "edge_weight", "feat": "edge_attr"})
#: DGL's customary names, by PyG's.
_DGL_NAMES = ({"x": "feat", "y": "label"}, {"edge_weight": "weight", "edge_attr": "feat"})


def allocate(shape: tuple[int, ...], dtype: torch.dtype, *, pinned: bool) -> torch.Tensor:
    """Return an uninitialized tensor, in page-locked memory if ``pinned``."""
    if pinned:
        return torch.empty(shape, dtype=dtype, pin_memory=True)
    return ops.empty(shape, dtype)


@dataclass(frozen=True, kw_only=True)
class AlignedRows:
    """Attribute of a user's graph, with a row for every vertex or for every edge."""

    array: Array  #: ``[num_rows, ...]``; bfloat16 as int16 bits
    #: element type in ``array`` if the native gather can read it. None: NumPy reads it
    storage: str | None
    dtype: torch.dtype  #: type of the rows that ``take`` returns
    from_disk: bool = False  #: whether reads of rows mostly go to disk
    #: columns of a row that ``take`` returns. None: the columns of ``array``
    width: int | None = None

    @classmethod
    def wrap(cls, name: str, values: Any, count: int, *, kind: str = "vertex") -> "AlignedRows":
        """Wrap a user's tensor or array ``[count, ...]``, without a copy if it is contiguous.

        ``kind`` is ``vertex`` or ``edge``. GraphError, naming the attribute, for other values.
        """
        plural = {"vertex": "vertices", "edge": "edges"}[kind]
        refuse_masked(values, f"{kind} attribute {name!r}")
        if isinstance(values, np.ndarray):
            is_date = values.dtype.kind == "M"  # torch has no dates
            values = torch.from_numpy(values.view(np.int64) if is_date else values)
        if not isinstance(values, torch.Tensor):
            raise GraphError(
                f"{kind} attribute {name!r}: expected a tensor or array, "
                f"got {type(values).__name__}"
            )
        if values.device.type != "cpu":
            raise GraphError(f"{kind} attribute {name!r}: expected on cpu, got {values.device}")
        if values.ndim == 0 or len(values) != count:
            raise GraphError(
                f"{kind} attribute {name!r}: expected a row for each of {count} {plural}, "
                f"got {list(values.shape)}"
            )
        values = values.detach().contiguous()
        bits = values.view(torch.int16) if values.dtype == torch.bfloat16 else values
        storage = _GATHERED.get(values.dtype) if values.ndim == 2 else None
        array = bits.numpy()
        if storage is not None and array.nbytes <= _MOVED_BYTES:
            ops.move_to_large_pages(array.reshape(-1).view(np.uint8))
        return cls(array=array, storage=storage, dtype=values.dtype)

    def take(self, ids: Int64Array, *, num_threads: int, pinned: bool) -> torch.Tensor:
        """Return rows ``ids`` as ``dtype``, ``[len(ids), ...]``, page-locked if ``pinned``."""
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
    """Topology and data of the user's graph."""

    graph: Graph  #: topology
    #: vertex data by the names of the graph's library: features ``x``, labels ``y``, and further
    #: attributes
    rows: dict[str, AlignedRows]
    #: edge data by the names of the graph's library, in the user's order of edges
    edge_rows: dict[str, AlignedRows] = field(default_factory=dict)
    #: whether batches contain the graph's own edge weights, which are not in ``edge_rows``
    hands_weights: bool = False
    #: the graph's own edge features, which batches contain as ``edge_attr``. None: no edge
    #: features, or they are in ``edge_rows``
    edge_features: AlignedRows | None = None
    #: further attributes of a PyG graph, copied into every batch
    constants: dict[str, Any] = field(default_factory=dict)
    is_of_dgl: bool = False  #: whether names of attributes are DGL's
    id_dtype: torch.dtype = torch.int64  #: type of ids of a DGL graph


def names_in_batches(
    names: Iterable[str], *, of_edges: bool, is_of_dgl: bool, for_dgl: bool
) -> dict[str, str]:
    """Return the name in batches of PyG or DGL (``for_dgl``) of each attribute of a graph.

    A graph of the other library (``is_of_dgl``) has other customary names; an attribute keeps its
    name if another attribute has the customary one.
    """
    listed = list(names)
    customary = (_DGL_NAMES if for_dgl else _PYG_NAMES)[of_edges] if is_of_dgl != for_dgl else {}
    return {
        name: name if customary.get(name, name) in listed else customary[name] for name in listed
    }


@dataclass(frozen=True, kw_only=True)
class EdgeUse:
    """Choice of the edge data that a loader uses: sampling weights, times, and edge ids."""

    weight: str | None = None  #: edge attribute with sampling weights. None: uniform sampling
    #: attribute of vertices or edges with the times from which edges are known. None: always
    time: str | None = None
    numbered: bool = False  #: whether batches contain edge ids even without edge data


def read_data(data: Any, use: EdgeUse) -> LoaderData:
    """Read a Graph, or a homogeneous PyG ``Data`` or DGL graph.

    Rows keep their type, except that a Graph's quantized features become float32. GraphError if an
    attribute cannot be batched, or the edges lack the sampling weights that ``use`` names.
    """
    if isinstance(data, Graph):
        return _read_graph(data, use)
    if is_instance_of(data, "torch_geometric", "data.Data"):
        return _read_pyg(data, use)
    if is_instance_of(data, "dgl", "DGLGraph") and data.is_homogeneous:
        return _read_dgl(data, use)
    raise GraphError(
        "data: expected a gnnscale.Graph or a homogeneous graph of torch_geometric (Data) or DGL, "
        f"got {describe_graph(data)}"
    )


def _read_graph(graph: Graph, use: EdgeUse) -> LoaderData:
    if graph.types is not None:
        raise GraphError(
            f"data: expected a Graph without types, got {graph.name} with "
            f"{len(graph.schema.vertex_types)} vertex types; to_pyg(graph) is a HeteroData"
        )
    weighted = graph.edge_weights is not None
    if use.weight is not None and not (weighted and use.weight == "edge_weight"):
        expected = "'edge_weight'" if weighted else "none, since the edges have no weights"
        raise GraphError(f"weights {use.weight!r} of {graph.name}: expected {expected}")
    if use.time is not None:
        check_graph_times(graph, use.time)
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
        features = AlignedRows(array=graph.edge_features, storage="float32", dtype=torch.float32)
    return LoaderData(graph=graph, rows=rows, hands_weights=weighted, edge_features=features)


def read_weights(edge_rows: Mapping[str, AlignedRows], name: str, of: str) -> Array:
    """Return the edge attribute ``name`` as float32 weights ``[num_edges]``, or GraphError.

    The error names ``of``, the edges.
    """
    if name not in edge_rows:
        expected = ", ".join(map(repr, edge_rows)) or "none, since the edges have no data"
        raise GraphError(f"weights {name!r} of {of}: expected {expected}")
    rows = edge_rows[name]
    count = len(rows.array)
    weights = rows.take(np.arange(count), num_threads=1, pinned=False).float().numpy()
    if weights.ndim == 2 and weights.shape[1] == 1:
        weights = weights[:, 0]
    return check_weights(weights, count, f"{of}: edge weights")


def _topology(
    ends: tuple[torch.Tensor, torch.Tensor],
    num_vertices: int,
    edge_rows: dict[str, AlignedRows],
    use: EdgeUse,
    *,
    vertex_fields: Mapping[str, Any],
    edge_fields: Mapping[str, Any],
) -> Graph:
    """Return the edges as a graph, with the weights and times that ``use`` names."""
    weights = None if use.weight is None else read_weights(edge_rows, use.weight, "data")
    vertex_times: dict[str, Any] = {}
    edge_times: dict[str, Any] = {}
    if use.time is not None:
        fields = {"vertex": vertex_fields}, {"edge": edge_fields}
        vertex_times, edge_times = time_fields(use.time, *fields)
    return from_arrays(
        (ends[0].numpy(), ends[1].numpy()),
        np.empty((num_vertices, 0), np.float32),
        name="data",
        edge_weights=weights,
        vertex_times=vertex_times.get("vertex"),
        edge_times=edge_times.get("edge"),
        number_edges=use.numbered or bool(edge_rows),
    )


def _read_pyg(data: Any, use: EdgeUse) -> LoaderData:
    fields = pyg_fields(data, "data")
    edge_index = fields.pop("edge_index")
    num_vertices, num_edges = data.num_nodes, edge_index.shape[1]
    fields.pop("num_nodes", None)
    edge_rows = {
        name: AlignedRows.wrap(name, values, num_edges, kind="edge")
        for name, values in fields.items()
        if (name not in data or has_rows(data.is_edge_attr, name, values)) and name != "e_id"
    }
    rows = {
        name: AlignedRows.wrap(name, values, num_vertices)
        for name, values in fields.items()
        if name not in edge_rows and has_rows(data.is_node_attr, name, values)
    }
    constants = {
        name: value
        for name, value in fields.items()
        if name not in rows and name not in edge_rows and name != "e_id"
    }
    graph = _topology(
        (edge_index[0], edge_index[1]),
        num_vertices,
        edge_rows,
        use,
        vertex_fields={name: fields[name] for name in rows},
        edge_fields={name: fields[name] for name in edge_rows},
    )
    return LoaderData(graph=graph, rows=rows, edge_rows=edge_rows, constants=constants)


def has_rows(is_attribute: Callable[[str], bool], name: str, values: Any) -> bool:
    """Whether ``values`` of PyG's data have a row for each vertex, or for each edge.

    ``is_attribute`` is PyG's answer for one of both. It is also true of ids with a column for each,
    such as ``edge_label_index`` ``[2, n]``, which a batch has as a whole.
    """
    return is_attribute(name) and not ("index" in name and getattr(values, "ndim", 1) > 1)


def _read_dgl(graph: Any, use: EdgeUse) -> LoaderData:
    num_vertices, num_edges = graph.num_nodes(), graph.num_edges()
    rows = rows_of_frame(graph.ndata, num_vertices, kind="vertex")
    edge_rows = rows_of_frame(graph.edata, num_edges, kind="edge")
    use = with_dgl_name(use, edge_rows)
    # DGL lists edges by id only with a sort if it stores them by destination.
    src, dst, numbers = graph.edges(form="all", order=None)
    by_number = numbers.argsort()
    topology = _topology(
        (src[by_number], dst[by_number]),
        num_vertices,
        edge_rows,
        use,
        vertex_fields=graph.ndata,
        edge_fields=graph.edata,
    )
    return LoaderData(
        graph=topology, rows=rows, edge_rows=edge_rows, is_of_dgl=True, id_dtype=graph.idtype
    )


def rows_of_frame(frame: Mapping[str, Any], count: int, *, kind: str) -> dict[str, AlignedRows]:
    """Return the attributes of ``count`` vertices or edges (``kind``) of a DGL graph."""
    return {
        name: AlignedRows.wrap(name, values, count, kind=kind)
        for name, values in frame.items()
        if name != "_ID"  # dgl.NID and dgl.EID, keys of batches
    }


def with_dgl_name(use: EdgeUse, names: Container[str]) -> EdgeUse:
    """Return ``use`` whose weights have DGL's name, if ``names`` lack PyG's name for them."""
    if use.weight is None or use.weight in names:
        return use
    return replace(use, weight=_DGL_NAMES[True].get(use.weight, use.weight))
