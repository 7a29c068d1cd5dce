"""What is learnt, and by which measure, is the user's to choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.dataset import Dataset
from gnnscale.graph import Graph
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.train import train


@dataclass(frozen=True, kw_only=True)
class Opened(Dataset):
    """A dataset whose graph is in memory already."""

    graph: Graph

    def raw_files(self) -> list[Path]:
        return []

    def read(self, writer: Any) -> None:
        raise NotImplementedError

    def open(self) -> Graph:
        return self.graph


def numbers(graph: Graph) -> Graph:
    """A graph whose labels are two numbers, by the features of a vertex; some are not known."""
    rows = np.asarray(graph.features, np.float32)
    labels = np.stack([rows[:, 0] + rows[:, 1], -rows[:, 2]], axis=1)
    labels[::7, 1] = np.nan
    return replace(graph, labels=labels, num_classes=2, metric="accuracy")


def test_numbers_are_learnt_and_errors_are_best_when_low(
    settings: Callable[..., TrainConfig], observer: Any, tmp_path: Path
) -> None:
    config = settings(
        *("metrics=[rmse,mae]", "epochs=30", "model.dropout=0", "optimizer.lr=0.02"),
        *("optimizer.schedule=plateau", "optimizer.schedule_epochs=2"),
    )
    graph = numbers(config.dataset.open())
    config = replace(config, dataset=Opened(name="numbers", graph=graph))
    result = train(config, tmp_path, observer, options={})
    errors = [each.valid_metric for each in result.history]
    assert result.best_epoch == int(np.argmin(errors)) + 1
    assert result.valid_metric == min(errors) < 0.7 * errors[0]
    assert result.valid_metrics == result.history[result.best_epoch - 1].valid_metrics
    assert list(result.valid_metrics) == list(result.test_metrics) == ["rmse", "mae"]
    assert result.ceiling is None


def test_patience_waits_for_a_lower_error(
    settings: Callable[..., TrainConfig], observer: Any, tmp_path: Path
) -> None:
    """While the error goes down, training goes on."""
    config = settings("metrics=[mae]", "epochs=6", "runtime.patience=1", "optimizer.lr=0.003")
    graph = numbers(config.dataset.open())
    config = replace(config, dataset=Opened(name="numbers", graph=graph))
    result = train(config, tmp_path, observer, options={})
    errors = [each.valid_metric for each in result.history]
    assert len(errors) > 2
    assert errors[0] > errors[1]
