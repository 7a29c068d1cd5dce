"""Blocks of the host as those of a device: arrays are longer than what counts, garbage after it."""

from typing import Any

import numpy as np
import torch

from gnnscale.backend.cuda.block import CudaBlock
from gnnscale.backend.cuda.host_kernels import HostKernels
from gnnscale.sampling import Block

#: What stands after the end of arrays: indices that no block has, and numbers that spoil sums.
_GARBAGE = {torch.int32: 1 << 30, torch.int64: 1 << 40, torch.float32: float("nan")}


#: Entries after the end, unless a test says otherwise.
SPARE = 3


def longer(array: Any, spare: int) -> torch.Tensor:
    """The array as a tensor, and ``spare`` entries of garbage."""
    found = torch.from_numpy(np.array(array))
    return torch.cat([found, torch.full((spare,), _GARBAGE[found.dtype], dtype=found.dtype)])


def padded(block: Block, vertices: Any, *, spare: int = SPARE, step: int = 0) -> CudaBlock:
    """``block`` on the host in place of a device, with room for ``spare`` more of everything.

    Args:
        vertices: ``[num_src]`` of the graph.
    """
    extra = {"importance": spare, "edge_weights": spare, "weight_sums": 2 * spare}
    found = {name: (getattr(block, name), more) for name, more in extra.items()}
    return CudaBlock(
        indptr=longer(block.indptr, spare),
        indices=longer(block.indices, spare),
        num_src=block.num_src + 2 * spare,
        **{n: longer(each, more) for n, (each, more) in found.items() if each is not None},
        kernels=HostKernels(num_threads=2),
        vertices=longer(vertices[: block.num_src], 2 * spare),
        num_vertices=torch.tensor([block.num_dst, block.num_src]),
        num_used=torch.tensor([block.num_edges]),
        step=torch.from_numpy(np.array([step], np.uint64).view(np.int64)),
    )


def rows_after(x: torch.Tensor, count: int, value: float = 0.0) -> torch.Tensor:
    """``x``, and ``count`` rows of one value."""
    return torch.cat([x, torch.full((count, *x.shape[1:]), value, dtype=x.dtype)])


def random_block(seed: int, *, importance: bool, weights: bool, sums: bool) -> Block:
    """A block with some destinations without edges."""
    rng = np.random.default_rng(seed)
    num_dst, more = rng.integers(1, 9), rng.integers(0, 12)
    counts = rng.integers(0, 9, num_dst)
    num_edges, num_src = counts.sum(), int(num_dst + more)

    def numbers(size: int, wanted: bool) -> Any:
        return rng.random(size).astype(np.float32) + 0.1 if wanted else None

    return Block(
        indptr=np.concatenate([[0], np.cumsum(counts)]),
        indices=rng.integers(0, num_src, num_edges).astype(np.int32),
        num_src=num_src,
        importance=numbers(num_edges, importance),
        edge_weights=numbers(num_edges, weights),
        weight_sums=numbers(num_src, weights or sums),
    )


def degrees_of(block: Block) -> Any:
    return np.random.default_rng(1).integers(1, 99, block.num_src).astype(np.float32)


def random_rows(count: int, width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    rows = torch.randn(count, width, generator=torch.Generator().manual_seed(count + width))
    return rows.to(dtype)


def vertices_of(block: Block, *, wide: bool = False) -> Any:
    found = np.random.default_rng(2).permutation(99)[: block.num_src]
    return found.astype(np.int64 if wide else np.int32)
