"""What is learnt, and by which measure, is the user's to choose."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from in_memory import InMemory
from learnt import same, weights
from losses import Losses

from gnnscale.core.errors import ConfigError


@pytest.fixture
def numbers(settings: Any) -> InMemory:
    """A graph whose labels are two numbers, by the features of a vertex; some are not known."""
    graph = settings().dataset.open()
    rows = np.asarray(graph.features, np.float32)
    labels = np.stack([rows[:, 0] + rows[:, 1], -rows[:, 2]], axis=1)
    labels[::7, 1] = np.nan
    return InMemory(graph=replace(graph, labels=labels, num_classes=2, metric="accuracy"))


@pytest.mark.long
def test_numbers_are_learnt_and_low_errors_are_best(run, numbers, tmp_path) -> None:
    how = (
        *("metrics=[rmse,mae]", "epochs=30", "model.dropout=0", "optimizer.lr=0.02"),
        *("optimizer.schedule=plateau", "optimizer.schedule_epochs=2"),
    )
    result = run(tmp_path, *how, dataset=numbers)
    errors = [each.valid_metric for each in result.history]
    assert result.best_epoch == int(np.argmin(errors)) + 1
    assert result.valid_metric == min(errors) < 0.7 * errors[0]
    assert result.valid_metrics == result.history[result.best_epoch - 1].valid_metrics
    assert list(result.valid_metrics) == list(result.test_metrics) == ["rmse", "mae"]
    assert result.ceiling is None


@pytest.mark.long
def test_accumulated_mini_batches_are_as_good_as_one(run, tmp_path) -> None:
    """With all neighbours and no dropout nothing is drawn: two halves make the same update."""
    exact = ("sampler.fanouts=[-1,-1]", "model.dropout=0", "optimizer=sgd", "epochs=2")
    one, two, seen = tmp_path / "one", tmp_path / "two", Losses()
    run(one, *exact, "batch_size=64")
    run(two, *exact, "batch_size=32", "runtime.accumulate=2", watched=seen)
    # 360 training vertices: 11 mini-batches of 32 and one of 8.
    assert len(seen.steps) == 2 * 12
    torch.testing.assert_close(weights(two), weights(one), rtol=1e-4, atol=1e-6)


@pytest.mark.long
def test_accumulation_and_warm_up_go_on_where_a_run_stopped(run, tmp_path) -> None:
    how = (
        *("runtime.accumulate=4", "optimizer=adamw", "optimizer.warmup_epochs=3"),
        *("runtime.deterministic=true", "runtime.checkpoint_every_s=0"),
    )
    whole = run(tmp_path / "whole", *how, "epochs=5")
    parts = tmp_path / "parts"
    run(parts, *how, "epochs=4")
    run(parts, *how, "epochs=5", f"resume={parts}")
    assert same(weights(tmp_path / "whole"), weights(parts))
    rates = [each.lr for each in whole.history]
    assert rates == pytest.approx([0.001, 0.002, 0.003, 0.003, 0.003])
    with pytest.raises(ConfigError, match=r"resume: runtime\.accumulate is 2, but"):
        run(parts, *how, "epochs=6", "runtime.accumulate=2", f"resume={parts}")
