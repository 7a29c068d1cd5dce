"""Validation and test of a run, on rank 0, while the other workers wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gnnscale.feature import FeatureStore
from gnnscale.model import TrainableModel
from gnnscale.runtime.evaluation import examine
from gnnscale.runtime.evaluation.predictor import Predictor
from gnnscale.runtime.pipeline.stages import running
from gnnscale.runtime.settings import TrainConfig
from gnnscale.task.base import Task


class Validator:
    """Measures a model on what is held out for validation and test."""

    def __init__(
        self, config: TrainConfig, task: Task, model: TrainableModel, store: FeatureStore
    ) -> None:
        """Measure ``model`` at ``task``.

        Args:
            store: its features are read, unless devices trade rows or hold some of the columns: it
                then has a part of them only, and the graph's own are read.
        """
        self._config = config
        own = store if config.exchange is None and store.columns is None else None
        predictor = Predictor(model, task.graph, config, store=own)
        self._examiner = examine.open_examiner(task, model, predictor)

    def is_due(self, epoch: int) -> bool:
        """Return whether ``epoch``, from 1, is validated."""
        return epoch % self._config.runtime.eval_every == 0 or epoch == self._config.epochs

    def prepare(self) -> None:
        """Say what validation and test take before there is anything to measure.

        Raises:
            ConfigError: one of them needs more of the disk than is free.
        """
        for split in ("test", "valid"):
            self._examiner.prepare([split])

    @running("validate")
    def validate(self) -> tuple[dict[str, float | None], float]:
        """Return the validation metrics, None for one not defined, and the seconds they took."""
        start = time.perf_counter()
        with self._all_threads():
            (metrics,) = self._examiner.measure(["valid"])
        return metrics, time.perf_counter() - start

    def test(self) -> dict[str, float | None]:
        """Return the test metrics, None for one that is not defined."""
        with self._all_threads():
            return self._examiner.measure(["test"])[0]

    @contextmanager
    def _all_threads(self) -> Iterator[None]:
        """Let one process use all threads."""
        before = torch.get_num_threads()
        torch.set_num_threads(self._config.host_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
