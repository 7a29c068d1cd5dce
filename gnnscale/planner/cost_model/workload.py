"""Workload of a training run: sizes of the mini-batches of slices, and the work of each stage."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gnnscale.core import Float64Array, IntArray, cache_bytes, read_memory
from gnnscale.graph import FEATURE_DTYPES, Graph
from gnnscale.nn import cost
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.device_spec import Device
from gnnscale.sampling import Sampler, SamplerConfig, SeedOrder

if TYPE_CHECKING:
    from gnnscale.nn import TrainableModel

#: Time budget of timing the sampler, after at least ``_MIN_ROUNDS`` rounds.
_BUDGET_S = 0.2
_MIN_ROUNDS = 3
#: Time budget per step of a run so short that a single round has to do.
_BUDGET_PER_STEP_S = 1e-4
_MAX_ROUNDS = 9
#: Ratio of consecutive slice sizes, and their number.
_SIZE_STEP = 4
_NUM_SIZES = 4

#: Maximum bytes read to emulate the other stages of a step. A virtual machine sees the last-level
#: cache of all cores of its host, possibly half a gigabyte.
_MAX_OTHER_BYTES = 1 << 27
#: These bytes are at most one eighth of the available memory.
_MEMORY_DIVISOR = 8


@dataclass(frozen=True, kw_only=True)
class CacheEffect:
    """Memory cost and miss rates of a device's cache."""

    num_bytes: int = 0  #: bytes of device memory
    row_misses: float = 1.0  #: fraction of a mini-batch's rows that cross the link
    peer_rows: float = 0.0  #: fraction of a mini-batch's rows read from other devices
    #: fraction of sampled neighbors read over the link if the device samples
    list_misses: float = 1.0


@dataclass(frozen=True, kw_only=True)
class KnownSlices:
    """Mini-batch sizes for some numbers of seeds, sampled or derived from a graph's sizes."""

    num_seeds: tuple[int, ...] = ()  #: ascending seeds of the slices
    sizes: tuple[BatchSize, ...] = ()  #: size of each slice's mini-batch
    sample_threads: tuple[int, ...] = ()  #: numbers of threads of timed sampling; empty if untimed
    sample_s: tuple[tuple[float, ...], ...] = ()  #: ``[threads][slices]`` seconds of sampling

    def size(self, num_seeds: int) -> BatchSize:
        """Return sizes for ``num_seeds``, interpolated in logarithms between known numbers."""

        def interpolate(values: Sequence[float]) -> float:
            return _interpolate(self.num_seeds, values, num_seeds)

        vertices = zip(*(size.vertices for size in self.sizes), strict=True)
        edges = zip(*(size.edges for size in self.sizes), strict=True)
        return BatchSize(
            vertices=tuple(map(interpolate, vertices)), edges=tuple(map(interpolate, edges))
        )

    def sample_seconds(self, num_seeds: int, threads: int) -> float | None:
        """Return the seconds in which ``threads`` threads sample ``num_seeds``. None: untimed."""
        if not self.sample_threads:
            return None
        speeds = [
            1 / max(_interpolate(self.num_seeds, row, num_seeds), 1e-9) for row in self.sample_s
        ]
        return 1 / float(np.interp(threads, self.sample_threads, speeds)) if num_seeds else 0.0


@dataclass(frozen=True, kw_only=True)
class SourceEffect:
    """Cost of rows outside of host memory, on a disk or another machine."""

    row_misses: float = 0.0  #: fraction of a mini-batch's rows outside of host memory
    row_s: float = 0.0  #: seconds of the backing store per row, with all its concurrent users

    def seconds(self, num_rows: float) -> float:
        """Return the seconds to read the rows outside of host memory among ``num_rows``."""
        return num_rows * self.row_misses * self.row_s

    @classmethod
    def of_parts(cls, parts: Sequence[SourceEffect]) -> SourceEffect:
        """Return the cost of rows of several kinds, whose misses are fractions of all rows."""
        if len(parts) == 1:
            return parts[0]
        misses = sum(part.row_misses for part in parts)
        seconds = sum(part.seconds(1) for part in parts)
        return cls(row_misses=misses, row_s=seconds / misses if misses else 0.0)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Sizes, costs and choices of a training run on a device that determine its stage times."""

    #: cost of each layer, input layer first; empty with ``counted``
    layers: tuple[cost.LayerCost, ...]
    num_weights: int  #: number of trained parameters
    num_vertices: int  #: number of rows of the feature matrix
    #: slices from which sizes are interpolated; empty before sampling
    slices: KnownSlices = KnownSlices()
    #: bytes of a feature, including its share of the row's scale
    feature_bytes: float = cost.BYTES_PER_FEATURE
    host_aggregates: bool = True  #: whether the host aggregates the first layer while it loads
    #: whether the first layer was aggregated before training, so that loading reads aggregated
    #: rows. The first blocks of ``slices`` then have no edges
    preaggregated: bool = False
    source: SourceEffect = SourceEffect()  #: cost of the backing store
    uses_degrees: bool = False  #: whether loading looks up degrees
    num_edge_features: int = 0  #: features of each edge that loading reads
    #: type of loaded rows, hidden rows and products: float32 or bfloat16
    compute_dtype: str = "float32"
    #: number of devices that split the first layer by columns (P3); 1: no split
    num_sharing: int = 1
    cache: CacheEffect = CacheEffect()  #: effect of the device's cache
    #: cost of a model without per-layer costs. None: ``layers`` state the cost
    counted: cost.CostModel | None = None

    def on(self, device: Device) -> Workload:
        """Return this workload with ``host_aggregates`` as in ``device.takes_aggregated``."""
        return replace(self, host_aggregates=device.takes_aggregated)

    @property
    def widths(self) -> tuple[int, ...]:
        """f^0 to f^L; only f^0 and f^L for a model with ``counted`` cost."""
        if self.counted is not None:
            return self.counted.widths
        return (*(layer.width_in for layer in self.layers), self.layers[-1].width_out)

    @property
    def aggregates_on_load(self) -> bool:
        """Whether loading aggregates: ``host_aggregates`` is set, and the first layer allows it."""
        if self.counted is not None:
            return False
        return self.host_aggregates and self.layers[0].aggregates_on_load

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights, the numerator of eq. 13."""
        return self.num_weights * cost.BYTES_PER_FEATURE

    @property
    def row_bytes(self) -> int:
        """Bytes of a row that loading reads: f^0·S_feat of eq. 7, or a preaggregated row."""
        if self.preaggregated:
            return self.layers[0].loaded_width * cost.BYTES_PER_FEATURE
        return round(self.widths[0] * self.feature_bytes)

    @property
    def compute_bytes(self) -> int:
        """Bytes of an element of loaded and hidden rows."""
        return FEATURE_DTYPES[self.compute_dtype].itemsize

    def size(self, num_seeds: int) -> BatchSize:
        """Return the expected sizes of the mini-batch of ``num_seeds`` seeds."""
        return self.slices.size(num_seeds)

    def untimed(self) -> Workload:
        """Return the workload without the sampling times of this machine."""
        return replace(self, slices=replace(self.slices, sample_threads=(), sample_s=()))


def _interpolate(points: Sequence[int], values: Sequence[float], point: float) -> float:
    """Return the value at ``point``, interpolated in logarithms; proportional below the first."""
    if point <= points[0] or len(points) == 1:
        return values[0] * point / points[0]
    upper = next((i for i, x in enumerate(points) if x >= point), len(points) - 1)
    low, high = values[upper - 1], values[upper]
    if low <= 0 or high <= 0:
        return float(np.interp(point, points, values))
    slope = math.log(high / low) / math.log(points[upper] / points[upper - 1])
    return low * math.exp(slope * math.log(point / points[upper - 1]))


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
    """Return the workload of a run, with ``slices`` that are measured by sampling ``graph``.

    For up to four numbers of seeds, the largest a full mini-batch, ``slices`` has the mini-batch's
    sizes, and the seconds of sampling (T_samp) with 1 thread and with ``cores`` threads.

    Args:
        order: order of the seeds, with the size of a full mini-batch.
        num_steps: steps of the run; a short run is measured in less time. None: a long run.
    """
    budget_s, min_rounds = _BUDGET_S, _MIN_ROUNDS
    if num_steps is not None and num_steps * _BUDGET_PER_STEP_S < budget_s:
        budget_s, min_rounds = num_steps * _BUDGET_PER_STEP_S, 1
    seeds = np.concatenate([step.seeds for step in order.epoch(0)])
    num_seeds = _slice_sizes(min(order.batch_size, len(seeds)))
    threads = tuple(sorted({1, cores}))
    sizes: dict[int, BatchSize] = {}
    seconds: dict[int, tuple[float, ...]] = {}
    evicting = other_data()
    for count in threads:
        seconds[count] = _time_slices(
            sampler.sampler(graph, seed=seed, num_threads=count),
            seeds,
            num_seeds,
            sizes,
            evicting,
            budget_s / len(threads),
            min_rounds,
        )
    slices = KnownSlices(
        num_seeds=num_seeds,
        sizes=tuple(sizes[count] for count in num_seeds),
        sample_threads=threads,
        sample_s=tuple(seconds[count] for count in threads),
    )
    return replace(unmeasured_workload(graph, model), slices=slices)


def unmeasured_workload(graph: Graph, model: TrainableModel) -> Workload:
    """Return the workload of training ``model`` on ``graph``, still without mini-batch sizes."""
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
    """Return an array whose reading evicts the last-level cache, as other stages of a step do."""
    available = read_memory().available // _MEMORY_DIVISOR
    return np.ones(min(cache_bytes(), _MAX_OTHER_BYTES, available) // 8)


def _time_slices(
    sampler: Sampler,
    seeds: IntArray,
    num_seeds: Sequence[int],
    sizes: dict[int, BatchSize],
    evicting: Float64Array,
    budget_s: float,
    min_rounds: int,
) -> tuple[float, ...]:
    """Return lower quartiles of the seconds of sampling each number of seeds in ``num_seeds``.

    ``sizes`` gets the size of a mini-batch of each. ``evicting`` is read before each sample.
    """
    times: dict[int, list[float]] = {count: [] for count in num_seeds}
    begin = time.perf_counter()
    for step in range(_MAX_ROUNDS + 1):
        for count in num_seeds:
            first = step * count % (len(seeds) - count + 1)
            evicting.sum()
            start = time.perf_counter()
            batch = sampler.sample(seeds[first : first + count], step)
            times[count].append(time.perf_counter() - start)
            sizes.setdefault(count, BatchSize.of(batch))
        if step == 0:
            begin = time.perf_counter()
        elif step >= min_rounds and time.perf_counter() - begin > budget_s:
            break
    return tuple(sorted(times[count][1:])[len(times[count]) // 4] for count in num_seeds)
