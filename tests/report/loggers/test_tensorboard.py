from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnnscale.config import ConfigError
from gnnscale.report.loggers.tensorboard import TENSORBOARD_DIR, TensorBoardLogger


@pytest.mark.parametrize("known", [0, 2])
def test_tensorboard_reads_every_epoch_once(
    follow: Callable[..., Any], measured: Any, options: Any, tmp_path: Path, known: int
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    if known:
        follow(TensorBoardLogger(tmp_path, options))
    result = follow(TensorBoardLogger(tmp_path, options), known=known)
    found = EventAccumulator(str(tmp_path / TENSORBOARD_DIR)).Reload()
    losses = [(each.step, each.value) for each in found.Scalars("train_loss")]
    expected = [(each.epoch, pytest.approx(each.train_loss)) for each in measured.epochs]
    assert losses == expected
    assert [each.step for each in found.Scalars("valid_accuracy")] == [1, 3]
    (tested,) = found.Scalars("test_accuracy")
    assert (tested.step, tested.value) == (result.best_epoch, pytest.approx(0.7))
    assert "test_macro_f1" not in found.Tags()["scalars"]
    (event,) = found.Tensors("options/text_summary")[-1:]
    assert b"| model.hidden | 16 |" in event.tensor_proto.string_val[0]


def test_nothing_is_written_before_the_run_starts(options: Any, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    TensorBoardLogger(tmp_path, options).close()
    assert list(tmp_path.iterdir()) == []


def test_one_line_says_what_to_install(
    options: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError) as error:
        TensorBoardLogger(tmp_path, options)
    assert str(error.value) == "logger=tensorboard: is not installed; pip install tensorboard"
