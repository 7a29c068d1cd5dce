"""A mini-batch's first block as one array of numbers, which devices send each other (P3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale.sampler import Block, MiniBatch

__all__ = ["InputBlock", "pack", "unpack"]

#: Destinations, sources, edges, and whether there is each of ``_OPTIONAL``.
_HEADER = 6
#: float32 arrays that a block may have: for each edge, each edge, and each source.
_OPTIONAL = ("importance", "edge_weights", "weight_sums")


@dataclass(frozen=True, kw_only=True)
class InputBlock:
    """What a device needs to aggregate its columns for another one's mini-batch.

    Attributes:
        vertices: ``[num_src]`` vertex of each source.
        block: the first layer's block.
    """

    vertices: NDArray[np.integer[Any]]
    block: Block


def pack(batch: MiniBatch) -> torch.Tensor:
    """Return the input block of ``batch`` as int32 numbers.

    Vertex ids of 64 bits take two of them. A destination has fewer than 2^31 edges, so that its
    count takes the place of its offset.
    """
    block = batch.blocks[0]
    optional = [getattr(block, name) for name in _OPTIONAL]
    sizes = [block.num_dst, block.num_src, block.num_edges]
    header = np.array([*sizes, *(each is not None for each in optional)], np.int32)
    parts = [
        header,
        batch.input_vertices.view(np.int32),
        np.diff(block.indptr).astype(np.int32),
        block.indices,
    ]
    parts += [each.view(np.int32) for each in optional if each is not None]
    return torch.from_numpy(np.concatenate(parts))


def unpack(numbers: torch.Tensor, dtype: np.dtype[Any]) -> InputBlock:
    """Return the input block that ``pack`` has made into ``numbers``.

    Args:
        numbers: ``[n]`` int32.
        dtype: of vertex ids.
    """
    values: NDArray[np.int32] = numbers.numpy()
    num_dst, num_src, num_edges, *has = (int(each) for each in values[:_HEADER])
    lengths = (num_edges, num_edges, num_src)
    sizes = (num_src * (dtype.itemsize // 4), num_dst, num_edges, *np.multiply(lengths, has))
    vertices, counts, indices, *optional = np.split(values[_HEADER:], np.cumsum(sizes)[:-1])
    importance, edge_weights, weight_sums = (
        each.view(np.float32) if there else None for each, there in zip(optional, has, strict=True)
    )
    indptr = np.zeros(num_dst + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    block = Block(
        indptr=indptr,
        indices=indices,
        num_src=num_src,
        importance=importance,
        edge_weights=edge_weights,
        weight_sums=weight_sums,
    )
    return InputBlock(vertices=vertices.view(dtype), block=block)
