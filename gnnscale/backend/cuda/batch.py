"""Mini-batches on a device, of which the host need not know how large they are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from gnnscale.backend.cuda.block import CudaBlock
from gnnscale.backend.cuda.capacity import BatchCapacity, SampleSizes
from gnnscale.backend.cuda.device_sample import DeviceSample, links_on
from gnnscale.backend.cuda.kernels import Kernels
from gnnscale.backend.cuda.sampler_plan import State
from gnnscale.core import Array
from gnnscale.sampling import MiniBatch


@dataclass(frozen=True, kw_only=True)
class CudaBatch(MiniBatch):
    """A mini-batch whose arrays are tensors of a device; ``seeds`` are too."""

    host_seeds: Array  #: ``[num_seeds]`` the seeds, as the host knows them
    slice_seeds: Array  #: what the host samples the same of: vertices, or numbers of edges
    num_sources: torch.Tensor  #: ``[1]`` int64 on the device: how many input vertices there are
    #: reads of adjacency lists by place, if the host has waited for them; see ``Found``
    found_lists: tuple[int, ...] = ()
    #: bytes that crossed the link if the host has sampled it; None if the device has
    sent_bytes: int | None = None

    @property
    def first_seed(self) -> int:
        """The first seed."""
        return int(self.host_seeds[0])

    @property
    def input_block(self) -> CudaBlock:
        """The block that reads the input features."""
        block = self.blocks[0]
        assert isinstance(block, CudaBlock)
        return block

    @property
    def vertices(self) -> torch.Tensor:
        """``input_vertices``, which are a tensor."""
        return self.input_block.vertices

    def again(self) -> CudaBatch:
        """Return it without what was computed of its arrays, which were written again."""
        return replace(self, blocks=tuple(replace(each) for each in self.blocks))

    def copy(self) -> CudaBatch:
        """Return a mini-batch that the next samples do not overwrite."""
        vertices = self.vertices.clone()
        blocks = tuple(each.copy(vertices) for each in self.blocks if isinstance(each, CudaBlock))
        return replace(
            self,
            input_vertices=vertices,  # type: ignore[arg-type]
            blocks=blocks,
            num_sources=blocks[0].num_vertices[1:],
        )


def largest_sizes(room: BatchCapacity) -> SampleSizes:
    """Return what a sample has at most."""
    return SampleSizes(num_vertices=room.num_vertices, num_edges=room.num_edges)


def batch_of(
    sample: DeviceSample,
    host_seeds: Array,
    sizes: SampleSizes,
    kernels: Kernels,
    *,
    step: int,
    weight_sums: torch.Tensor | None,
) -> CudaBatch:
    """Return a sample as a mini-batch; arrays are the sample's own.

    Args:
        sizes: its own, or the largest that there can be: arrays then hold anything after their end.
        step: of the run, as the host knows it; a step that is repeated as it was recorded has
            another one, which the device knows.
        weight_sums: ``[num_vertices]`` by local id, if edges have weights.
    """
    blocks = []
    for hop, arrays in enumerate(sample.hops):
        num_dst, num_src = sizes.num_vertices[hop : hop + 2]
        num_edges = sizes.num_edges[hop]
        last = hop + 1 == len(sample.hops)
        blocks.append(
            CudaBlock(
                indptr=arrays.indptr[: num_dst + 1],
                indices=arrays.indices[:num_edges],
                importance=_first(arrays.importance, num_edges),
                edge_weights=_first(arrays.edge_weights, num_edges),
                edge_vertices=sample.edge_vertices if last else None,
                weight_sums=None if weight_sums is None else weight_sums[:num_src],
                num_src=num_src,
                kernels=kernels,
                vertices=sample.vertices[:num_src],
                num_vertices=sample.num_vertices[hop : hop + 2],
                num_used=sample.num_edges[hop : hop + 1],
                step=sample.state[State.STEP : State.STEP + 1],
            )
        )
    return CudaBatch(
        seed=sample.seed,
        step=step,
        num_seeds=len(host_seeds),
        input_vertices=sample.vertices[: sizes.num_vertices[-1]],  # type: ignore[arg-type]
        blocks=tuple(reversed(blocks)),
        host_seeds=host_seeds,
        slice_seeds=host_seeds,
        num_sources=sample.num_vertices[-1:],
    )


def batch_from_host(
    batch: MiniBatch, slice_seeds: Array, kernels: Kernels, device: torch.device
) -> CudaBatch:
    """Copy what the host has sampled to a device.

    Args:
        slice_seeds: of which it was sampled: vertices, or numbers of edges.
        device: of ``kernels``.
    """

    def copied(array: Array | None) -> torch.Tensor | None:
        return None if array is None else torch.from_numpy(np.ascontiguousarray(array)).to(device)

    vertices = copied(batch.input_vertices)
    assert vertices is not None
    hops = tuple(reversed(batch.blocks))
    ends = [batch.num_seeds, *(each.num_src for each in hops)]
    num_vertices = torch.tensor(ends, device=device)
    num_edges = torch.tensor([each.num_edges for each in hops], device=device)
    step = torch.tensor([np.uint64(batch.step).astype(np.int64)], device=device)
    blocks = [
        CudaBlock(
            indptr=copied(each.indptr),  # type: ignore[arg-type]
            indices=copied(each.indices),  # type: ignore[arg-type]
            importance=copied(each.importance),
            edge_weights=copied(each.edge_weights),
            weight_sums=copied(each.weight_sums),
            num_src=each.num_src,
            kernels=kernels,
            vertices=vertices[: each.num_src],
            num_vertices=num_vertices[hop : hop + 2],
            num_used=num_edges[hop : hop + 1],
            step=step,
        )
        for hop, each in enumerate(hops)
    ]
    return CudaBatch(
        seed=batch.seed,
        step=batch.step,
        num_seeds=batch.num_seeds,
        input_vertices=vertices,  # type: ignore[arg-type]
        blocks=tuple(reversed(blocks)),
        links=None if batch.links is None else links_on(batch.links, device),
        host_seeds=batch.seeds,
        slice_seeds=slice_seeds,
        num_sources=num_vertices[-1:],
        sent_bytes=batch.num_bytes,
    )


def _first(array: torch.Tensor | None, size: int) -> torch.Tensor | None:
    return None if array is None else array[:size]
