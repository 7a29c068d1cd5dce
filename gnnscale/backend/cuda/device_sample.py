"""Sample in device memory, and its conversion to the host's mini-batch."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from gnnscale import ops
from gnnscale.backend.base import BackendInputs
from gnnscale.backend.cuda.capacity import BatchCapacity, DeviceGraph, SampleSizes
from gnnscale.backend.cuda.sampler_plan import HopArrays, State
from gnnscale.core import MAX_COUNT, Array, Float32Array
from gnnscale.sampling import Links, LinkSampler, LinkSampling, LinkSeeds, minibatch

#: Kinds of errors, in the order of ``SampleError`` in sample.hpp.
_SEED, _LIST, _EDGES, _NEIGHBOR, _CANDIDATE, _VERTICES = range(6)

#: Low bits of an error, which hold an index; hop and kind are above them.
_INDEX_BITS = 48


@dataclass(frozen=True, kw_only=True)
class DeviceSample:
    """Sample in device memory, whose sizes the host may not know yet.

    Arrays have the sampler's capacity; ``sizes`` gives their valid lengths. The next sample in the
    same buffers overwrites them.

        sample = sampler.sample(seeds, step=0)
        sample.sizes()  # SampleSizes(num_vertices=(2, 5, 9), num_edges=(4, 8)), waits
        batch = sample.to_minibatch()
    """

    seed: int  #: random seed of the run
    seeds: torch.Tensor  #: ``[num_seeds]`` vertices of the graph
    vertices: torch.Tensor  #: vertices of the graph by local id, seeds first; of indices' dtype
    picked: torch.Tensor  #: sources of the last hop, excluded edges included
    hops: tuple[HopArrays, ...]  #: from the seeds outwards
    #: sources of the last hop's edges as vertices of the graph; None: layer-wise sampling
    edge_vertices: torch.Tensor | None
    #: ``[num_hops + 1]`` int64 on the device: vertices before each hop, and after the last one
    num_vertices: torch.Tensor
    num_edges: torch.Tensor  #: ``[num_hops]`` int64 on the device: edges of each hop
    state: torch.Tensor  #: int64 words (``State``), which include the two counts above
    #: ``[num_members + 1]`` int64 list reads from each member, then from the host
    read_counts: torch.Tensor
    graph: DeviceGraph  #: sampled topology
    capacity: BatchCapacity  #: capacity of the arrays

    def sizes(self) -> SampleSizes:
        """Wait for the sample, and return its sizes.

        The copy to the host runs on the current stream, which must be the sample's or wait for it.
        Raises ValueError if a seed is not a vertex or appears twice, or the sample exceeds its
        capacity; GraphError if the topology is damaged.
        """
        return self.sizes_in(self.state.tolist())

    def sizes_in(self, words: list[int]) -> SampleSizes:
        """Return the sizes in a host copy ``words`` of ``state``; errors are those of ``sizes``."""
        if words[State.ERROR] != -1:
            self._refuse(words)
        num_hops, first = len(self.hops), self._first_edges
        return SampleSizes(
            num_vertices=tuple(words[State.NUM_VERTICES : State.NUM_VERTICES + num_hops + 1]),
            num_edges=tuple(words[first : first + num_hops]),
        )

    @property
    def list_reads(self) -> torch.Tensor | None:
        """Device tensor of numbers of adjacency lists read from each clique member, then the host.

        None: no device of the clique caches lists.
        """
        return None if self.graph.cached is None else self.read_counts

    @cached_property
    def _first_edges(self) -> int:
        """Index in ``state`` of the first word of ``num_edges``."""
        return int(self.num_edges.storage_offset() - self.state.storage_offset())

    def to_minibatch(self, *, weight_sums: Float32Array | None = None) -> minibatch.MiniBatch:
        """Wait, and return the sample as a mini-batch of the host; errors are those of ``sizes``.

        ``weight_sums`` are the sums of in-edge weights of the graph's vertices, ``[num_vertices]``.
        None: edges have no weights.
        """
        words = self.state.tolist()
        sizes = self.sizes_in(words)
        ends = zip(sizes.num_vertices, sizes.num_vertices[1:], strict=False)
        hops = [
            ops.SampledHop(
                _first(hop.indptr, num_dst + 1),
                _first(hop.indices, num_edges),
                num_src,
                _optional(hop.importance, num_edges),
                _optional(hop.positions, num_edges),
                _optional(hop.edge_weights, num_edges),
            )
            for hop, (num_dst, num_src), num_edges in zip(
                self.hops, ends, sizes.num_edges, strict=True
            )
        ]
        vertices = _first(self.vertices, sizes.num_vertices[-1])
        sources = _optional(self.edge_vertices, sizes.num_edges[-1])
        return minibatch.to_minibatch(
            len(self.seeds),
            (vertices, hops, sources),
            seed=self.seed,
            step=words[State.STEP] & (1 << 64) - 1,  # unsigned
            weight_sums=weight_sums,
        )

    def _refuse(self, words: list[int]) -> None:
        """Raise the error that a host copy ``words`` of the sample's ``state`` records.

        It equals the native sampler's error for the same input.
        """
        error = words[State.ERROR]
        index = error & ((1 << _INDEX_BITS) - 1)
        hop, kind = divmod(error >> _INDEX_BITS, 8)
        if kind == _SEED:
            raise ValueError(self._wrong_seed(int(self.seeds[index])))
        if kind in (_EDGES, _VERTICES):
            self._refuse_size(hop, kind, index)
        if kind == _NEIGHBOR:
            raise ops.damaged(self.graph.name, self._wrong_neighbor(index, words))
        vertex = index if kind == _CANDIDATE else int(self.vertices[index])
        begin, end = self.graph.indptr[vertex : vertex + 2].tolist()
        raise ops.damaged(
            self.graph.name,
            f"indptr: the neighbours of vertex {vertex} are {begin} to {end}, there are "
            f"{self.graph.num_edges} edges",
        )

    def _wrong_seed(self, seed: int) -> str:
        if 0 <= seed < self.graph.num_vertices:
            return f"seeds: {seed} appears twice in a batch"
        return f"seeds: {seed} is not a vertex, the graph has {self.graph.num_vertices}"

    def _wrong_neighbor(self, edge: int, words: list[int]) -> str:
        lowest, greatest = words[State.LOWEST], words[State.GREATEST]
        if self.edge_vertices is None:
            vertex = lowest if lowest < 0 else greatest
        else:
            vertex = int(self.picked[edge])
        return f"indices: {vertex} is no vertex, the graph has {self.graph.num_vertices}"

    def _refuse_size(self, hop: int, kind: int, count: int) -> None:
        capacity = (
            self.capacity.num_edges[hop] if kind == _EDGES else self.capacity.num_vertices[hop + 1]
        )
        if kind == _EDGES and capacity == self.graph.num_edges:
            # A hop expands each vertex once, so that only overlapping lists have more edges.
            raise ops.damaged(
                self.graph.name,
                f"indptr: {count} edges lead to a hop's vertices, there are {capacity}",
            )
        if capacity >= MAX_COUNT:
            option = "layer_sizes" if self.edge_vertices is None else "fanouts"
            raise ValueError(
                f"{option}: a hop has more than {MAX_COUNT} vertices or edges; smaller fan-outs or "
                "fewer seeds are needed"
            )
        what = "edges" if kind == _EDGES else "vertices"
        raise ValueError(
            f"max_edges: hop {hop + 1} has {count:,} {what}, there is room for {capacity:,}"
        )


def _first(array: torch.Tensor, size: int) -> Array:
    # A copy, since the next sample overwrites the array even if the device is the host.
    return np.array(array[:size].cpu().numpy())


def _optional(array: torch.Tensor | None, size: int) -> Array | None:
    return None if array is None else _first(array, size)


@dataclass(frozen=True, kw_only=True)
class DeviceSeeds:
    """Seeds of a device's step, and the vertices to sample from for them, in host memory."""

    vertices: Array  #: ``[n]`` vertices whose neighborhoods are sampled
    slice_seeds: Array  #: ``[m]`` seeds of the slice: vertices, or numbers of edges
    edges: LinkSeeds | None = None  #: predicted edges. None: seeds are vertices

    @property
    def count(self) -> int:
        """Number of the device's seeds in the step, over which its loss is averaged."""
        return len(self.slice_seeds)

    def links_on(self, device: torch.device) -> Links | None:
        """Return the predicted edges as tensors of ``device``. None: seeds are vertices."""
        return None if self.edges is None else links_on(self.edges.links, device)

    def without_on(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return sources and destinations of edges that samples leave out, on ``device``.

        None: seeds are vertices, and no edge is left out.
        """
        if self.edges is None:
            return None
        sources, destinations = (
            torch.from_numpy(np.asarray(ends, np.int64)).to(device, non_blocking=True)
            for ends in (self.edges.sources, self.edges.destinations)
        )
        return sources, destinations


def links_on(links: Links, device: torch.device) -> Links:
    """Return predicted edges, by positions of their ends among the seeds, copied to ``device``."""
    sources, destinations = (
        torch.from_numpy(ends).to(device, non_blocking=True)
        for ends in (links.sources, links.destinations)
    )
    return Links(sources=sources, destinations=destinations)  # type: ignore[arg-type]


def seeds_of(host: BackendInputs, seeds: Array, step: int) -> DeviceSeeds:
    """Return ``seeds`` with the vertices to sample from in ``step``.

    These are the seeds, or for predicted edges their ends and the negatives drawn here. ValueError:
    a seed is no vertex.
    """
    if isinstance(host.sampler, LinkSampler):
        edges = host.sampler.draw(seeds, step)
        return DeviceSeeds(vertices=edges.vertices, slice_seeds=np.array(seeds), edges=edges)
    vertices, count = np.array(seeds), host.graph.num_vertices
    # Negative numbers are the largest ones as unsigned numbers.
    if len(vertices) and vertices.view(f"u{vertices.itemsize}").max() >= count:
        wrong = vertices[(vertices < 0) | (vertices >= count)][0]
        raise ValueError(f"seeds: {wrong} is not a vertex, the graph has {count}")
    return DeviceSeeds(vertices=vertices, slice_seeds=vertices)


def max_seeds(host: BackendInputs) -> int:
    """Return the maximum number of vertices from which the device samples in a step.

    These are its seeds, or for predicted edges their ends and negatives.
    """
    sampling = host.sampling
    if isinstance(sampling, LinkSampling):
        return host.batch_size * (2 + sampling.num_negatives)
    return host.batch_size
