"""A whole graph in plain tensors as a mini-batch, so that a model can be called without a store."""

import numpy as np
from torch import Tensor

from gnnscale.core import ConfigError, Float32Array
from gnnscale.graph import list_sums
from gnnscale.model.trainable import Inputs
from gnnscale.sampler import Block, MiniBatch


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
