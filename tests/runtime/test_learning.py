"""What is learnt, and by which measure, is the user's to choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from losses import Losses
from omegaconf import DictConfig, OmegaConf

from gnnscale.core.errors import ConfigError
from gnnscale.dataset import Dataset
from gnnscale.graph import Graph
from gnnscale.options.config import typed
from gnnscale.runtime.checkpoint.file import LAST, load_checkpoint
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


def plain(directory: Path) -> dict[str, torch.Tensor]:
    return dict(load_checkpoint(directory / LAST)["model"])


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


def test_accumulated_mini_batches_are_as_good_as_one(
    settings: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    """With all neighbours and no dropout nothing is drawn: two halves make the same update."""
    exact = ("sampler.fanouts=[-1,-1]", "model.dropout=0", "optimizer=sgd", "epochs=2")
    one, two = tmp_path / "one", tmp_path / "two"
    train(settings(*exact, "batch_size=64"), one, Losses(), options={})
    seen = Losses()
    halves = settings(*exact, "batch_size=32", "runtime.accumulate=2")
    train(halves, two, seen, options={})
    expected, found = plain(one), plain(two)
    # 360 training vertices: 11 mini-batches of 32 and one of 8.
    assert len(seen.steps) == 2 * 12
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-4, atol=1e-6)


def test_accumulation_and_warm_up_go_on_where_a_run_stopped(
    options: Callable[..., DictConfig], observer: Any, tmp_path: Path
) -> None:
    how = (
        *("runtime.accumulate=4", "optimizer=adamw", "optimizer.warmup_epochs=3"),
        *("runtime.deterministic=true", "runtime.checkpoint_every_s=0"),
    )

    def run(directory: Path, *overrides: str) -> Any:
        node = options(*how, *overrides)
        values: Any = OmegaConf.to_container(node, resolve=True)
        return train(
            typed(node, TrainConfig), directory, observer, options=values | {"resume": None}
        )

    whole = run(tmp_path / "whole", "epochs=5")
    run(tmp_path / "parts", "epochs=4")
    run(tmp_path / "parts", "epochs=5", f"resume={tmp_path / 'parts'}")
    expected, found = plain(tmp_path / "whole"), plain(tmp_path / "parts")
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    rates = [each.lr for each in whole.history]
    assert rates == pytest.approx([0.001, 0.002, 0.003, 0.003, 0.003])
    with pytest.raises(ConfigError, match=r"resume: runtime\.accumulate is 2, but"):
        run(tmp_path / "parts", "epochs=6", "runtime.accumulate=2", f"resume={tmp_path / 'parts'}")
