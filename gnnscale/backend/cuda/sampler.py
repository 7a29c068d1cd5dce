"""Sampling kernels, with the native sampler's results for every seed and step."""

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
from gnnscale.sampling import MAX_HOPS, LayerSampling, WeightedSampling

#: Bytes of a layer-wise priority; ranking takes a pass over all priorities for each byte.
_BYTES = 8
#: Edges for each slot of a list, and words of a slot, as in ``weighted_lists.hpp``.
_WEIGHT_BLOCK, _SLOT_WORDS = 16, 4


@dataclass(kw_only=True)
class _SampleSlot:
    """Buffers of a sample: output arrays, state, and the plan with their addresses."""

    outputs: Outputs
    state: torch.Tensor
    plan: torch.Tensor
    num_vertices: torch.Tensor  #: views of the state, as in ``DeviceSample``
    num_edges: torch.Tensor
    read_counts: torch.Tensor
    #: sources and destinations of excluded edges, alive until kernels have read them
    excluded: tuple[torch.Tensor, torch.Tensor]


class CudaSampler:
    """Asynchronous sampler on a device.

    A sample equals that of the native sampler for the same (seed, step), array by array: the
    neighbors of vertex ``v`` at hop ``h`` depend on ``(seed, step, h, v)`` alone, and local ids on
    the order of edges.

        sampler = CudaSampler(graph, kernels, sampling, seed=1, max_seeds=1024, device=device)
        sample = sampler.sample(torch.tensor([4, 7], device=device), step=0)
        sample.sizes().num_vertices[0]  # 2
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
        capacity: BatchCapacity | None = None,
        edge_positions: bool = False,
        leaves_out: bool = False,
        num_slots: int = 1,
    ) -> None:
        """Allocate arrays for ``num_slots`` samples of up to ``max_seeds`` seeds each.

        Raises ConfigError if the sampler is weighted, and edges have no weights; or ``max_seeds``
        or ``max_edges`` is not positive.

        Args:
            max_edges: maximum number of a hop's edges. None: no such limit.
            capacity: sizes of the arrays, such as observed ones. A larger sample records an error.
                None: the maximum sizes.
            edge_positions: whether samples have the index of each edge in the graph's ``indices``.
            leaves_out: whether ``sample`` may get edges to leave out.
            num_slots: number of samples that exist at a time.
        """
        check_weights(graph, sampling)
        bound = BatchCapacity.of(sampling, graph, max_seeds=max_seeds, max_edges=max_edges)
        self.capacity = bound if capacity is None else bound.smallest(capacity)
        self._graph = graph
        self._kernels = kernels
        self._sampling = sampling
        self._seed = seed
        self._device = device
        self._suffix = "int32" if graph.indices.dtype == torch.int32 else "int64"
        self._leaves_out = leaves_out
        self._scratch = Scratch(graph, sampling, self.capacity, device, leaves_out=leaves_out)
        self._weight_slots = self._fill_slots()
        names = self._optional_arrays(edge_positions)
        self._slots = [self._slot(names) for _ in range(num_slots)]
        self._launches = [
            (f"sample_{name}_{self._suffix}", np.int32(number))
            for hop, fanout in enumerate(fanouts_of(sampling))
            for name, number in _kernels_of(
                sampling, hop, fanout, leaves_out=leaves_out, counts_reads=graph.cached is not None
            )
        ]

    def sample(
        self,
        seeds: torch.Tensor,
        step: int | torch.Tensor,
        *,
        without: tuple[torch.Tensor, torch.Tensor] | None = None,
        slot: int = 0,
    ) -> DeviceSample:
        """Launch the sampling kernels on the current stream, and return their outputs.

        ``seeds`` are distinct vertices on the device, alive until kernels are done. ``step`` is
        ``[1]`` int64 on the device if only the device knows it. ``without`` are ``[m]`` sources and
        destinations of edges to leave out, on the device. ``slot`` is the number of the sample
        whose arrays are overwritten. ValueError: too many seeds, or edges without ``leaves_out``.
        """
        if without is not None and not self._leaves_out:
            raise ValueError("without: expected None with leaves_out=False, got edges")
        if len(seeds) > self.capacity.num_vertices[0]:
            raise ValueError(
                f"seeds: expected at most {self.capacity.num_vertices[0]}, got {len(seeds)}"
            )
        arrays = self._slots[slot]
        self._begin(arrays, seeds, step)
        if self._leaves_out:
            self._exclude(arrays, without)
        for name, number in self._launches:
            self._kernels.launch(name, arrays.plan, arrays.state, number)
        return self._sample_of(arrays, seeds)

    def _begin(self, slot: _SampleSlot, seeds: torch.Tensor, step: int | torch.Tensor) -> None:
        """Launch the kernels that write ``seeds`` and ``step`` into ``slot``, before any hop.

        ``seeds`` are the sample's first vertices. Its random draws depend on ``step``, a number or
        ``[1]`` int64 on the device.
        """
        if not isinstance(step, torch.Tensor):
            signed = int(np.uint64(step).astype(np.int64))
            step = torch.full((1,), signed, dtype=torch.int64, device=self._device)
        self._kernels.launch("sample_forget", slot.plan)
        wide, size = np.int32(seeds.dtype == torch.int64), np.int64(len(seeds))
        name = f"sample_begin_{self._suffix}"
        self._kernels.launch(name, slot.plan, slot.state, seeds, wide, size, step)

    def _exclude(
        self, slot: _SampleSlot, without: tuple[torch.Tensor, torch.Tensor] | None
    ) -> None:
        """Sort the edges to leave out by destination and source, and pass them to the kernels.

        ``without`` are their sources and destinations. None: no edges. ``slot`` keeps them alive.
        """
        slot.excluded = _no_edges(self._device)
        if without is not None:
            sources, destinations = (ends.to(torch.int64) for ends in without)
            order = torch.argsort(sources, stable=True)
            order = order[torch.argsort(destinations[order], stable=True)]
            slot.excluded = (sources[order], destinations[order])
        size = np.int64(len(slot.excluded[0]))
        self._kernels.launch("sample_exclude", slot.state, *slot.excluded, size)

    def _sample_of(self, slot: _SampleSlot, seeds: torch.Tensor) -> DeviceSample:
        outputs = slot.outputs
        sources = outputs.filtered_sources if self._leaves_out else outputs.picked
        return DeviceSample(
            seed=self._seed,
            seeds=seeds,
            vertices=outputs.vertices,
            picked=outputs.picked,
            hops=outputs.filtered_hops or outputs.hops,
            edge_vertices=None if isinstance(self._sampling, LayerSampling) else sources,
            num_vertices=slot.num_vertices,
            num_edges=slot.num_edges,
            state=slot.state,
            read_counts=slot.read_counts,
            graph=self._graph,
            capacity=self.capacity,
        )

    def _optional_arrays(self, edge_positions: bool) -> list[str]:
        """Return the names of the optional arrays of ``HopArrays`` that samples have.

        ``edge_positions``: whether ``positions`` is one of these.
        """
        by_weight = isinstance(self._sampling, WeightedSampling)
        used_arrays = {
            "positions": edge_positions,
            "edge_weights": self._graph.edge_weights is not None and not by_weight,
            "importance": isinstance(self._sampling, LayerSampling),
        }
        return [name for name, is_wanted in used_arrays.items() if is_wanted]

    def _slot(self, names: list[str]) -> _SampleSlot:
        dtype, cached = self._graph.indices.dtype, self._graph.cached
        outputs = Outputs.empty(
            self.capacity, dtype, self._device, names=names, leaves_out=self._leaves_out
        )
        num_places = 1 if cached is None else len(cached.indptr) + 1
        read_counts = torch.zeros(num_places, dtype=torch.int64, device=self._device)
        plan = plan_words(
            self._graph,
            self._sampling,
            seed=self._seed,
            capacity=self.capacity,
            scratch=self._scratch,
            outputs=outputs,
            weight_slots=self._weight_slots,
            read_counts=read_counts,
        )
        state = torch.zeros(State.NUM_WORDS, dtype=torch.int64, device=self._device)
        first_edges = State.NUM_LEFT if self._leaves_out else State.NUM_EDGES
        return _SampleSlot(
            outputs=outputs,
            state=state,
            plan=plan.to(self._device),
            num_vertices=state[State.NUM_VERTICES :][: len(outputs.hops) + 1],
            num_edges=state[first_edges:][: len(outputs.hops)],
            read_counts=read_counts,
            excluded=_no_edges(self._device),
        )

    def _fill_slots(self) -> torch.Tensor | None:
        """Return the native sampler's table for weighted draws, computed on the device.

        None: sampling is not weighted.
        """
        graph, weights = self._graph, self._graph.edge_weights
        if weights is None or not isinstance(self._sampling, WeightedSampling):
            return None
        num_words = _SLOT_WORDS * (graph.num_vertices + graph.num_edges // _WEIGHT_BLOCK)
        slots = torch.zeros(num_words, dtype=torch.int64, device=self._device)
        sizes = (np.int64(graph.num_vertices), np.int64(graph.num_edges))
        self._kernels.launch("sample_fill_slots", graph.indptr, weights, slots, *sizes)
        return slots


def _no_edges(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    none = torch.empty(0, dtype=torch.int64, device=device)
    return none, none


def _kernels_of(
    sampling: Sampling, hop: int, fanout: int, *, leaves_out: bool, counts_reads: bool
) -> list[tuple[str, int]]:
    """Return the kernels of a hop, in the order of launch: name, and its integer argument.

    ``leaves_out``: edges may be left out; ``counts_reads``: reads of cached lists are counted.
    """
    counted = ("found",) if counts_reads else ()
    left_out = ("leave_out", "place_left") if leaves_out else ()
    if isinstance(sampling, LayerSampling):
        ranks = [("rank", hop + MAX_HOPS * number) for number in range(_BYTES)]
        selection = ("keep", "place", "relabel_kept", *left_out, *counted)
        return [("count", hop), ("gather", hop), *ranks, *((name, hop) for name in selection)]
    names = (*_kernels_that_pick(sampling, fanout), "number", "relabel", *left_out, *counted)
    return [(name, hop) for name in names]


def _kernels_that_pick(sampling: Sampling, fanout: int) -> tuple[str, ...]:
    replaced = replaces(sampling, fanout)
    if isinstance(sampling, WeightedSampling):
        picks = ("pick_weighted_each",) if replaced else ("pick_weighted", "pick_weighted_long")
        return ("weigh", "count", *picks)
    if replaced or fanout < 0:
        return ("count", "pick_each")
    if fanout <= MAX_LANES:
        return ("count", "pick")
    return ("count", "clear_slots", "draw_many", "pick_many")
