"""Mini-batches in the forms of DGL and PyTorch Geometric, and models of their modules."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gnnscale import ops
from gnnscale.core import ConfigError, Float32Array, import_dgl, one_line
from gnnscale.graph import GraphSchema, list_sums
from gnnscale.nn.base import Inputs, TrainableModel
from gnnscale.nn.conv.linear import warn_unweighted
from gnnscale.nn.device_block import DeviceBlock
from gnnscale.sampling import Block, MiniBatch, TypedBlock, TypedMiniBatch

if TYPE_CHECKING:
    import dgl


_NUMPY = {torch.int32: np.int32, torch.int64: np.int64}


class Adjacency(NamedTuple):
    """Edges of one layer in the form of ``torch_geometric.loader.NeighborSampler``."""

    edge_index: Tensor  #: ``[2, num_edges]`` int64 local ids, sources then destinations
    e_id: None  #: None: edges have no ids
    size: tuple[int, int]  #: ``(num_src, num_dst)``


def to_dgl_blocks(batch: MiniBatch, *, idtype: torch.dtype = torch.int64) -> "list[dgl.DGLGraph]":
    """Return the blocks of ``batch`` as DGL's, input layer first, with ids of type ``idtype``.

    A block has the vertices' ids in ``srcdata[dgl.NID]`` and ``dstdata[dgl.NID]``. If the batch has
    them, ``edata["importance"]`` has the importance of edges (layer-wise sampling),
    ``edata["weight"]`` their weights, and ``edata["feat"]`` their features. ImportError: there is
    no DGL. ConfigError: DGL has no graphs on the batch's device.
    """
    dgl = import_dgl()
    vertices = _converted(batch.input_vertices, idtype)
    blocks = []
    for block in batch.blocks:
        dgl_block = block_to_dgl(block, idtype=idtype)
        dgl_block.srcdata[dgl.NID] = vertices[: block.num_src]
        dgl_block.dstdata[dgl.NID] = vertices[: block.num_dst]
        blocks.append(dgl_block)
    return blocks


def block_to_dgl(block: Block, *, idtype: torch.dtype = torch.int64) -> "dgl.DGLGraph":
    """Return ``block`` as DGL's, with importance, weights and features of edges, no vertex ids."""
    dgl = import_dgl()
    indptr, indices = (_converted(ids, idtype) for ids in (block.indptr, block.indices))
    try:
        dgl_block = dgl.create_block(
            ("csc", (indptr, indices, torch.empty(0, dtype=idtype, device=indices.device))),
            num_src_nodes=block.num_src,
            num_dst_nodes=block.num_dst,
            idtype=idtype,
        )
    except dgl.DGLError as error:
        if indices.device.type == "cpu":
            raise
        raise ConfigError(
            f"model.form=dgl: expected a DGL with graphs on {indices.device}, got "
            f"{dgl.__version__} ({one_line(error, 80)}); https://www.dgl.ai says how to install one"
        ) from None
    edge_data = {
        "importance": block.importance,
        "weight": block.edge_weights,
        "feat": block.edge_attr,
    }
    for name, values in edge_data.items():
        if values is not None:
            dgl_block.edata[name] = torch.as_tensor(values)
    return dgl_block


class BlockData(NamedTuple):
    """Data of a block's vertices and edges: tensors by name, for each type."""

    sources: list[dict[str, Tensor]]  #: by vertex type
    destinations: list[dict[str, Tensor]]  #: by vertex type
    edges: list[dict[str, Tensor]]  #: by edge type


class DGLBlockBuilder:
    """Builder of DGL's blocks over the vertex and edge types of a graph.

    ``dgl.create_block`` makes a graph of each edge type first, and looks for the largest ids, which
    takes five times as long. Data that are set later take DGL's checks one by one.
    """

    def __init__(self, schema: GraphSchema, *, idtype: torch.dtype) -> None:
        """Prepare blocks of ``schema``'s types, whose ids are of type ``idtype``."""
        from dgl import graph_index
        from dgl._ffi.object_generic import convert_to_object

        self._idtype = idtype
        self._formats = convert_to_object(["coo", "csr", "csc"])
        self._no_edge_ids = torch.empty(0, dtype=idtype)
        self._names = [vertices.name for vertices in schema.vertex_types]
        self._relations = [edges.relation for edges in schema.edge_types]
        self._ends = list(zip(schema.sources.tolist(), schema.destinations.tolist(), strict=True))
        num_types = len(self._names)
        sources = [source for source, _ in self._ends]
        destinations = [num_types + destination for _, destination in self._ends]
        self._metagraph = graph_index.from_coo(2 * num_types, sources, destinations, True)

    def build_batch(self, batch: TypedMiniBatch) -> "list[dgl.DGLGraph]":
        """Return the blocks of ``batch`` as DGL's, input layer first.

        If the batch has them, ``edges[triple].data["weight"]`` has the weights of edges.
        """
        none: list[dict[str, Tensor]] = [{}] * len(self._names)
        blocks = []
        for block in batch.blocks:
            edges = [
                {}
                if relation.edge_weights is None
                else {"weight": torch.from_numpy(relation.edge_weights)}
                for relation in block.relations
            ]
            blocks.append(self.build(block, BlockData(none, none, edges)))
        return blocks

    def build(self, block: TypedBlock, data: BlockData) -> "dgl.DGLGraph":
        """Return ``block`` as DGL's, with ``data`` of its vertices and edges."""
        from dgl import heterograph_index, utils
        from dgl.frame import Frame
        from dgl.heterograph import DGLBlock

        graphs = [
            heterograph_index.create_unitgraph_from_csr(
                2,
                block.src_sizes[source],
                block.dst_sizes[destination],
                _converted(relation.indptr, self._idtype),
                _converted(relation.indices, self._idtype),
                self._no_edge_ids,
                self._formats,
                True,
            )
            for (source, destination), relation in zip(self._ends, block.relations, strict=True)
        ]
        sizes = [*block.src_sizes, *block.dst_sizes]
        index = heterograph_index.create_heterograph_from_relations(
            self._metagraph, graphs, utils.toindex(sizes, "int64")
        )
        vertex_data = [*data.sources, *data.destinations]
        num_edges = [relation.num_edges for relation in block.relations]
        return DGLBlock(
            index,
            (self._names, self._names),
            self._relations,
            node_frames=[Frame(*frame) for frame in zip(vertex_data, sizes, strict=True)],
            edge_frames=[Frame(*frame) for frame in zip(data.edges, num_edges, strict=True)],
        )


def _converted(ids: Any, dtype: torch.dtype) -> Tensor:
    """Return ids, an array or a tensor on a device, as a tensor of ``dtype``."""
    if isinstance(ids, Tensor):
        return ids.to(dtype)
    # NumPy converts: torch would start a thread pool in each thread that calls this.
    return torch.from_numpy(ids.astype(_NUMPY[dtype], copy=False))


def to_edge_indices(batch: MiniBatch) -> list[Tensor]:
    """Return an ``edge_index`` per layer, input layer first, ``[2, num_edges]`` int64 each.

    Edges ascend by destination. Local ids number the layer's source vertices, destinations first. A
    module that computes a layer for all source vertices returns right rows for the destinations
    only. ValueError: ``edge_index`` cannot hold the importance of layer-wise sampling.
    """
    return [block_to_edge_index(block) for block in batch.blocks]


def block_to_edge_index(block: Block) -> Tensor:
    """Return the ``edge_index`` ``[2, num_edges]`` of a block; ValueError: layer-wise sampling."""
    if block.importance is not None:
        raise ValueError(
            "edge_index: expected edges of neighbor sampling, got layer-wise sampling, whose "
            "importance of edges it cannot hold"
        )
    if isinstance(block, DeviceBlock):
        return torch.stack([block.sources(), block.destinations()]).to(torch.int64)
    out = ops.empty((2, block.num_edges), torch.int64)
    ops.expand_edges(block.indptr, block.indices, first_dst=0, out=out.numpy())
    return out


def to_adjacencies(batch: MiniBatch) -> list[Adjacency]:
    """Return ``(edge_index, None, (num_src, num_dst))`` per layer, input layer first.

    Modules for ``torch_geometric.loader.NeighborSampler`` call a layer as ``conv((x, x[:size[1]]),
    edge_index)``.
    """
    return [
        Adjacency(edge_index, None, (block.num_src, block.num_dst))
        for edge_index, block in zip(to_edge_indices(batch), batch.blocks, strict=True)
    ]


def to_sampled_subgraph(batch: MiniBatch) -> tuple[Tensor, list[int], list[int]]:
    """Return edges, and numbers of vertices and edges per hop, as PyG's ``NeighborLoader`` does.

    PyG samples the neighbors of a vertex once, in the hop after the vertex is first reached, and
    all layers use them. A hop of ``MiniBatch`` samples the neighbors of earlier vertices again; the
    result leaves those edges out. With all neighbors, outputs equal those over the full graph.

    Returns:
        The edges ``[2, num_edges]`` int64, hop by hop from the seeds outwards; the number of
        vertices that each hop adds, seeds first; and the number of edges of each hop.
        ``torch_geometric.utils.trim_to_layer`` takes all three.
    """
    parts, num_vertices, first = [], [batch.num_seeds], 0
    pairs = zip(reversed(to_edge_indices(batch)), reversed(batch.blocks), strict=True)
    for edge_index, block in pairs:
        # Edges are ordered by destination, and new destinations come last.
        parts.append(edge_index[:, int(block.indptr[first]) :])
        num_vertices.append(block.num_src - block.num_dst)
        first = block.num_dst
    return torch.cat(parts, dim=1), num_vertices, [part.shape[1] for part in parts]


def sampled_edge_attr(batch: MiniBatch) -> Tensor:
    """Return the features of the edges of ``to_sampled_subgraph``, in the order of its edges."""
    parts, first = [], 0
    for block in reversed(batch.blocks):
        assert block.edge_attr is not None
        parts.append(block.edge_attr[int(block.indptr[first]) :])
        first = block.num_dst
    return torch.from_numpy(np.concatenate(parts))


class HeteroSubgraph(NamedTuple):
    """Edges of a mini-batch over a graph with types, as in PyG's ``HeteroData``."""

    edge_index: list[Tensor]  #: by edge type ``[2, num_edges]`` int64, hop by hop from the seeds
    num_vertices: list[list[int]]  #: by vertex type the vertices that each hop adds, seeds first
    num_edges: list[list[int]]  #: by edge type the edges of each hop


def to_hetero_subgraph(batch: TypedMiniBatch) -> HeteroSubgraph:
    """Return the edges of ``batch`` by edge type, as ``to_sampled_subgraph`` does without types.

    Local ids number the input vertices of a type.
    """
    edge_indices, num_edges = [], []
    for number in range(len(batch.ends)):
        parts, first = [], 0
        for block in reversed(batch.blocks):
            relation = block.relations[number]
            # Lists of later hops begin with those of vertices that are not new.
            indptr = relation.indptr[first:] - relation.indptr[first]
            indices = relation.indices[int(relation.indptr[first]) :]
            part = ops.empty((2, len(indices)), torch.int64)
            ops.expand_edges(indptr, indices, first_dst=first, out=part.numpy())
            parts.append(part)
            first = relation.num_dst
        edge_indices.append(torch.cat(parts, dim=1))
        num_edges.append([part.shape[1] for part in parts])
    sizes = [batch.seed_sizes, *(block.src_sizes for block in reversed(batch.blocks))]
    num_vertices = np.diff(np.array(sizes), axis=0, prepend=0).T.tolist()
    return HeteroSubgraph(edge_indices, num_vertices, num_edges)


class _WrappedModel(TrainableModel):
    """Base of models that gather input rows and call a user's module."""

    def __init__(self, module: nn.Module) -> None:
        """Wrap ``module``, whose parameters become the model's."""
        super().__init__()
        self.module = module


class DGLModel(_WrappedModel):
    """Model of an unchanged DGL module whose ``forward(blocks, x)`` returns the seeds' rows."""

    def forward(self, batch: MiniBatch, inputs: Inputs) -> Tensor:
        """Return the seeds' logits ``[num_seeds, num_classes]`` float32."""
        out: Tensor = self.module(to_dgl_blocks(batch), inputs.x)
        return out.float()


class PyGModel(_WrappedModel):
    """Model of an unchanged PyG module; it warns that edge weights are ignored.

    It calls ``forward(x, edge_indices)`` with an ``edge_index`` per layer. With ``bipartite``, it
    calls ``forward(x, adjs)`` as with ``torch_geometric.loader.NeighborSampler``, and layers
    compute only the rows of their destinations.
    """

    uses_edge_weights: bool = False

    def __init__(self, module: nn.Module, *, bipartite: bool = False) -> None:
        """Wrap ``module``, which takes an ``Adjacency`` (``bipartite``) or edge index a layer."""
        super().__init__(module)
        self.bipartite = bipartite

    def forward(self, batch: MiniBatch, inputs: Inputs) -> Tensor:
        """Return the seeds' logits ``[num_seeds, num_classes]`` float32."""
        if batch.blocks[0].edge_weights is not None:
            warn_unweighted(type(self.module).__name__)
        layers = to_adjacencies(batch) if self.bipartite else to_edge_indices(batch)
        out: Tensor = self.module(inputs.x, layers)
        return out[: batch.num_seeds].float()


def whole_batch(
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None,
    edge_attr: Tensor | None = None,
    *,
    num_layers: int,
) -> tuple[MiniBatch, Inputs]:
    """Return a mini-batch whose seeds are all vertices, with all in-neighbors, and its inputs.

    ``x`` is ``[n, num_features]``, ``edge_index`` ``[2, num_edges]`` sources and targets as in
    PyTorch Geometric, ``edge_weight`` ``[num_edges]`` or None, and ``edge_attr`` ``[num_edges,
    num_edge_features]`` or None. ConfigError: a tensor has another shape, or an edge names no
    vertex of ``x``.
    """
    _check(x, edge_index, edge_weight, edge_attr)
    source, target = edge_index.cpu().numpy()
    order = np.argsort(target, kind="stable")
    indptr = np.zeros(len(x) + 1, np.int64)
    np.cumsum(np.bincount(target, minlength=len(x)), out=indptr[1:])

    def ordered(values: Tensor | None) -> Float32Array | None:
        return None if values is None else values.detach().cpu().numpy().astype(np.float32)[order]

    weights = ordered(edge_weight)
    block = Block(
        indptr=indptr,
        indices=source[order].astype(np.int32),
        num_src=len(x),
        edge_weights=weights,
        weight_sums=None if weights is None else list_sums(indptr, weights),
        edge_attr=ordered(edge_attr),
    )
    batch = MiniBatch(
        seed=0,
        step=0,
        num_seeds=len(x),
        input_vertices=np.arange(len(x), dtype=np.int64),
        blocks=(block,) * num_layers,
    )
    degrees = np.diff(indptr).astype(np.float32)
    return batch, Inputs(x=x.float(), aggregated=False, degrees=degrees)


def _check(
    x: Tensor, edge_index: Tensor, edge_weight: Tensor | None, edge_attr: Tensor | None
) -> None:
    if x.dim() != 2:
        raise ConfigError(f"x: expected shape [vertices, features], got {list(x.shape)}")
    num_edges = edge_index.shape[-1] if edge_index.dim() else 0
    is_integer = not (edge_index.is_floating_point() or edge_index.is_complex())
    if not is_integer or edge_index.dim() != 2 or len(edge_index) != 2:
        raise ConfigError(
            f"edge_index: expected whole numbers of shape [2, edges], got {edge_index.dtype} of "
            f"shape {list(edge_index.shape)}"
        )
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < len(x):
        raise ConfigError(
            f"edge_index: expected vertices of x, 0 to {len(x) - 1}, got {int(edge_index.min())} "
            f"to {int(edge_index.max())}"
        )
    if edge_weight is not None and edge_weight.shape != (num_edges,):
        raise ConfigError(
            f"edge_weight: expected shape [{num_edges}], got {list(edge_weight.shape)}"
        )
    if edge_attr is not None and (edge_attr.dim() != 2 or len(edge_attr) != num_edges):
        raise ConfigError(
            f"edge_attr: expected shape [{num_edges}, features], got {list(edge_attr.shape)}"
        )
