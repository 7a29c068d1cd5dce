"""Sampling by kernels, equal to the native sampler's for every seed and step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gnnscale.backend.cuda.capacity import (
    BatchCapacity,
    DeviceGraph,
    Sampling,
    fanouts_of,
    replaces,
)
from gnnscale.backend.cuda.device_sample import DeviceSample
from gnnscale.backend.cuda.kernels import Kernels
from gnnscale.backend.cuda.sampler_plan import (
    MAX_LANES,
    Outputs,
    Scratch,
    State,
    check_weights,
    plan_words,
)
from gnnscale.sampling import LayerSampling, WeightedSampling
from gnnscale.sampling.minibatch import MAX_HOPS

#: Blocks of 256 threads that a multiprocessor holds at a time.
_BLOCKS = 8
#: Bytes of a priority; each takes a pass over all of them.
_BYTES = 8
#: Edges of which a list has one slot, and words of a slot, as in ``weighted_lists.hpp``.
_WEIGHT_BLOCK, _SLOT_WORDS = 16, 4


@dataclass(kw_only=True)
class _SampleSlot:
    """A sample's arrays, its state, and the plan that has their addresses."""

    outputs: Outputs
    state: torch.Tensor
    plan: torch.Tensor
    num_vertices: torch.Tensor  #: parts of the state, as in ``DeviceSample``
    num_edges: torch.Tensor
    found: torch.Tensor
    #: ends of the edges that are left out; kept until kernels have read them
    excluded: tuple[torch.Tensor, torch.Tensor]


class CudaSampler:
    """Samples with kernels, without waiting for them.

    The topology may lie in the device's memory, or in memory of the host that the device reads
    (PyTorch-Direct, section 4). A sample is that of the native sampler for the same (seed, step),
    array by array: the neighbours of vertex ``v`` at hop ``h`` depend on ``(seed, step, h, v)``
    alone, and local ids on the order of edges.
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
        room: BatchCapacity | None = None,
        edge_positions: bool = False,
        leaves_out: bool = False,
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
            room: less room than that; a sample that is larger has an error.
            edge_positions: report the place of each edge in the graph's ``indices``.
            leaves_out: samples may be without some edges.
            num_slots: samples that are kept at a time.

        Raises:
            ConfigError: neighbours are drawn by weight, and the edges have no weights; or
                ``max_seeds`` or ``max_edges`` is not a positive number.
        """
        check_weights(graph, sampling)
        most = BatchCapacity.of(sampling, graph, max_seeds=max_seeds, max_edges=max_edges)
        self.room = most if room is None else most.smallest(room)
        self._graph = graph
        self._kernels = kernels
        self._sampling = sampling
        self._seed = seed
        self._device = device
        self._grid = _BLOCKS * kernels.num_multiprocessors
        self._suffix = "int32" if graph.indices.dtype == torch.int32 else "int64"
        self._leaves_out = leaves_out
        self._scratch = Scratch(graph, sampling, self.room, device, leaves_out=leaves_out)
        self._weight_slots = self._fill_slots()
        names = self._optional_arrays(edge_positions)
        self._slots = [self._slot(names) for _ in range(num_slots)]
        self._launches = [
            (f"sample_{name}_{self._suffix}", np.int32(number))
            for hop, fanout in enumerate(fanouts_of(sampling))
            for name, number in self._kernels_of(hop, fanout)
        ]

    def sample(
        self,
        seeds: torch.Tensor,
        step: int | torch.Tensor,
        *,
        without: tuple[torch.Tensor, torch.Tensor] | None = None,
        slot: int = 0,
    ) -> DeviceSample:
        """Launch the kernels that sample on the current stream, and return what they fill.

        Args:
            seeds: ``[n]`` int32 or int64 distinct vertices, on the device. They are read later.
            step: of the run; ``[1]`` int64 on the device if it is known there alone.
            without: ``[m]`` sources and ``[m]`` destinations of edges that no block shall have, on
                the device.
            slot: whose sample is overwritten.

        Raises:
            ValueError: there are more than ``max_seeds`` seeds, or edges are to be left out and the
                sampler has no room for that.
        """
        if without is not None and not self._leaves_out:
            raise ValueError("without: edges to leave out, allowed is None without leaves_out=True")
        if len(seeds) > self.room.num_vertices[0]:
            raise ValueError(
                f"seeds: {len(seeds)} of them, there is room for {self.room.num_vertices[0]}"
            )
        arrays = self._slots[slot]
        self._begin(arrays, seeds, step)
        if self._leaves_out:
            self._exclude(arrays, without)
        for name, number in self._launches:
            self._launch(name, arrays.plan, arrays.state, number)
        return self._sample_of(arrays, seeds)

    def _launch(self, name: str, *arguments: torch.Tensor | np.generic) -> None:
        self._kernels.launch(name, *arguments, grid=self._grid)

    def _begin(self, slot: _SampleSlot, seeds: torch.Tensor, step: int | torch.Tensor) -> None:
        """Give the seeds their stamps, which are cleared once they are used up."""
        if not isinstance(step, torch.Tensor):
            signed = int(np.uint64(step).astype(np.int64))
            step = torch.full((1,), signed, dtype=torch.int64, device=self._device)
        self._launch("sample_forget", slot.plan)
        self._launch(
            f"sample_begin_{self._suffix}",
            slot.plan,
            slot.state,
            seeds,
            np.int32(seeds.dtype == torch.int64),
            np.int64(len(seeds)),
            step,
        )

    def _exclude(
        self, slot: _SampleSlot, without: tuple[torch.Tensor, torch.Tensor] | None
    ) -> None:
        """Hand over the edges that are left out, by destination and then source."""
        slot.excluded = _no_edges(self._device)
        if without is not None:
            sources, destinations = (ends.to(torch.int64) for ends in without)
            order = torch.argsort(sources, stable=True)
            order = order[torch.argsort(destinations[order], stable=True)]
            slot.excluded = (sources[order], destinations[order])
        size = np.int64(len(slot.excluded[0]))
        self._launch("sample_exclude", slot.state, *slot.excluded, size)

    def _sample_of(self, slot: _SampleSlot, seeds: torch.Tensor) -> DeviceSample:
        outputs = slot.outputs
        sources = outputs.left_sources if self._leaves_out else outputs.picked
        return DeviceSample(
            seed=self._seed,
            seeds=seeds,
            vertices=outputs.vertices,
            picked=outputs.picked,
            hops=outputs.left or outputs.hops,
            edge_vertices=None if isinstance(self._sampling, LayerSampling) else sources,
            num_vertices=slot.num_vertices,
            num_edges=slot.num_edges,
            state=slot.state,
            found=slot.found,
            graph=self._graph,
            room=self.room,
        )

    def _kernels_of(self, hop: int, fanout: int) -> list[tuple[str, int]]:
        """Return the kernels of a hop, and the number that each is given."""
        counted = () if self._graph.cached is None else ("found",)
        left_out = ("leave_out", "place_left") if self._leaves_out else ()
        if isinstance(self._sampling, LayerSampling):
            ranks = [("rank", hop + MAX_HOPS * number) for number in range(_BYTES)]
            rest = ("keep", "place", "relabel_kept", *left_out, *counted)
            return [("count", hop), ("gather", hop), *ranks, *((name, hop) for name in rest)]
        names = (*self._kernels_that_pick(fanout), "number", "relabel", *left_out, *counted)
        return [(name, hop) for name in names]

    def _kernels_that_pick(self, fanout: int) -> tuple[str, ...]:
        replaced = replaces(self._sampling, fanout)
        if isinstance(self._sampling, WeightedSampling):
            picks = ("pick_weighted_each",) if replaced else ("pick_weighted", "pick_weighted_long")
            return ("weigh", "count", *picks)
        if replaced or fanout < 0:
            return ("count", "pick_each")
        if fanout <= MAX_LANES:
            return ("count", "pick")
        return ("count", "clear_slots", "draw_many", "pick_many")

    def _optional_arrays(self, edge_positions: bool) -> list[str]:
        """Return the names of the arrays that not every sample has."""
        by_weight = isinstance(self._sampling, WeightedSampling)
        wanted = {
            "positions": edge_positions,
            "edge_weights": self._graph.edge_weights is not None and not by_weight,
            "importance": isinstance(self._sampling, LayerSampling),
        }
        return [name for name, is_wanted in wanted.items() if is_wanted]

    def _slot(self, names: list[str]) -> _SampleSlot:
        outputs = Outputs.empty(
            self.room,
            self._graph.indices.dtype,
            self._device,
            names=names,
            leaves_out=self._leaves_out,
        )
        cached = self._graph.cached
        num_places = 1 if cached is None else len(cached.indptr) + 1
        found = torch.zeros(num_places, dtype=torch.int64, device=self._device)
        plan = plan_words(
            self._graph,
            self._sampling,
            seed=self._seed,
            room=self.room,
            scratch=self._scratch,
            outputs=outputs,
            weight_slots=self._weight_slots,
            found=found,
        )
        state = torch.zeros(State.NUM_WORDS, dtype=torch.int64, device=self._device)
        first_edges = State.NUM_LEFT if self._leaves_out else State.NUM_EDGES
        return _SampleSlot(
            outputs=outputs,
            state=state,
            plan=plan.to(self._device),
            num_vertices=state[State.NUM_VERTICES :][: len(outputs.hops) + 1],
            num_edges=state[first_edges:][: len(outputs.hops)],
            found=found,
            excluded=_no_edges(self._device),
        )

    def _fill_slots(self) -> torch.Tensor | None:
        """Return the slots by which neighbours are drawn, those of the native sampler."""
        graph, weights = self._graph, self._graph.edge_weights
        if weights is None or not isinstance(self._sampling, WeightedSampling):
            return None
        num_words = _SLOT_WORDS * (graph.num_vertices + graph.num_edges // _WEIGHT_BLOCK)
        slots = torch.zeros(num_words, dtype=torch.int64, device=self._device)
        sizes = (np.int64(graph.num_vertices), np.int64(graph.num_edges))
        self._launch("sample_fill_slots", graph.indptr, weights, slots, *sizes)
        return slots


def _no_edges(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    none = torch.empty(0, dtype=torch.int64, device=device)
    return none, none
