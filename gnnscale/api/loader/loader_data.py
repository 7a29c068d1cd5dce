"""Data of a loader: the input graph, and sampled mini-batches in the formats of PyG and DGL."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.core import Array, GraphError, Int64Array, import_dgl
from gnnscale.data import from_arrays
from gnnscale.data.array_inputs import describe_graph, is_instance_of, refuse_masked
from gnnscale.data.peers import pyg_fields
from gnnscale.data.validation import check_weights
from gnnscale.features import read_from_disk
from gnnscale.graph import Graph
from gnnscale.nn.adapters import to_dgl_blocks
from gnnscale.sampling.minibatch import to_minibatch

#: Row types that the native gather supports.
_GATHERED = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
#: PyG's names for DGL's customary names.
_PYG_NAMES = {"feat": "x", "label": "y"}
_PYG_EDGE_NAMES = {"weight": "edge_weight", "feat": "edge_attr"}


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
            values = torch.from_numpy(values)
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
        return cls(array=bits.numpy(), storage=storage, dtype=values.dtype)

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
    #: vertex data by PyG's names: features ``x``, labels ``y``, and further attributes
    rows: dict[str, AlignedRows]
    #: edge data by PyG's names, in the user's order of edges: weights ``edge_weight``, and further
    #: attributes
    edge_rows: dict[str, AlignedRows] = field(default_factory=dict)
    #: whether batches contain the graph's own edge weights, which are not in ``edge_rows``
    hands_weights: bool = False
    #: the graph's own edge features, which batches contain as ``edge_attr``. None: no edge
    #: features, or they are in ``edge_rows``
    edge_features: AlignedRows | None = None
    #: further attributes of a PyG graph, copied into every batch
    constants: dict[str, Any] = field(default_factory=dict)
    id_dtype: torch.dtype = torch.int64  #: type of ids of a DGL graph


@dataclass(frozen=True, kw_only=True)
class EdgeUse:
    """Choice of the edge data that a loader uses: sampling weights, and edge ids."""

    weight: str | None = None  #: edge attribute with sampling weights. None: uniform sampling
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
    weighted = graph.edge_weights is not None
    if use.weight is not None and not (weighted and use.weight == "edge_weight"):
        expected = "'edge_weight'" if weighted else "none, since the edges have no weights"
        raise GraphError(f"weights {use.weight!r} of {graph.name}: expected {expected}")
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
) -> Graph:
    weights = None if use.weight is None else read_weights(edge_rows, use.weight, "data")
    return from_arrays(
        (ends[0].numpy(), ends[1].numpy()),
        np.empty((num_vertices, 0), np.float32),
        name="data",
        edge_weights=weights,
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
        if (name not in data or data.is_edge_attr(name)) and name != "e_id"  # a key of batches
    }
    rows = {
        name: AlignedRows.wrap(name, values, num_vertices)
        for name, values in fields.items()
        if name not in edge_rows and data.is_node_attr(name)
    }
    constants = {
        name: value
        for name, value in fields.items()
        if name not in rows and name not in edge_rows and name != "e_id"
    }
    graph = _topology((edge_index[0], edge_index[1]), num_vertices, edge_rows, use)
    return LoaderData(graph=graph, rows=rows, edge_rows=edge_rows, constants=constants)


def _read_dgl(graph: Any, use: EdgeUse) -> LoaderData:
    num_vertices, num_edges = graph.num_nodes(), graph.num_edges()
    rows = {
        _PYG_NAMES.get(name, name): AlignedRows.wrap(name, values, num_vertices)
        for name, values in graph.ndata.items()
        if name != "_ID"  # dgl.NID, a key of batches
    }
    edge_rows = {
        _PYG_EDGE_NAMES.get(name, name): AlignedRows.wrap(name, values, num_edges, kind="edge")
        for name, values in graph.edata.items()
        if name != "_ID"  # dgl.EID
    }
    if use.weight is not None:
        use = replace(use, weight=_PYG_EDGE_NAMES.get(use.weight, use.weight))
    # DGL lists edges by id only with a sort if it stores them by destination.
    src, dst, numbers = graph.edges(form="all", order=None)
    by_number = numbers.argsort()
    topology = _topology((src[by_number], dst[by_number]), num_vertices, edge_rows, use)
    return LoaderData(graph=topology, rows=rows, edge_rows=edge_rows, id_dtype=graph.idtype)


#: DGL's customary names for PyG's x and y, and for edge weights and features.
_DGL_NAMES = {"x": "feat", "y": "label"}
_DGL_EDGE_NAMES = {"edge_weight": "weight", "edge_attr": "feat"}


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Options of a loader: how neighbors are sampled, and the memory of its batches."""

    replace: bool  #: sample with replacement
    by_weight: bool  #: sample in proportion to edge weights
    edge_ids: bool  #: batches contain edge ids
    seed: int  #: seed of all random choices, together with the step
    num_threads: int  #: threads of the native kernels
    pinned: bool  #: allocate batches in page-locked memory

    def empty(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Return an uninitialized int64 tensor, page-locked if the loader allocates batches so."""
        return allocate(shape, torch.int64, pinned=self.pinned)

    def take(self, rows: AlignedRows, ids: Int64Array) -> torch.Tensor:
        """Return rows ``ids`` of an attribute, in memory as ``empty`` allocates it."""
        return rows.take(ids, num_threads=self.num_threads, pinned=self.pinned)


class _BatchReader:
    """Sampler of the user's graph, with the data of sampled vertices and edges."""

    def __init__(self, data: LoaderData, sampling: Sampling, fanouts: list[int]) -> None:
        self.data = data
        self.sampling = sampling
        self._fanouts = fanouts
        self._sampler = ops.NativeSampler(data.graph)
        #: Whether batches contain edge ids.
        self.has_edge_ids = sampling.edge_ids or bool(data.edge_rows)

    def sample(self, seeds: Array, step: int, *, only_new: bool) -> ops.Sampled:
        """Return vertices and hops sampled from ``seeds``, fixed by ``step`` and the loader's seed.

        A hop expands all vertices so far, or with ``only_new`` those of the last hop.
        """
        sampling = self.sampling
        return self._sampler.sample_neighbors(
            seeds,
            self._fanouts,
            replace=sampling.replace,
            seed=sampling.seed,
            step=step,
            num_threads=sampling.num_threads,
            only_new=only_new,
            by_weight=sampling.by_weight,
            edge_positions=self.has_edge_ids,
            edge_weights=self.data.hands_weights,
            edge_rows=self.data.edge_features is not None,
        )

    def vertex_rows(self, ids: Int64Array) -> dict[str, torch.Tensor]:
        """Return the rows of vertices ``ids`` of every vertex attribute, by PyG's names."""
        return {name: self.sampling.take(rows, ids) for name, rows in self.data.rows.items()}

    def edge_rows(self, hops: list[ops.SampledHop]) -> tuple[torch.Tensor | None, dict[str, Any]]:
        """Return ids (None: not in batches) and attributes, by PyG's names, of ``hops``' edges."""
        data = {}
        if self.data.hands_weights:
            weights = [hop.edge_weights for hop in hops if hop.edge_weights is not None]
            data["edge_weight"] = torch.from_numpy(np.concatenate(weights))
        if self.data.edge_features is not None:
            row_ids = [hop.edge_rows for hop in hops if hop.edge_rows is not None]
            ids = np.concatenate(row_ids).astype(np.int64)
            data["edge_attr"] = self.sampling.take(self.data.edge_features, ids)
        if not self.has_edge_ids:
            return None, data
        edge_ids = self.sampling.empty((sum(len(hop.indices) for hop in hops),))
        positions = [hop.positions for hop in hops if hop.positions is not None]
        ids = np.concatenate(positions, out=edge_ids.numpy())
        if self.data.graph.edge_ids is not None:
            ids[:] = self.data.graph.edge_ids[ids]
        for name, rows in self.data.edge_rows.items():
            data[name] = self.sampling.take(rows, ids)
        return edge_ids, data


class PyGFormat:
    """Maker of PyG's batches (``Data``); each hop expands only the vertices new in the last hop."""

    def __init__(self, data: LoaderData, sampling: Sampling, fanouts: list[int]) -> None:
        """Prepare to sample ``data`` by the fan-out of every hop; ImportError: there is no PyG."""
        try:
            from torch_geometric.data import Data
        except ImportError:
            raise ImportError(
                "PyG is not installed; pip install '.[pyg]', or use output_format='dgl'"
            ) from None
        self._make: Callable[..., Any] = Data
        self._reader = _BatchReader(data, sampling, fanouts)

    def batch(self, seeds: Array, input_ids: Int64Array, step: int) -> Any:
        """Return the batch of ``seeds``, with its ``input_id``; ``step`` fixes random choices."""
        reader = self._reader
        vertices, hops, _ = reader.sample(seeds, step, only_new=True)
        # Number of vertices before hop 1, after hop 1, ... A hop's destinations are the vertices
        # that the previous hop added.
        num_vertices = [len(seeds), *(hop.num_src for hop in hops)]
        num_edges = [len(hop.indices) for hop in hops]
        edge_index = reader.sampling.empty((2, sum(num_edges)))
        ends, done = edge_index.numpy(), 0
        for first_dst, hop in zip([0, *num_vertices], hops, strict=False):
            out = ends[:, done : done + len(hop.indices)]
            ops.expand_edges(hop.indptr, hop.indices, first_dst=first_dst, out=out)
            done += len(hop.indices)
        n_id = reader.sampling.empty((len(vertices),))
        n_id.numpy()[:] = vertices
        e_id, edge_data = reader.edge_rows(hops)
        ids = {"n_id": n_id} if e_id is None else {"n_id": n_id, "e_id": e_id}
        return self._make(
            edge_index=edge_index,
            **{**ids, **reader.data.constants, **reader.vertex_rows(n_id.numpy()), **edge_data},
            input_id=torch.from_numpy(input_ids),
            batch_size=len(seeds),
            num_sampled_nodes=np.diff([0, *num_vertices]).tolist(),
            num_sampled_edges=num_edges,
        )


class DGLFormat:
    """Maker of DGL's batches (nodes and blocks); each hop expands all vertices sampled so far."""

    def __init__(self, data: LoaderData, sampling: Sampling, fanouts: list[int]) -> None:
        """Prepare to sample ``data`` by the fan-out of every hop; ImportError: there is no DGL."""
        self._edge_id = import_dgl().EID
        self._reader = _BatchReader(data, sampling, fanouts)

    def batch(self, seeds: Array, input_ids: Int64Array, step: int) -> Any:
        """Return the batch of ``seeds``; ``step`` fixes random choices, ``input_ids`` nothing."""
        reader, idtype = self._reader, self._reader.data.id_dtype
        sampled = reader.sample(seeds, step, only_new=False)
        batch = to_minibatch(len(seeds), sampled, seed=0, step=step)
        blocks = to_dgl_blocks(batch, idtype=idtype)
        vertices = batch.input_vertices.astype(np.int64)
        for ids, frame in (
            (vertices, blocks[0].srcdata),
            (vertices[: batch.num_seeds], blocks[-1].dstdata),
        ):
            for name, values in reader.vertex_rows(ids).items():
                frame[_DGL_NAMES.get(name, name)] = values
        for block, hop in zip(blocks, reversed(sampled[1]), strict=True):
            edge_ids, edge_data = reader.edge_rows([hop])
            if edge_ids is not None:
                block.edata[self._edge_id] = edge_ids.to(idtype)
            for name, values in edge_data.items():
                block.edata[_DGL_EDGE_NAMES.get(name, name)] = values
        input_nodes = torch.from_numpy(vertices).to(idtype)
        return input_nodes, input_nodes[: batch.num_seeds], blocks


#: Batch formats by name; a format may be called from several threads.
FORMATS: dict[str, type[PyGFormat] | type[DGLFormat]] = {"pyg": PyGFormat, "dgl": DGLFormat}
