"""Mini-batches in device memory, whose sizes may be unknown to the host."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from gnnscale.backend.cuda.block import CudaBlock
from gnnscale.backend.cuda.capacity import SampleSizes
from gnnscale.backend.cuda.device_sample import DeviceSample, links_on
from gnnscale.backend.cuda.kernels import Kernels
from gnnscale.backend.cuda.sampler_plan import State
from gnnscale.core import Array
from gnnscale.sampling import MiniBatch


@dataclass(frozen=True, kw_only=True)
class CudaBatch(MiniBatch):
    """Mini-batch whose arrays are tensors of a device, next to host arrays of its seeds."""

    host_seeds: Array  #: ``[num_seeds]`` seed vertices, on the host
    slice_seeds: Array  #: seeds of the slice on the host: vertices, or numbers of edges
    num_sources: torch.Tensor  #: ``[1]`` int64 on the device: number of input vertices
    #: reads of adjacency lists by location, if the host has waited for them; see ``ReadCounts``
    list_reads: tuple[int, ...] = ()
    #: bytes copied from the host, which has sampled; None: the device has sampled
    sent_bytes: int | None = None

    @property
    def first_seed(self) -> int:
        """First seed vertex, read on the host; IndexError: the mini-batch is empty."""
        return int(self.host_seeds[0])

    @property
    def input_block(self) -> CudaBlock:
        """Block of the first layer, which reads the input features."""
        block = self.blocks[0]
        assert isinstance(block, CudaBlock)
        return block

    @property
    def vertices(self) -> torch.Tensor:
        """``input_vertices`` as a tensor."""
        return self.input_block.vertices

    def again(self) -> "CudaBatch":
        """Return a batch over the same arrays, without values cached from earlier contents."""
        return replace(self, blocks=tuple(replace(block) for block in self.blocks))

    def copy(self) -> "CudaBatch":
        """Return a copy of the mini-batch whose arrays later samples do not overwrite."""
        vertices = self.vertices.clone()
        blocks = tuple(
            block.copy(vertices) for block in self.blocks if isinstance(block, CudaBlock)
        )
        return replace(
            self,
            input_vertices=vertices,  # type: ignore[arg-type]
            blocks=blocks,
            num_sources=blocks[0].num_vertices[1:],
        )


def batch_of(
    sample: DeviceSample,
    host_seeds: Array,
    sizes: SampleSizes,
    kernels: Kernels,
    *,
    step: int,
    weight_sums: torch.Tensor | None,
) -> CudaBatch:
    """Return a sample as a mini-batch that shares the sample's arrays.

    Args:
        host_seeds: seed vertices, in host memory.
        sizes: sizes of the sample, or upper bounds; entries past the actual sizes are undefined.
        step: step of the run. A replay of a recording reads its step from device memory.
        weight_sums: sums of in-edge weights by local id, as long as ``sample.vertices``. None:
            edges have no weights.
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
    """Copy a mini-batch sampled on the host from ``slice_seeds`` to a device.

    ``slice_seeds`` are vertices, or indices of edges if the run predicts edges.
    """

    def copied(array: Array | None) -> torch.Tensor | None:
        return None if array is None else torch.from_numpy(np.ascontiguousarray(array)).to(device)

    vertices = copied(batch.input_vertices)
    assert vertices is not None
    hops = tuple(reversed(batch.blocks))
    ends = [batch.num_seeds, *(block.num_src for block in hops)]
    num_vertices = torch.tensor(ends, device=device)
    num_edges = torch.tensor([block.num_edges for block in hops], device=device)
    step = torch.tensor([np.uint64(batch.step).astype(np.int64)], device=device)
    blocks = [
        CudaBlock(
            indptr=copied(block.indptr),  # type: ignore[arg-type]
            indices=copied(block.indices),  # type: ignore[arg-type]
            importance=copied(block.importance),
            edge_weights=copied(block.edge_weights),
            weight_sums=copied(block.weight_sums),
            num_src=block.num_src,
            kernels=kernels,
            vertices=vertices[: block.num_src],
            num_vertices=num_vertices[hop : hop + 2],
            num_used=num_edges[hop : hop + 1],
            step=step,
        )
        for hop, block in enumerate(hops)
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
