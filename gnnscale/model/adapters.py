"""A user's own DGL or PyG module over our mini-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from gnnscale import ops
from gnnscale.feature import FeatureStore
from gnnscale.model.gnn import Inputs
from gnnscale.model.layer import Degrees, say_unweighted
from gnnscale.sampler import MiniBatch

if TYPE_CHECKING:
    import dgl

__all__ = [
    "Adjacency",
    "DGLModel",
    "PyGModel",
    "import_dgl",
    "to_adjacencies",
    "to_dgl_blocks",
    "to_edge_indices",
]


class Adjacency(NamedTuple):
    """One layer as ``torch_geometric.loader.NeighborSampler`` hands it to a module.

    Attributes:
        edge_index: ``[2, num_edges]`` int64 local ids, sources then destinations.
        e_id: None, edges are not numbered.
        size: ``(num_src, num_dst)``.
    """

    edge_index: torch.Tensor
    e_id: None
    size: tuple[int, int]


def import_dgl() -> Any:
    """Return the module ``dgl``.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import dgl
    except ImportError:
        raise ImportError("DGL is not installed; pip install 'gnnscale[dgl]'") from None
    return dgl


def to_dgl_blocks(batch: MiniBatch, *, idtype: torch.dtype = torch.int64) -> list[dgl.DGLGraph]:
    """Turn the blocks of ``batch`` into DGL's, input layer first.

    Each has its vertices' ids in ``srcdata[dgl.NID]`` and ``dstdata[dgl.NID]``. Edges that carry
    their importance (layer-wise sampling) have it in ``edata["importance"]``, and those that carry
    their weight in ``edata["weight"]``.

    Args:
        batch: the mini-batch.
        idtype: type of ids in the result, int64 or int32.

    Raises:
        ImportError: DGL is not installed.
    """
    dgl = import_dgl()
    # Converted by NumPy: torch would start a pool of threads for every thread that calls this.
    dtype = np.dtype(np.int32 if idtype == torch.int32 else np.int64)
    vertices = torch.from_numpy(batch.input_vertices.astype(dtype, copy=False))
    no_edge_ids = torch.empty(0, dtype=idtype)
    blocks = []
    for block in batch.blocks:
        indptr, indices = (
            torch.from_numpy(ids.astype(dtype, copy=False)) for ids in (block.indptr, block.indices)
        )
        made = dgl.create_block(
            ("csc", (indptr, indices, no_edge_ids)),
            num_src_nodes=block.num_src,
            num_dst_nodes=block.num_dst,
            idtype=idtype,
        )
        made.srcdata[dgl.NID] = vertices[: block.num_src]
        made.dstdata[dgl.NID] = vertices[: block.num_dst]
        if block.importance is not None:
            made.edata["importance"] = torch.from_numpy(block.importance)
        if block.edge_weights is not None:
            made.edata["weight"] = torch.from_numpy(block.edge_weights)
        blocks.append(made)
    return blocks


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
    edge_indices = []
    for block in batch.blocks:
        if block.importance is not None:
            raise ValueError(
                "an edge_index has no place for the importance of layer-wise sampling; "
                "use neighbour sampling"
            )
        out = ops.empty((2, block.num_edges), torch.int64)
        ops.expand_edges(block.indptr, block.indices, first_dst=0, out=out.numpy())
        edge_indices.append(out)
    return edge_indices


def to_adjacencies(batch: MiniBatch) -> list[Adjacency]:
    """Return ``(edge_index, e_id, size)`` per layer, input layer first.

    This is the form of ``torch_geometric.loader.NeighborSampler``, for modules that apply a layer
    as ``conv((x, x[:size[1]]), edge_index)``.
    """
    return [
        Adjacency(edge_index, None, (block.num_src, block.num_dst))
        for edge_index, block in zip(to_edge_indices(batch), batch.blocks, strict=True)
    ]


class _GatheredModel(nn.Module):
    """A module that reads gathered rows. Loads and runs as ``GNN`` does."""

    #: Full-graph degrees are our own layers' affair.
    uses_degrees = False

    def __init__(self, module: nn.Module) -> None:
        """Wrap ``module``; its parameters are this module's."""
        super().__init__()
        self.module = module

    def load(
        self,
        store: FeatureStore,
        batch: MiniBatch,
        degrees: Degrees,
        *,
        aggregates: bool,
        dtype: torch.dtype,
        num_threads: int,
    ) -> Inputs:
        """Gather the input rows; a foreign module aggregates them itself."""
        x, traffic = store.gather(batch.input_vertices, dtype=dtype, num_threads=num_threads)
        return Inputs(x=x, aggregated=False, degrees=degrees, traffic=traffic)


class DGLModel(_GatheredModel):
    """A DGL module with ``forward(blocks, x)`` returning the seeds' rows, unchanged."""

    def forward(self, batch: MiniBatch, inputs: Inputs) -> torch.Tensor:
        """Return the seeds' logits ``[num_seeds, num_classes]`` float32."""
        out: torch.Tensor = self.module(to_dgl_blocks(batch), inputs.x)
        return out.float()


class PyGModel(_GatheredModel):
    """A PyG module, unchanged.

    Its forward is ``forward(x, edge_indices)`` with an ``edge_index`` per layer, or, with
    ``bipartite``, ``forward(x, adjs)`` as for ``torch_geometric.loader.NeighborSampler``, which
    computes only the rows that are needed.
    """

    def __init__(self, module: nn.Module, *, bipartite: bool = False) -> None:
        """Wrap ``module``; ``bipartite`` says which form it takes."""
        super().__init__(module)
        self.bipartite = bipartite

    def forward(self, batch: MiniBatch, inputs: Inputs) -> torch.Tensor:
        """Return the seeds' logits ``[num_seeds, num_classes]`` float32."""
        if batch.blocks[0].edge_weights is not None:
            say_unweighted(type(self.module).__name__)
        layers = to_adjacencies(batch) if self.bipartite else to_edge_indices(batch)
        out: torch.Tensor = self.module(inputs.x, layers)
        return out[: batch.num_seeds].float()
