"""Workload: how large a slice's mini-batch becomes, and what each stage has to do for it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gnnscale.core import Float64Array, IntArray, cache_bytes, find_memory
from gnnscale.graph import Graph
from gnnscale.graph.dtypes import FEATURE_DTYPES
from gnnscale.nn import cost
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.device_spec import Device
from gnnscale.sampling import Sampler, SamplerConfig, SeedOrder

if TYPE_CHECKING:
    from gnnscale.nn import TrainableModel

#: Seconds after which sampling is not timed again, once it was in ``_MIN_ROUNDS``.
_BUDGET_S = 0.2
_MIN_ROUNDS = 3
#: Seconds for each step of a run that is so short that sampling is timed once only.
_BUDGET_PER_STEP_S = 1e-4
_MAX_ROUNDS = 9
#: Every size is this many times the next smaller one.
_SIZE_STEP = 4
_NUM_SIZES = 4

#: Bytes at most that stand for what the other stages of a step read. A virtual machine sees the
#: last-level cache of all cores of its host, which can be half a gigabyte.
_MAX_OTHER_BYTES = 1 << 27
#: Part of the available memory that they take at most.
_OTHER_PART = 8


@dataclass(frozen=True, kw_only=True)
class CacheEffect:
    """What a device's cache takes and spares."""

    num_bytes: int = 0  #: device memory that it takes
    row_misses: float = 1.0  #: the part of a mini-batch's rows that cross the link
    peer_rows: float = 0.0  #: the part of them that come from other devices
    #: the part of sampled neighbours that are read over the link, when the device samples by
    #: itself
    list_misses: float = 1.0


@dataclass(frozen=True, kw_only=True)
class KnownSlices:
    """Slices whose mini-batches are known: they were sampled, or follow from a graph's sizes."""

    num_seeds: tuple[int, ...] = ()  #: of each slice, ascending
    sizes: tuple[BatchSize, ...] = ()  #: the mini-batch of each slice
    #: numbers of threads with which sampling was timed; empty if it was not
    sample_threads: tuple[int, ...] = ()
    #: seconds of sampling, a row for each of ``sample_threads``
    sample_s: tuple[tuple[float, ...], ...] = ()

    def size(self, num_seeds: int) -> BatchSize:
        """Return the mini-batch expected of a slice of ``num_seeds``.

        Between the slices known, logarithms are interpolated: vertices grow more slowly than seeds.
        """

        def at(values: Sequence[float]) -> float:
            return _interpolate(self.num_seeds, values, num_seeds)

        vertices = zip(*(size.vertices for size in self.sizes), strict=True)
        edges = zip(*(size.edges for size in self.sizes), strict=True)
        return BatchSize(
            vertices=tuple(at(each) for each in vertices), edges=tuple(at(each) for each in edges)
        )

    def sample_seconds(self, num_seeds: int, threads: int) -> float | None:
        """Return the seconds in which ``threads`` threads alone sample a slice, None if untimed."""
        if not self.sample_threads:
            return None
        speeds = [
            1 / max(_interpolate(self.num_seeds, row, num_seeds), 1e-9) for row in self.sample_s
        ]
        return 1 / float(np.interp(threads, self.sample_threads, speeds)) if num_seeds else 0.0


@dataclass(frozen=True, kw_only=True)
class SourceEffect:
    """What rows cost that host memory lacks: those of a disk, or of other machines."""

    row_misses: float = 0.0  #: the part of a mini-batch's rows that host memory lacks
    row_s: float = 0.0  #: seconds of the source for each of them, with all who use it

    def seconds(self, num_rows: float) -> float:
        """Return the seconds of the source for a mini-batch of ``num_rows``."""
        return num_rows * self.row_misses * self.row_s


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A training run as the performance model sees it."""

    #: the model's layers, inputs first; empty if ``counted`` stands for them
    layers: tuple[cost.LayerCost, ...]
    num_weights: int  #: trained parameters
    num_vertices: int  #: rows of the feature matrix
    #: mini-batches from which those of other slices follow; none before anything was sampled
    slices: KnownSlices = KnownSlices()
    #: bytes of an element of the feature matrix, with its share of a scale that the row has
    feature_bytes: float = cost.BYTES_PER_FEATURE
    host_aggregates: bool = True  #: whether the host aggregates the first layer while it loads
    #: whether it was aggregated before training, so that loading reads ready rows; the first blocks
    #: of ``slices`` have no edges then
    preaggregated: bool = False
    source: SourceEffect = SourceEffect()  #: what lies below the host's memory
    uses_degrees: bool = False  #: whether loading looks up the degrees of the mini-batch's vertices
    num_edge_features: int = 0  #: of each edge of all layers, that loading reads
    #: of loaded and hidden rows, and of their products: float32 or bfloat16
    compute_dtype: str = "float32"
    #: devices that share the first layer by columns (P3); 1 if each has all of it
    num_sharing: int = 1
    cache: CacheEffect = CacheEffect()  #: what the device's cache takes and spares
    #: what a step takes of a model whose layers do not state their cost
    counted: cost.CostModel | None = None

    def on(self, device: Device) -> Workload:
        """Return the workload as ``device`` has it: it may take rows as they are."""
        return replace(self, host_aggregates=device.takes_aggregated)

    @property
    def widths(self) -> tuple[int, ...]:
        """f^0 to f^L; of a model that is counted, those of inputs and outputs."""
        if self.counted is not None:
            return self.counted.widths
        return (*(layer.width_in for layer in self.layers), self.layers[-1].width_out)

    @property
    def aggregates_on_load(self) -> bool:
        """Whether the first layer is aggregated while it is loaded."""
        if self.counted is not None:
            return False
        return self.host_aggregates and self.layers[0].aggregates_on_load

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights, the numerator of eq. 13."""
        return self.num_weights * cost.BYTES_PER_FEATURE

    @property
    def row_bytes(self) -> int:
        """Bytes of a row that loading reads: f^0·S_feat of eq. 7, or those of a ready row."""
        if self.preaggregated:
            return self.layers[0].loaded_width * cost.BYTES_PER_FEATURE
        return round(self.widths[0] * self.feature_bytes)

    @property
    def compute_bytes(self) -> int:
        """Bytes of an element of loaded and hidden rows."""
        return FEATURE_DTYPES[self.compute_dtype].itemsize

    @property
    def feature_matrix_bytes(self) -> int:
        """Bytes of all rows that loading reads from."""
        return self.num_vertices * self.row_bytes

    def size(self, num_seeds: int) -> BatchSize:
        """Return the mini-batch expected of a slice of ``num_seeds``."""
        return self.slices.size(num_seeds)

    def untimed(self) -> Workload:
        """Return the workload without the seconds of sampling, which were another machine's."""
        return replace(self, slices=replace(self.slices, sample_threads=(), sample_s=()))


def _interpolate(known: Sequence[int], values: Sequence[float], at: float) -> float:
    """Interpolate logarithms; below the smallest known in proportion, above at the last slope."""
    if at <= known[0] or len(known) == 1:
        return values[0] * at / known[0]
    upper = next((i for i, each in enumerate(known) if each >= at), len(known) - 1)
    low, high = values[upper - 1], values[upper]
    if low <= 0 or high <= 0:
        return float(np.interp(at, known, values))
    slope = math.log(high / low) / math.log(known[upper] / known[upper - 1])
    return low * math.exp(slope * math.log(at / known[upper - 1]))


def measure_workload(
    graph: Graph,
    model: TrainableModel,
    sampler: SamplerConfig,
    order: SeedOrder,
    *,
    seed: int,
    cores: int,
    num_steps: int | None = None,
) -> Workload:
    """Sample a few slices of a graph, as section V does: T_samp over threads and sizes.

    Args:
        order: of the seeds; a slice may be as large as a mini-batch.
        num_steps: of the run; a short one is not kept waiting. None for any number.
    """
    budget_s, min_rounds = _BUDGET_S, _MIN_ROUNDS
    if num_steps is not None and num_steps * _BUDGET_PER_STEP_S < budget_s:
        budget_s, min_rounds = num_steps * _BUDGET_PER_STEP_S, 1
    seeds = np.concatenate([each.seeds for each in order.epoch(0)])
    num_seeds = _slice_sizes(min(order.batch_size, len(seeds)))
    threads = tuple(sorted({1, cores}))
    sizes: dict[int, BatchSize] = {}
    seconds: dict[int, tuple[float, ...]] = {}
    for count in threads:
        each = sampler.sampler(graph, seed=seed, num_threads=count)
        seconds[count] = _time_slices(
            each, seeds, num_seeds, sizes, budget_s / len(threads), min_rounds
        )
    slices = KnownSlices(
        num_seeds=num_seeds,
        sizes=tuple(sizes[count] for count in num_seeds),
        sample_threads=threads,
        sample_s=tuple(seconds[count] for count in threads),
    )
    return replace(unmeasured_workload(graph, model), slices=slices)


def unmeasured_workload(graph: Graph, model: TrainableModel) -> Workload:
    """Return what is known of training ``model`` on ``graph`` before any slice is sampled."""
    return Workload(
        layers=model.layer_costs,
        counted=model.counted,
        num_weights=sum(parameter.numel() for parameter in model.shared_parameters),
        num_vertices=graph.num_vertices,
        feature_bytes=graph.row_bytes / max(graph.num_features, 1),
        uses_degrees=model.uses_degrees,
        num_edge_features=graph.num_edge_features if model.uses_edge_features else 0,
    )


def _slice_sizes(largest: int) -> tuple[int, ...]:
    steps = range(_NUM_SIZES - 1, -1, -1)
    return tuple(sorted({max(1, largest // _SIZE_STEP**step) for step in steps}))


def other_data() -> Float64Array:
    """Return data whose reading empties the last-level cache, as the other stages of a step do."""
    available = find_memory().available // _OTHER_PART
    return np.ones(min(cache_bytes(), _MAX_OTHER_BYTES, available) // 8)


def _time_slices(
    sampler: Sampler,
    seeds: IntArray,
    num_seeds: Sequence[int],
    sizes: dict[int, BatchSize],
    budget_s: float,
    min_rounds: int,
) -> tuple[float, ...]:
    """Sample slices of every size in turn; fill ``sizes`` and return the lower quartile.

    The first round finds pages and scratch memory that are new to the process, and does not count;
    later ones still find some, which a run soon passes.
    """
    times: dict[int, list[float]] = {count: [] for count in num_seeds}
    others = other_data()
    begin = time.perf_counter()
    for step in range(_MAX_ROUNDS + 1):
        for count in num_seeds:
            first = step * count % (len(seeds) - count + 1)
            others.sum()
            start = time.perf_counter()
            batch = sampler.sample(seeds[first : first + count], step)
            times[count].append(time.perf_counter() - start)
            sizes.setdefault(count, BatchSize.of(batch))
        if step == 0:
            begin = time.perf_counter()
        elif step >= min_rounds and time.perf_counter() - begin > budget_s:
            break
    return tuple(sorted(times[count][1:])[len(times[count]) // 4] for count in num_seeds)
