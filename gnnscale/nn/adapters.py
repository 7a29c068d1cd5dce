"""A user's own DGL or PyG module over our mini-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gnnscale import ops
from gnnscale.core import ConfigError, Float32Array, one_line
from gnnscale.core.optional import import_dgl
from gnnscale.graph import list_sums
from gnnscale.nn import base as trainable
from gnnscale.nn.base import Inputs
from gnnscale.nn.conv import linear as layer
from gnnscale.nn.device_block import DeviceBlock
from gnnscale.sampling import Block, MiniBatch

if TYPE_CHECKING:
    import dgl


_NUMPY = {torch.int32: np.int32, torch.int64: np.int64}


class Adjacency(NamedTuple):
    """One layer as ``torch_geometric.loader.NeighborSampler`` hands it to a module."""

    edge_index: torch.Tensor  #: ``[2, num_edges]`` int64 local ids, sources then destinations
    e_id: None  #: None, edges are not numbered
    size: tuple[int, int]  #: ``(num_src, num_dst)``


def to_dgl_blocks(batch: MiniBatch, *, idtype: torch.dtype = torch.int64) -> list[dgl.DGLGraph]:
    """Turn the blocks of ``batch`` into DGL's, input layer first.

    Each has its vertices' ids in ``srcdata[dgl.NID]`` and ``dstdata[dgl.NID]``. Edges that carry
    their importance (layer-wise sampling) have it in ``edata["importance"]``, those that carry
    their weight in ``edata["weight"]``, and features of edges are in ``edata["feat"]``.

    Args:
        idtype: type of ids in the result, int64 or int32.

    Raises:
        ImportError: DGL is not installed.
    """
    dgl = import_dgl()
    vertices = _converted(batch.input_vertices, idtype)
    blocks = []
    for block in batch.blocks:
        made = block_to_dgl(block, idtype=idtype)
        made.srcdata[dgl.NID] = vertices[: block.num_src]
        made.dstdata[dgl.NID] = vertices[: block.num_dst]
        blocks.append(made)
    return blocks


def block_to_dgl(block: Block, *, idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """Return one block as DGL's, as ``to_dgl_blocks`` does of all, without the vertices' ids."""
    dgl = import_dgl()
    indptr, indices = (_converted(ids, idtype) for ids in (block.indptr, block.indices))
    try:
        made = dgl.create_block(
            ("csc", (indptr, indices, torch.empty(0, dtype=idtype, device=indices.device))),
            num_src_nodes=block.num_src,
            num_dst_nodes=block.num_dst,
            idtype=idtype,
        )
    except dgl.DGLError as error:
        if indices.device.type == "cpu":
            raise
        raise ConfigError(
            f"model.form=dgl: this DGL ({dgl.__version__}) has no graphs on {indices.device} "
            f"({one_line(error, 80)}); https://www.dgl.ai says how to install one that has"
        ) from None
    on_edges = {
        "importance": block.importance,
        "weight": block.edge_weights,
        "feat": block.edge_attr,
    }
    for name, values in on_edges.items():
        if values is not None:
            made.edata[name] = torch.as_tensor(values)
    return made


def _converted(ids: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return ids, an array or a tensor of a device, as a tensor of ``dtype``."""
    if isinstance(ids, torch.Tensor):
        return ids.to(dtype)
    # By NumPy: torch would start a pool of threads for every thread that calls this.
    return torch.from_numpy(ids.astype(_NUMPY[dtype], copy=False))


def to_edge_indices(batch: MiniBatch) -> list[torch.Tensor]:
    """Return an ``edge_index`` per layer, input layer first.

    Local ids number the layer's source vertices; its destinations are the first of them. A layer
    applied to all source rows is therefore right in the rows of the destinations.

    Returns:
        ``[2, num_edges]`` int64 each: row 0 the sources, row 1 the destinations, ascending.

    Raises:
        ValueError: the edges carry their importance (layer-wise sampling), which a bare
            ``edge_index`` would lose.
    """
    return [block_to_edge_index(block) for block in batch.blocks]


def block_to_edge_index(block: Block) -> torch.Tensor:
    """Return the edges of one block, as ``to_edge_indices`` does of all."""
    if block.importance is not None:
        raise ValueError(
            "an edge_index has no place for the importance of layer-wise sampling; "
            "use neighbour sampling"
        )
    if isinstance(block, DeviceBlock):
        return torch.stack([block.sources(), block.destinations()]).to(torch.int64)
    out = ops.empty((2, block.num_edges), torch.int64)
    ops.expand_edges(block.indptr, block.indices, first_dst=0, out=out.numpy())
    return out


def to_adjacencies(batch: MiniBatch) -> list[Adjacency]:
    """Return ``(edge_index, e_id, size)`` per layer, input layer first.

    This is the form of ``torch_geometric.loader.NeighborSampler``, for modules that apply a layer
    as ``conv((x, x[:size[1]]), edge_index)``.
    """
    return [
        Adjacency(edge_index, None, (block.num_src, block.num_dst))
        for edge_index, block in zip(to_edge_indices(batch), batch.blocks, strict=True)
    ]


def to_sampled_subgraph(batch: MiniBatch) -> tuple[torch.Tensor, list[int], list[int]]:
    """Return the one ``edge_index`` that ``torch_geometric.loader.NeighborLoader`` would give.

    There a hop expands only the vertices that the hop before it found, and every layer uses what
    was drawn for a vertex then. A hop of ours expands the others anew; those edges are left out.
    A vertex so has the neighbours of its first hop, each of them once, and over all neighbours the
    result is that of the whole graph.

    Returns:
        The edges ``[2, num_edges]`` int64, hop by hop from the seeds outwards; the vertices that
        each hop adds, the seeds first; and the edges of each hop. They are what
        ``torch_geometric.utils.trim_to_layer`` takes.

    Raises:
        ValueError: the edges carry their importance (layer-wise sampling).
    """
    parts, num_vertices, first = [], [batch.num_seeds], 0
    pairs = zip(reversed(to_edge_indices(batch)), reversed(batch.blocks), strict=True)
    for edge_index, block in pairs:
        # Edges are in the order of their destinations, and those that are new come last.
        parts.append(edge_index[:, int(block.indptr[first]) :])
        num_vertices.append(block.num_src - block.num_dst)
        first = block.num_dst
    return torch.cat(parts, dim=1), num_vertices, [part.shape[1] for part in parts]


def sampled_edge_attr(batch: MiniBatch) -> torch.Tensor:
    """Return the features of the edges of ``to_sampled_subgraph``, in their order."""
    parts, first = [], 0
    for block in reversed(batch.blocks):
        assert block.edge_attr is not None
        parts.append(block.edge_attr[int(block.indptr[first]) :])
        first = block.num_dst
    return torch.from_numpy(np.concatenate(parts))


class _WrappedModel(trainable.TrainableModel):
    """A module that reads gathered rows. Loads and runs as ``GNN`` does."""

    def __init__(self, module: nn.Module) -> None:
        """Wrap ``module``; its parameters are this module's."""
        super().__init__()
        self.module = module


class DGLModel(_WrappedModel):
    """A DGL module with ``forward(blocks, x)`` returning the seeds' rows, unchanged."""

    def forward(self, batch: MiniBatch, inputs: trainable.Inputs) -> torch.Tensor:
        """Return the seeds' logits ``[num_seeds, num_classes]`` float32."""
        out: torch.Tensor = self.module(to_dgl_blocks(batch), inputs.x)
        return out.float()


class PyGModel(_WrappedModel):
    """A PyG module, unchanged.

    Its forward is ``forward(x, edge_indices)`` with an ``edge_index`` per layer, or, with
    ``bipartite``, ``forward(x, adjs)`` as for ``torch_geometric.loader.NeighborSampler``, which
    computes only the rows that are needed.
    """

    uses_edge_weights: bool = False

    def __init__(self, module: nn.Module, *, bipartite: bool = False) -> None:
        """Wrap ``module``; ``bipartite`` selects its form."""
        super().__init__(module)
        self.bipartite = bipartite

    def forward(self, batch: MiniBatch, inputs: trainable.Inputs) -> torch.Tensor:
        """Return the seeds' logits ``[num_seeds, num_classes]`` float32."""
        if batch.blocks[0].edge_weights is not None:
            layer.say_unweighted(type(self.module).__name__)
        layers = to_adjacencies(batch) if self.bipartite else to_edge_indices(batch)
        out: torch.Tensor = self.module(inputs.x, layers)
        return out[: batch.num_seeds].float()


def whole_batch(
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None,
    edge_attr: Tensor | None = None,
    *,
    num_layers: int,
) -> tuple[MiniBatch, Inputs]:
    """Return a mini-batch whose seeds are all vertices, with all in-neighbours in every layer.

    Args:
        x: ``[n, num_features]`` rows of the vertices.
        edge_index: ``[2, num_edges]`` sources and targets of the edges, as PyTorch Geometric has
            them.
        edge_weight: ``[num_edges]`` weights; None if all edges count alike.
        edge_attr: ``[num_edges, num_edge_features]``; None if edges have no features.

    Raises:
        ConfigError: the tensors are not of these shapes, or an edge has no such vertex.
    """
    _check(x, edge_index, edge_weight, edge_attr)
    source, target = edge_index.cpu().numpy()
    order = np.argsort(target, kind="stable")
    indptr = np.zeros(len(x) + 1, np.int64)
    np.cumsum(np.bincount(target, minlength=len(x)), out=indptr[1:])
    weights: Float32Array | None = None
    if edge_weight is not None:
        weights = edge_weight.detach().cpu().numpy().astype(np.float32)[order]
    rows: Float32Array | None = None
    if edge_attr is not None:
        rows = edge_attr.detach().cpu().numpy().astype(np.float32)[order]
    block = Block(
        indptr=indptr,
        indices=source[order].astype(np.int32),
        num_src=len(x),
        edge_weights=weights,
        weight_sums=None if weights is None else list_sums(indptr, weights),
        edge_attr=rows,
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
        raise ConfigError(f"x: has shape {list(x.shape)}, must be [vertices, features]")
    integer = not (edge_index.is_floating_point() or edge_index.is_complex())
    if not integer or edge_index.dim() != 2 or len(edge_index) != 2:
        raise ConfigError(
            f"edge_index: {edge_index.dtype} of shape {list(edge_index.shape)}, must be whole "
            "numbers [2, edges]"
        )
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < len(x):
        raise ConfigError(
            f"edge_index: {int(edge_index.min())} to {int(edge_index.max())}, the vertices of x "
            f"are 0 to {len(x) - 1}"
        )
    if edge_weight is not None and edge_weight.shape != edge_index.shape[1:]:
        raise ConfigError(
            f"edge_weight: has shape {list(edge_weight.shape)}, must be [{edge_index.shape[1]}]"
        )
    if edge_attr is not None and (edge_attr.dim() != 2 or len(edge_attr) != edge_index.shape[1]):
        raise ConfigError(
            f"edge_attr: has shape {list(edge_attr.shape)}, must be [{edge_index.shape[1]}, "
            "features]"
        )
