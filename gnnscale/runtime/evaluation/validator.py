"""Validation and test of a run, on rank 0, while the other workers wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gnnscale.feature import FeatureStore
from gnnscale.graph import Graph
from gnnscale.model import TrainableModel
from gnnscale.runtime.evaluation.evaluate import Predictor
from gnnscale.runtime.pipeline.stages import running
from gnnscale.runtime.settings import TrainConfig
from gnnscale.sampler.seed_order import labelled_vertices

__all__ = ["Validator"]


class Validator:
    """Measures a model on the validation and on the test vertices."""

    def __init__(
        self, config: TrainConfig, graph: Graph, model: TrainableModel, store: FeatureStore
    ) -> None:
        """Measure ``model`` on ``graph``.

        Args:
            config: the run's options.
            graph: the graph.
            model: the host's weights.
            store: where features are read; the graph's own are, where devices trade rows or have
                columns, and so but a part of them.
        """
        self._config = config
        self._graph = graph
        own = store if config.exchange is None and store.columns is None else None
        self._predictor = Predictor(model, graph, config, store=own)
        self._valid_idx = labelled_vertices(graph, "valid")

    def is_due(self, epoch: int) -> bool:
        """Return whether ``epoch``, from 1, is validated."""
        return epoch % self._config.runtime.eval_every == 0 or epoch == self._config.epochs

    def prepare(self) -> None:
        """Say what validation and test take before there is anything to measure.

        Raises:
            ConfigError: one of them needs more of the disk than is free.
        """
        for split in ("test", "valid"):
            self._predictor.prepare(labelled_vertices(self._graph, split))

    @running("validate")
    def validate(self) -> tuple[float | None, float]:
        """Return the validation metric, None where it is not defined, and the seconds it took."""
        start = time.perf_counter()
        with self._all_threads():
            (metric,) = self._predictor.measure([self._valid_idx])
        return metric, time.perf_counter() - start

    def test(self) -> float | None:
        """Return the test metric, None where it is not defined."""
        vertices = labelled_vertices(self._graph, "test")
        with self._all_threads():
            return self._predictor.measure([vertices])[0]

    @contextmanager
    def _all_threads(self) -> Iterator[None]:
        """Let one process use all threads."""
        before = torch.get_num_threads()
        torch.set_num_threads(self._config.host_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
