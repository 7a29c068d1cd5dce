"""A sample that lies on a device, and how the host comes to know it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from gnnscale import ops
from gnnscale.backend.base import BackendInputs
from gnnscale.backend.cuda.capacity import BatchCapacity, DeviceGraph, SampleSizes
from gnnscale.backend.cuda.sampler_plan import HopArrays, State
from gnnscale.core import MAX_COUNT, Array, Float32Array
from gnnscale.sampling import minibatch
from gnnscale.sampling.edge_batches import LinkSampler, LinkSampling, LinkSeeds
from gnnscale.sampling.minibatch import Links

#: What can be wrong, in the order of ``SampleError`` in sample.hpp.
_SEED, _LIST, _EDGES, _NEIGHBOR, _CANDIDATE, _VERTICES = range(6)

#: Bits of an error that say at which place it is; hop and kind are above them.
_PLACE_BITS = 48


@dataclass(frozen=True, kw_only=True)
class DeviceSample:
    """A sample on the device, whose sizes may not be known yet.

    Its arrays are longer than what they hold: ``sizes`` says how much counts. They are overwritten
    by the next sample of the same slot.
    """

    seed: int  #: of the run
    seeds: torch.Tensor  #: ``[num_seeds]`` vertices of the graph
    vertices: torch.Tensor  #: vertices of the graph by local id, seeds first; of indices' dtype
    picked: torch.Tensor  #: the last hop's sources, before any edges were left out
    hops: tuple[HopArrays, ...]  #: from the seeds outwards
    #: sources of the last hop's edges as vertices of the graph; None from layer-wise sampling
    edge_vertices: torch.Tensor | None
    #: ``[num_hops + 1]`` int64 on the device: vertices before each hop, and after the last one
    num_vertices: torch.Tensor
    num_edges: torch.Tensor  #: ``[num_hops]`` int64 on the device: edges of each hop
    state: torch.Tensor  #: int64, see ``State``: what the two above are part of
    #: ``[num_members + 1]`` int64 reads in lists at each member, and at the host
    found: torch.Tensor
    graph: DeviceGraph  #: that was sampled from
    room: BatchCapacity  #: that there was

    def sizes(self) -> SampleSizes:
        """Wait for the sample, and return its sizes: one copy.

        It is made on the current stream, which must be the sample's or wait for it.

        Raises:
            ValueError: a seed is no vertex or appears twice, or there is no room for the sample.
            GraphError: the topology is damaged.
        """
        return self.sizes_in(self.state.tolist())

    def sizes_in(self, words: list[int]) -> SampleSizes:
        """Return the sizes by a copy of ``state`` on the host.

        Raises:
            ValueError, GraphError: as ``sizes`` does.
        """
        if words[State.ERROR] != -1:
            self._refuse(words)
        num_hops, first = len(self.hops), self._first_edges
        return SampleSizes(
            num_vertices=tuple(words[State.NUM_VERTICES : State.NUM_VERTICES + num_hops + 1]),
            num_edges=tuple(words[first : first + num_hops]),
        )

    @property
    def found_lists(self) -> torch.Tensor | None:
        """Reads of lists by place; None without a cache of lists."""
        return None if self.graph.cached is None else self.found

    @cached_property
    def _first_edges(self) -> int:
        """The place in ``state`` of its numbers of edges."""
        return int(self.num_edges.storage_offset() - self.state.storage_offset())

    def to_minibatch(self, *, weight_sums: Float32Array | None = None) -> minibatch.MiniBatch:
        """Return the sample as the host's record.

        Args:
            weight_sums: ``[num_vertices]`` of the graph, if its edges have weights.

        Raises:
            ValueError, GraphError: as ``sizes`` does.
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
        """Raise what the native sampler would."""
        error = words[State.ERROR]
        place = error & ((1 << _PLACE_BITS) - 1)
        hop, kind = divmod(error >> _PLACE_BITS, 8)
        if kind == _SEED:
            raise ValueError(self._wrong_seed(int(self.seeds[place])))
        if kind in (_EDGES, _VERTICES):
            self._refuse_size(hop, kind, place)
        if kind == _NEIGHBOR:
            raise ops.damaged(self.graph.name, self._wrong_neighbor(place, words))
        vertex = place if kind == _CANDIDATE else int(self.vertices[place])
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

    def _refuse_size(self, hop: int, kind: int, found: int) -> None:
        room = self.room.num_edges[hop] if kind == _EDGES else self.room.num_vertices[hop + 1]
        if kind == _EDGES and room == self.graph.num_edges:
            # A vertex is expanded once, so that lists which do not overlap cannot have more.
            raise ops.damaged(
                self.graph.name, f"indptr: {found} edges lead to a hop's vertices, there are {room}"
            )
        if room >= MAX_COUNT:
            option = "layer_sizes" if self.edge_vertices is None else "fanouts"
            raise ValueError(
                f"{option}: a hop has more than {MAX_COUNT} vertices or edges; smaller fan-outs or "
                "fewer seeds are needed"
            )
        what = "edges" if kind == _EDGES else "vertices"
        raise ValueError(
            f"max_edges: hop {hop + 1} has {found:,} {what}, there is room for {room:,}"
        )


def _first(array: torch.Tensor, size: int) -> Array:
    # A copy: the next sample overwrites the array, also if the device is the host.
    return np.array(array[:size].cpu().numpy())


def _optional(array: torch.Tensor | None, size: int) -> Array | None:
    return None if array is None else _first(array, size)


@dataclass(frozen=True, kw_only=True)
class DeviceSeeds:
    """The seeds of a step, as the host knows them."""

    vertices: Array  #: ``[n]`` that are sampled from
    slice_seeds: Array  #: ``[m]`` those of the slice: vertices, or numbers of edges
    edges: LinkSeeds | None = None  #: if edges are predicted

    @property
    def count(self) -> int:
        """Seeds of the slice, which its mean loss counts by."""
        return len(self.slice_seeds)

    def links_on(self, device: torch.device) -> Links | None:
        """Return the predicted edges as tensors of ``device``."""
        return None if self.edges is None else links_on(self.edges.links, device)

    def without_on(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return the ends of the edges whose messages are left out, as tensors of ``device``."""
        if self.edges is None:
            return None
        sources, destinations = (
            torch.from_numpy(np.asarray(each, np.int64)).to(device, non_blocking=True)
            for each in (self.edges.sources, self.edges.destinations)
        )
        return sources, destinations


def links_on(links: Links, device: torch.device) -> Links:
    """Return predicted edges as tensors of ``device``."""
    sources, destinations = (
        torch.from_numpy(each).to(device, non_blocking=True)
        for each in (links.sources, links.destinations)
    )
    return Links(sources=sources, destinations=destinations)  # type: ignore[arg-type]


def seeds_of(host: BackendInputs, seeds: Array, step: int) -> DeviceSeeds:
    """Return what ``seeds``, a slice of a step, are sampled from.

    Raises:
        ValueError: one is no vertex, whose label no kernel may look for.
    """
    if isinstance(host.sampler, LinkSampler):
        drawn = host.sampler.draw(seeds, step)
        return DeviceSeeds(vertices=drawn.vertices, slice_seeds=np.array(seeds), edges=drawn)
    vertices, count = np.array(seeds), host.graph.num_vertices
    # As unsigned numbers those below 0 are the largest.
    if len(vertices) and vertices.view(f"u{vertices.itemsize}").max() >= count:
        wrong = vertices[(vertices < 0) | (vertices >= count)][0]
        raise ValueError(f"seeds: {wrong} is not a vertex, the graph has {count}")
    return DeviceSeeds(vertices=vertices, slice_seeds=vertices)


def max_seeds(host: BackendInputs) -> int:
    """Return how many vertices a slice is sampled from at most."""
    sampling = host.sampling
    if isinstance(sampling, LinkSampling):
        return host.batch_size * (2 + sampling.num_negatives)
    return host.batch_size
