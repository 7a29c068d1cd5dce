"""The peers' own ways of doing what is measured here, on this project's graphs.

Every function imports its library itself, so that a benchmark measures what is installed.
"""

import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

warnings.filterwarnings("ignore")


def dgl_graph(graph: Any, dtype: torch.dtype = torch.int64) -> Any:
    import dgl

    indptr, indices = (each.to(dtype) for each in csc(graph))
    lists = ("csc", (indptr, indices, torch.tensor([], dtype=dtype)))
    return dgl.graph(lists, num_nodes=graph.num_vertices, idtype=dtype).formats("csc")


def pyg_data(graph: Any) -> Any:
    """Return the graph as a PyG ``Data`` whose ``edge_index`` is sorted by destination."""
    from torch_geometric.data import Data

    rowptr, col = csc(graph)
    vertices = torch.arange(graph.num_vertices)
    edge_index = torch.stack([col, vertices.repeat_interleave(rowptr.diff())])
    return Data(x=features(graph), y=labels(graph), edge_index=edge_index)


def sampling_library() -> str:
    """Return which library PyG samples with: pyg-lib if it is installed, else torch-sparse."""
    from torch_geometric import typing

    if typing.WITH_PYG_LIB:
        return "pyg-lib"
    if typing.WITH_TORCH_SPARSE:
        return "torch-sparse"
    raise ImportError("PyG samples with pyg-lib or torch-sparse, and neither is installed")


def sample_with(library: str) -> None:
    from torch_geometric import typing

    if library == "torch-sparse":
        typing.WITH_PYG_LIB = False
    if sampling_library() != library:
        raise ImportError(f"{library} is not installed")


def pyg_loader(graph: Any, **options: Any) -> Any:
    from torch_geometric.loader import NeighborLoader

    sampling_library()
    return NeighborLoader(pyg_data(graph), is_sorted=True, **options)


def csc(graph: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``indptr`` and ``indices`` in memory, as int64."""
    return _memory(graph.indptr).long(), _memory(graph.indices).long()


def _memory(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


def features(graph: Any) -> torch.Tensor:
    return _memory(graph.features)


def labels(graph: Any) -> torch.Tensor:
    return _memory(graph.labels)


class DglSage(torch.nn.Module):
    """Layers of DGL's SAGEConv, ReLU and dropout between them, as in DGL's own examples."""

    def __init__(self, widths: Sequence[int], dropout: float = 0.0) -> None:
        from dgl.nn import SAGEConv

        super().__init__()
        self.layers = torch.nn.ModuleList(SAGEConv(*pair, "mean") for pair in pairwise(widths))
        self.dropout = torch.nn.Dropout(dropout) if dropout else torch.nn.Identity()

    def forward(self, blocks: Any, x: torch.Tensor) -> torch.Tensor:
        for index, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            x = layer(block, self.dropout(x.relu()) if index else x)
        return x


class DglExample(DglSage):
    """Two layers, with the arguments that modules of DGL's examples have."""

    def __init__(self, in_feats: int, n_hidden: int, n_classes: int) -> None:
        super().__init__([in_feats, n_hidden, n_classes])


def pyg_sage(num_features: int, num_classes: int, hidden: int) -> torch.nn.Module:
    from torch_geometric.nn import GraphSAGE

    return GraphSAGE(num_features, hidden, 2, num_classes)


def pyg_logits(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    """Return the logits of seeds; layers are trimmed if the loader says how (pyg-lib's)."""
    names = ("num_sampled_nodes", "num_sampled_edges")
    hops = {f"{name}_per_hop": getattr(batch, name) for name in names if name in batch}
    return model(batch.x, batch.edge_index, **hops)[: batch.batch_size]


def pyg_loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(pyg_logits(model, batch), batch.y[: batch.batch_size])
