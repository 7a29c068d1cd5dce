"""Workload: how large a slice's mini-batch becomes, and what each stage has to do for it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from gnnscale.graph import FEATURE_DTYPES, Graph
from gnnscale.hardware import cache_bytes
from gnnscale.model import GNN
from gnnscale.model.gat import GATLayer
from gnnscale.plan.perf.equations import BYTES_PER_FEATURE, BatchSize
from gnnscale.sampler import Sampler, SamplerConfig

__all__ = [
    "LayerShape",
    "Workload",
    "layer_shapes",
    "measure_workload",
]

#: Seconds after which sampling is not timed again, once it was in ``_MIN_ROUNDS``.
_BUDGET_S = 0.2
_MIN_ROUNDS = 3
_MAX_ROUNDS = 9
#: Every size is this many times the next smaller one.
_SIZE_STEP = 4
_NUM_SIZES = 4

_other_data: NDArray[np.float64] | None = None


@dataclass(frozen=True, kw_only=True)
class LayerShape:
    """What the model's layer l does to each row.

    Attributes:
        width_in: f^{l-1}.
        width_out: f^l.
        products: ``(inputs, outputs)`` of each matrix that a row is multiplied with. GraphSAGE's
            has 2 f^{l-1} inputs, since it reads a vertex's own row beside the aggregated one.
        attention: heads of attention, which comes after the products; 0 where neighbours are
            aggregated before them.
    """

    width_in: int
    width_out: int
    products: tuple[tuple[int, int], ...]
    attention: int = 0


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A training run as the performance model sees it.

    Attributes:
        num_seeds: slices whose mini-batches are known, ascending.
        sizes: the mini-batch of each of these slices.
        sample_threads: numbers of threads with which sampling was timed; empty where it was not.
        sample_s: seconds of sampling, a row for each of ``sample_threads``.
        layers: the model's layers, inputs first.
        num_weights: trained parameters.
        num_vertices: rows of the feature matrix.
        feature_bytes: bytes of an element of the feature matrix.
        fused: whether the first layer's aggregation is part of loading.
        uses_degrees: whether loading looks up the degrees of the mini-batch's vertices.
    """

    num_seeds: tuple[int, ...]
    sizes: tuple[BatchSize, ...]
    sample_threads: tuple[int, ...]
    sample_s: tuple[tuple[float, ...], ...]
    layers: tuple[LayerShape, ...]
    num_weights: int
    num_vertices: int
    feature_bytes: int = BYTES_PER_FEATURE
    fused: bool
    uses_degrees: bool = False

    @property
    def widths(self) -> tuple[int, ...]:
        """f^0 to f^L."""
        return (*(layer.width_in for layer in self.layers), self.layers[-1].width_out)

    @property
    def aggregates_on_load(self) -> bool:
        """Whether the first layer is aggregated while it is loaded; attention comes later."""
        return self.fused and not self.layers[0].attention

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights, the numerator of eq. 13."""
        return self.num_weights * BYTES_PER_FEATURE

    @property
    def feature_matrix_bytes(self) -> int:
        """Bytes of all features."""
        return self.num_vertices * self.widths[0] * self.feature_bytes

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


def layer_shapes(model: GNN) -> tuple[LayerShape, ...]:
    """Read off the shapes of a model's layers."""
    shapes = []
    for index, (width_in, width_out) in enumerate(
        zip(model.widths, model.widths[1:], strict=False)
    ):
        layer = model.layer(index)
        linears = [module for module in layer.modules() if isinstance(module, nn.Linear)]
        products = tuple((each.in_features, each.out_features) for each in linears)
        attention = layer.num_heads if isinstance(layer, GATLayer) else 0
        shapes.append(
            LayerShape(
                width_in=width_in, width_out=width_out, products=products, attention=attention
            )
        )
    return tuple(shapes)


def measure_workload(
    graph: Graph,
    model: GNN,
    sampler: SamplerConfig,
    *,
    batch_size: int,
    seed: int,
    fused: bool,
    cores: int,
) -> Workload:
    """Sample a few slices of a graph, as section V does: T_samp over threads and sizes.

    Args:
        graph: the graph that is trained on.
        model: the model that is trained.
        sampler: options of the sampler.
        batch_size: seeds of the largest slice.
        seed: fixes the slices.
        fused: whether the first layer's aggregation is part of loading.
        cores: the largest number of threads.
    """
    num_seeds = _slice_sizes(min(batch_size, len(graph.train_idx)))
    order = np.random.Generator(np.random.Philox(key=[seed, 0])).permutation(graph.train_idx)
    threads = tuple(sorted({1, cores}))
    sizes: dict[int, BatchSize] = {}
    seconds: dict[int, tuple[float, ...]] = {}
    for count in threads:
        each = sampler.sampler(graph, seed=seed, num_threads=count)
        seconds[count] = _time_slices(each, order, num_seeds, sizes, _BUDGET_S / len(threads))
    return Workload(
        num_seeds=num_seeds,
        sizes=tuple(sizes[count] for count in num_seeds),
        sample_threads=threads,
        sample_s=tuple(seconds[count] for count in threads),
        layers=layer_shapes(model),
        num_weights=sum(parameter.numel() for parameter in model.parameters()),
        num_vertices=graph.num_vertices,
        feature_bytes=FEATURE_DTYPES[graph.feature_dtype].itemsize,
        fused=fused,
        uses_degrees=model.uses_degrees,
    )


def _slice_sizes(largest: int) -> tuple[int, ...]:
    steps = range(_NUM_SIZES - 1, -1, -1)
    return tuple(sorted({max(1, largest // _SIZE_STEP**step) for step in steps}))


def empty_cache() -> None:
    """Read as much as the last-level cache holds, as the other stages of a step do."""
    global _other_data
    if _other_data is None:
        _other_data = np.ones(cache_bytes() // 8)
    _other_data.sum()


def _time_slices(
    sampler: Sampler,
    order: NDArray[np.integer[Any]],
    num_seeds: Sequence[int],
    sizes: dict[int, BatchSize],
    budget_s: float,
) -> tuple[float, ...]:
    """Sample slices of every size in turn; fill ``sizes`` and return the lower quartile.

    The first round finds pages and scratch memory that are new to the process, and does not count;
    later ones still find some, which a run soon has behind it.
    """
    times: dict[int, list[float]] = {count: [] for count in num_seeds}
    begin = time.perf_counter()
    for step in range(_MAX_ROUNDS + 1):
        for count in num_seeds:
            first = step * count % (len(order) - count + 1)
            empty_cache()
            start = time.perf_counter()
            batch = sampler.sample(order[first : first + count], step)
            times[count].append(time.perf_counter() - start)
            sizes.setdefault(count, BatchSize.of(batch))
        if step == 0:
            begin = time.perf_counter()
        elif step >= _MIN_ROUNDS and time.perf_counter() - begin > budget_s:
            break
    return tuple(sorted(times[count][1:])[len(times[count]) // 4] for count in num_seeds)
