"""Samples on a device by kernels, equal to the native sampler's for every seed and step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gnnscale import ops
from gnnscale.backend.cuda import sampler_plan
from gnnscale.backend.cuda.kernels import Kernels
from gnnscale.backend.cuda.sampler_plan import DeviceGraph, HopArrays, Room, Sampling, State
from gnnscale.core import MAX_COUNT, ConfigError
from gnnscale.sampler import LayerSampling, WeightedSampling, minibatch
from gnnscale.sampler.minibatch import MAX_HOPS

#: Blocks of 256 threads that a multiprocessor holds at a time.
_BLOCKS = 8
#: More than any stamp.
_NO_STAMP = 2**32 - 1
#: Bytes of a priority, a pass over them each.
_BYTES = 8
#: What can be wrong, in the order of ``SampleError`` in sample.hpp.
_SEED, _LIST, _EDGES, _NEIGHBOR, _CANDIDATE, _VERTICES = range(6)


@dataclass(frozen=True, kw_only=True)
class SampleSizes:
    """How large a sample is.

    Attributes:
        num_vertices: before each hop, seeds first, and after the last one.
        num_edges: of each hop.
    """

    num_vertices: tuple[int, ...]
    num_edges: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class _Outputs:
    """The arrays of a sample, and the plan that has their addresses."""

    vertices: torch.Tensor
    picked: torch.Tensor
    hops: tuple[HopArrays, ...]
    state: torch.Tensor
    plan: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class DeviceSample:
    """A sample on the device, whose sizes may not be known yet.

    Its arrays are longer than what they hold: ``sizes`` says how much counts. They are overwritten
    by the sampler's ``num_slots``-th sample after this one.
    """

    seed: int  #: of the run
    step: int  #: of the run
    seeds: torch.Tensor  #: ``[num_seeds]`` vertices of the graph
    vertices: torch.Tensor  #: vertices of the graph by local id, seeds first; of indices' dtype
    hops: tuple[HopArrays, ...]  #: from the seeds outwards
    #: sources of the last hop's edges as vertices of the graph; None from layer-wise sampling
    edge_vertices: torch.Tensor | None
    state: torch.Tensor  #: int64, see ``State``: kernels read sizes from it
    graph: DeviceGraph  #: what was sampled from
    room: Room  #: what there was room for

    @property
    def counts(self) -> torch.Tensor:
        """``[num_hops + 1]`` int64 on the device: vertices before each hop and after the last."""
        return self.state[State.NUM_VERTICES :][: len(self.hops) + 1]

    @property
    def edge_counts(self) -> torch.Tensor:
        """``[num_hops]`` int64 on the device: edges of each hop."""
        return self.state[State.NUM_EDGES :][: len(self.hops)]

    def sizes(self) -> SampleSizes:
        """Wait for the sample, and return its sizes: one copy.

        Raises:
            ValueError: a seed is no vertex or appears twice, or there is no room for the sample.
            GraphError: the topology is damaged.
        """
        words = self.state.cpu().numpy()
        error = int(words[State.ERROR])
        if error != -1:
            self._refuse(error, words)
        vertices = words[State.NUM_VERTICES :][: len(self.hops) + 1]
        edges = words[State.NUM_EDGES :][: len(self.hops)]
        return SampleSizes(num_vertices=tuple(vertices.tolist()), num_edges=tuple(edges.tolist()))

    def to_minibatch(self) -> minibatch.MiniBatch:
        """Return the sample as the host's record.

        Raises:
            ValueError, GraphError: as ``sizes`` does.
        """
        sizes = self.sizes()

        def cut(array: torch.Tensor | None, size: int) -> np.ndarray | None:
            return None if array is None else array[:size].cpu().numpy().copy()

        counts = zip(
            self.hops, sizes.num_vertices, sizes.num_vertices[1:], sizes.num_edges, strict=False
        )
        hops = [
            ops.SampledHop(
                cut(hop.indptr, num_dst + 1),
                cut(hop.indices, num_edges),
                num_src,
                cut(hop.importance, num_edges),
                cut(hop.positions, num_edges),
                cut(hop.edge_weights, num_edges),
            )
            for hop, num_dst, num_src, num_edges in counts
        ]
        sampled = (
            cut(self.vertices, sizes.num_vertices[-1]),
            hops,
            cut(self.edge_vertices, sizes.num_edges[-1]),
        )
        return minibatch.to_minibatch(
            len(self.seeds),
            sampled,
            seed=self.seed,
            step=self.step,
            weight_sums=self.graph.weight_sums,
        )

    def _refuse(self, error: int, words: np.ndarray) -> None:
        """Raise what the native sampler does, if it would."""
        kind, place = (error >> 48) & 0xFFFF, error & ((1 << 48) - 1)
        hop, kind = divmod(kind, 8)
        if kind == _SEED:
            seed = int(self.seeds[place])
            known = 0 <= seed < self.graph.num_vertices
            raise ValueError(
                f"seeds: {seed} appears twice in a batch"
                if known
                else f"seeds: {seed} is not a vertex, the graph has {self.graph.num_vertices}"
            )
        if kind in (_EDGES, _VERTICES):
            raise ValueError(self._too_large(hop, kind, place))
        raise ops.damaged(self.graph.name, self._damage(kind, place, words))

    def _damage(self, kind: int, place: int, words: np.ndarray) -> str:
        graph = self.graph
        if kind in (_LIST, _CANDIDATE):
            vertex = place if kind == _CANDIDATE else int(self.vertices[place])
            begin, end = graph.indptr[vertex : vertex + 2].tolist()
            return (
                f"indptr: the neighbours of vertex {vertex} are {begin} to {end}, there are "
                f"{graph.num_edges} edges"
            )
        if self.edge_vertices is None:
            lowest, greatest = words[State.LOWEST], words[State.GREATEST]
            vertex = int(lowest if lowest < 0 else greatest)
        else:
            vertex = int(self.edge_vertices[place])
        return f"indices: {vertex} is no vertex, the graph has {graph.num_vertices}"

    def _too_large(self, hop: int, kind: int, found: int) -> str:
        what, room = (
            ("edges", self.room.num_edges[hop])
            if kind == _EDGES
            else ("vertices", self.room.max_vertices)
        )
        option = "layer_sizes" if self.edge_vertices is None else "fanouts"
        if room >= MAX_COUNT:
            return (
                f"{option}: a hop has more than {MAX_COUNT} vertices or edges; smaller fan-outs or "
                "fewer seeds are needed"
            )
        return f"max_edges: hop {hop + 1} has {found:,} {what}, there is room for {room:,}"


class CudaSampler:
    """Samples with kernels, without waiting for them.

    The topology may lie in the device's memory, or in memory of the host that it reads (PyTorch-
    Direct, section 4). A sample is that of the native sampler for the same (seed, step), array by
    array: neighbours of vertex ``v`` at hop ``h`` depend on ``(seed, step, h, v)`` alone, and local
    ids on the order of edges.
    """

    def __init__(
        self,
        graph: DeviceGraph,
        kernels: Kernels,
        sampling: Sampling,
        *,
        seed: int,
        max_seeds: int,
        device: torch.device,
        max_edges: int | None = None,
        edge_positions: bool = False,
        num_slots: int = 1,
    ) -> None:
        """Make room for the samples of up to ``max_seeds`` seeds.

        Args:
            graph: whose in-neighbours are sampled.
            kernels: of ``device``.
            sampling: the options of the host's sampler.
            seed: fixes every choice, together with the step.
            max_seeds: of a batch.
            device: that holds all buffers.
            max_edges: room for a hop's edges; None for the most that there can be.
            edge_positions: report the place of each edge in the graph's ``indices``.
            num_slots: samples that are kept at a time.

        Raises:
            ConfigError: neighbours are drawn by weight, and the edges have no weights; or there is
                no room.
        """
        by_weight = isinstance(sampling, WeightedSampling)
        if by_weight and graph.edge_weights is None:
            raise ConfigError(
                f"sampler=weighted: edges of {graph.name} have no weights to draw neighbours by; "
                "sampler=neighbor draws all alike"
            )
        self._graph = graph
        self._kernels = kernels
        self._sampling = sampling
        self._seed = seed
        self._max_seeds = max_seeds
        self._device = device
        self._grid = _BLOCKS * kernels.num_multiprocessors
        self._suffix = "int32" if graph.indices.dtype == torch.int32 else "int64"
        self.room = Room.of(sampling, graph, max_seeds=max_seeds, max_edges=max_edges)
        sampler_plan.check_room(self.room, max_seeds)
        self._scratch = sampler_plan.Scratch(graph, sampling, self.room, device)
        self._weight_sums = self._sum_weights() if by_weight and sampling.replace else None
        self._base = _NO_STAMP
        asks_weights = graph.edge_weights is not None and not by_weight
        self._slots = [
            self._outputs(edge_positions=edge_positions, edge_weights=asks_weights)
            for _ in range(num_slots)
        ]
        self._next_slot = 0
        self._launches = [
            (f"sample_{name}_{self._suffix}", np.int32(number))
            for hop, fanout in enumerate(sampler_plan.fanouts_of(sampling))
            for name, number in self._kernels_of(hop, fanout)
        ]

    def sample(
        self, seeds: torch.Tensor, step: int, *, stream: object | None = None
    ) -> DeviceSample:
        """Launch the kernels that sample, and return what they fill.

        Args:
            seeds: ``[n]`` int32 or int64 distinct vertices, on the device. They are read later.
            step: of the run.
            stream: that the kernels are launched on.

        Raises:
            ValueError: there are more than ``max_seeds`` seeds.
        """
        if len(seeds) > self._max_seeds:
            raise ValueError(f"seeds: {len(seeds)} of them, there is room for {self._max_seeds}")
        outputs = self._slots[self._next_slot]
        self._next_slot = (self._next_slot + 1) % len(self._slots)
        self._lower_base(stream)
        launch, grid = self._kernels.launch, self._grid
        launch(
            f"sample_begin_{self._suffix}",
            outputs.plan,
            outputs.state,
            seeds,
            np.int32(seeds.dtype == torch.int64),
            np.int64(len(seeds)),
            np.uint64(step),
            np.uint32(self._base),
            grid=grid,
            stream=stream,
        )
        for name, number in self._launches:
            launch(name, outputs.plan, outputs.state, number, grid=grid, stream=stream)
        layerwise = isinstance(self._sampling, LayerSampling)
        return DeviceSample(
            seed=self._seed,
            step=step,
            seeds=seeds,
            vertices=outputs.vertices,
            hops=outputs.hops,
            edge_vertices=None if layerwise else outputs.picked,
            state=outputs.state,
            graph=self._graph,
            room=self.room,
        )

    def _kernels_of(self, hop: int, fanout: int) -> list[tuple[str, int]]:
        """Return the kernels of a hop, and the number that each is given: the hop, but for ranks."""
        if isinstance(self._sampling, LayerSampling):
            ranks = [("rank", hop + MAX_HOPS * number) for number in range(_BYTES)]
            rest = ("keep", "place", "relabel_kept")
            return [("count", hop), ("gather", hop), *ranks, *((name, hop) for name in rest)]
        names = (*self._kernels_that_pick(fanout), "number", "relabel")
        return [(name, hop) for name in names]

    def _kernels_that_pick(self, fanout: int) -> tuple[str, ...]:
        replaces = sampler_plan.sampling_replaces(self._sampling) and fanout >= 0
        if isinstance(self._sampling, WeightedSampling):
            picks = ("pick_weighted_each",) if replaces else ("pick_weighted", "pick_weighted_long")
            return ("weigh", "count", *picks)
        if replaces or fanout < 0:
            return ("count", "pick_each")
        if fanout <= sampler_plan.MAX_LANES:
            return ("count", "pick")
        return ("count", "clear_slots", "draw_many", "pick_many")

    def _lower_base(self, stream: object | None) -> None:
        """Take the next base of stamps; when they are used up, forget all stamps."""
        span = self.room.max_vertices + self.room.max_edges
        if self._base < span:
            for stamps in (self._scratch.stamps, self._scratch.candidates):
                self._kernels.launch(
                    "sample_forget",
                    stamps,
                    np.int64(len(stamps)),
                    grid=self._grid,
                    stream=stream,
                )
            self._base = _NO_STAMP
        self._base -= span

    def _outputs(self, *, edge_positions: bool, edge_weights: bool) -> _Outputs:
        """Make the arrays of a sample."""
        room, ids = self.room, self._graph.indices.dtype

        def make(count: int, dtype: torch.dtype, wanted: bool = True) -> torch.Tensor | None:
            return torch.empty(count, dtype=dtype, device=self._device) if wanted else None

        layerwise = isinstance(self._sampling, LayerSampling)
        hops = [
            HopArrays(
                indptr=torch.empty(num_dst + 1, dtype=torch.int64, device=self._device),
                indices=torch.empty(num_edges, dtype=torch.int32, device=self._device),
                positions=make(num_edges, torch.int64, edge_positions),
                edge_weights=make(num_edges, torch.float32, edge_weights),
                importance=make(num_edges, torch.float32, layerwise),
            )
            for num_dst, num_edges in zip(room.num_vertices, room.num_edges, strict=False)
        ]
        vertices = torch.empty(room.max_vertices, dtype=ids, device=self._device)
        picked = torch.empty(max(room.max_edges, 1), dtype=ids, device=self._device)
        plan = sampler_plan.plan_words(
            self._graph,
            self._sampling,
            seed=self._seed,
            room=room,
            scratch=self._scratch,
            vertices=vertices,
            picked=picked,
            weight_sums=self._weight_sums,
            hops=hops,
        )
        return _Outputs(
            vertices=vertices,
            picked=picked,
            hops=tuple(hops),
            state=torch.zeros(State.NUM_WORDS, dtype=torch.int64, device=self._device),
            plan=plan.to(self._device),
        )

    def _sum_weights(self) -> torch.Tensor:
        """Add up the weights of each list up to each edge, in the order of the native sampler."""
        graph = self._graph
        sums = torch.empty(max(graph.num_edges, 1), dtype=torch.float64, device=self._device)
        self._kernels.launch(
            "sample_sum_weights",
            graph.indptr,
            graph.edge_weights,
            sums,
            np.int64(graph.num_vertices),
            np.int64(graph.num_edges),
            grid=self._grid,
        )
        return sums
