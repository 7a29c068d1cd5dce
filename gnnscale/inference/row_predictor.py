"""Predictor of task rows: outputs of vertices as of cut-offs, exact or over sampled neighbors."""

from collections.abc import Iterator
from dataclasses import fields
from functools import cached_property
from typing import Any

import numpy as np
import torch

from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.backend.typed_loading import open_loader
from gnnscale.core import Array, ConfigError, Float32Array, Int64Array, IntArray, track
from gnnscale.features import FeatureStore
from gnnscale.graph import Graph, TaskRows
from gnnscale.nn import TrainableModel
from gnnscale.run import EvaluationOptions
from gnnscale.sampling import (
    FanoutSampling,
    MiniBatch,
    NeighborSampling,
    RowSampler,
    RowSampling,
    Sampler,
    SamplerConfig,
)
from gnnscale.sampling.cutoff_edges import CutoffEdges
from gnnscale.sampling.histories import HistorySampler, shares_histories
from gnnscale.sampling.rows import row_units
from gnnscale.sampling.timed import CutoffSampler, distinct_units

#: Random stream of sampled evaluation: a step that training never has, so that the sample of a
#: vertex does not depend on the vertices that are evaluated with it.
EVALUATION_STEP = 1 << 40
#: Bytes of a mini-batch's rows over all layers, which one vertex may exceed. Large graphs have up
#: to the second number, for twice all of their edges and vertices, which many rows share.
_MAX_BYTES, _MAX_SHARED_BYTES = 256 << 20, 2 << 30
#: Rows of the first mini-batch, and largest growth from one to the next.
_FIRST, _GROWTH = 1, 4
#: Bytes of an edge, with the id of its source.
_EDGE_BYTES = 16


class RowPredictor:
    """Predictor of outputs of vertices, each as of a cut-off.

    Exact outputs are over all neighbors that the rule of ``sampler.time`` allows. Rows are passed
    in the order of their cut-offs, so that a mini-batch shares vertices of equal cut-offs, and in
    its last hop those of equal histories (``HistorySampler``); a vertex and cut-off that several
    rows have is computed once. Mini-batches grow as long as their rows stay within 256 MiB, or up
    to 2 GiB for large graphs. Calls with equal weights give equal outputs.
    """

    def __init__(
        self,
        model: TrainableModel,
        graph: Graph,
        options: EvaluationOptions,
        *,
        store: FeatureStore | None = None,
        left_out: CutoffEdges | None = None,
    ) -> None:
        """Predict rows of ``graph`` with ``model``.

        Args:
            options: options of inference.
            store: store of the features; None: the graph's features in host memory.
            left_out: edges without messages as of their own times. None: there are none.
        """
        self._left_out = left_out
        self._model = model
        self._graph = graph
        self._options = options
        self._store = store
        self._exact = options.inference == "exact"
        self._sampler = all_allowed(options.sampler) if self._exact else options.sampler
        width = max(model.widths or (graph.num_features,))
        whole = 4 * width * graph.num_vertices + _EDGE_BYTES * graph.num_edges
        self._max_bytes = max(_MAX_BYTES, min(2 * whole, _MAX_SHARED_BYTES))

    @torch.no_grad()
    def outputs(self, vertices: IntArray, cutoffs: Int64Array) -> Float32Array:
        """Return outputs ``[n, width]`` of ``vertices`` ``[n]`` as of ``cutoffs`` ``[n]``.

        Raises:
            GraphError: a file of the graph became shorter.
        """
        self._graph.check_files()
        units, positions = _by_cutoff(np.asarray(vertices), np.asarray(cutoffs))
        self._model.eval()
        parts = [*self._passes(units)]
        self._graph.check_files()
        return np.concatenate(parts)[positions]

    @cached_property
    def _units(self) -> CutoffSampler | None:
        """Sampler of units, with tables of the graph's times. None: times are not regarded."""
        options, sampler = self._options, self._sampler
        timed = row_units(
            sampler,
            self._graph,
            seed=options.seed,
            num_threads=options.num_threads,
            left_out=self._left_out,
        )
        if timed is None or not self._exact or timed.checks or self._left_out is not None:
            return timed
        if self._model.uses_ages or self._model.uses_degrees:
            return timed
        shares = shares_histories(timed.rule, sampler.num_layers)
        return HistorySampler(self._graph, timed) if shares else timed

    def _passes(self, units: TaskRows) -> Iterator[Float32Array]:
        """Yield the outputs of ``units`` in their order."""
        options, total = self._options, len(units.vertices)
        sampler: Sampler
        if self._units is not None:
            sampler = RowSampler(self._units, units.vertices, units.cutoffs)
        else:
            config = RowSampling(vertices=self._sampler, rows=units)
            sampler = config.sampler(
                self._graph, seed=options.seed, num_threads=options.num_threads
            )
        loader = open_loader(
            self._graph,
            self._model,
            num_threads=options.num_threads,
            store=self._store,
            compute_dtype=getattr(torch, options.compute_dtype),
        )
        first, size = 0, _FIRST if self._exact else options.batch_size
        with track("evaluating", total=total, unit="rows") as advance:
            while first < total:
                batch = self._sample(sampler, np.arange(first, min(first + size, total)))
                outputs = self._compute(batch, loader)
                yield outputs
                count = len(outputs)
                advance(count)
                first += count
                size = self._next_size(batch, count) if self._exact else size

    def _sample(self, sampler: Sampler, numbers: Array) -> MiniBatch:
        """Return the mini-batch of rows ``numbers``, or of their first half if it is too large."""
        while True:
            batch = sampler.sample(numbers, EVALUATION_STEP)
            if not self._exact or len(numbers) == 1 or self._bytes_of(batch) <= self._max_bytes:
                return batch
            numbers = numbers[: len(numbers) // 2]

    def _compute(self, batch: MiniBatch, loader: FeatureLoader) -> Float32Array:
        rows = batch.rows
        assert rows is not None
        outputs = self._model(batch, loader.load(batch))
        selected: Float32Array = outputs[torch.from_numpy(rows.positions)].float().numpy()
        return selected

    def _next_size(self, batch: MiniBatch, count: int) -> int:
        """Return how many rows of the size of those of ``batch`` fill a mini-batch."""
        fitting = count * self._max_bytes // max(self._bytes_of(batch), 1)
        return max(1, min(int(fitting), count * _GROWTH))

    def _bytes_of(self, batch: MiniBatch) -> int:
        """Return the approximate bytes of the rows and edges of all layers of ``batch``."""
        width = max(self._model.widths or (self._graph.num_features,))
        return int(4 * width * batch.num_vertices + _EDGE_BYTES * batch.num_edges)


def _by_cutoff(vertices: IntArray, cutoffs: Int64Array) -> tuple[TaskRows, IntArray]:
    """Return distinct pairs of vertex and cut-off, sorted by cut-off, and each row's position."""
    (ids, times), positions = distinct_units(vertices, cutoffs)
    order = np.argsort(times, kind="stable")
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    units = TaskRows(
        name="rows to predict",
        vertices=ids[order],
        cutoffs=times[order],
        labels=np.full(len(order), -1),
        num_classes=0,
    )
    return units, ranks[positions]


def all_allowed(sampler: SamplerConfig) -> NeighborSampling:
    """Return options that take all neighbors that the time rule of ``sampler`` allows.

    Edge types that training leaves out stay left out. ConfigError: ``sampler`` has no time rule.
    """
    if not isinstance(sampler, FanoutSampling):
        raise ConfigError(
            "sampler: expected neighbor, labor or weighted for task rows, which have cut-offs, got "
            f"{type(sampler).__name__}"
        )
    options: dict[str, Any] = {
        field.name: getattr(sampler, field.name) for field in fields(FanoutSampling)
    }
    options["fanouts"] = [-1] * sampler.num_layers
    options["edge_fanouts"] = _all_of(sampler.edge_fanouts)
    options["strategy"] = "uniform"
    return NeighborSampling(**options)


def _all_of(edge_fanouts: dict[str, list[int]] | None) -> dict[str, list[int]] | None:
    """Return -1 for every fan-out but 0."""
    if edge_fanouts is None:
        return None
    return {
        name: [-1 if fanout else 0 for fanout in fanouts] for name, fanouts in edge_fanouts.items()
    }
