from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from rich.console import Console

from gnnscale.report import live
from gnnscale.report.live import RunReport, epoch_line
from gnnscale.runtime.records import EpochRecord, StepRecord, TrainResult

STEP = StepRecord(epoch=1, step=1, num_steps=4, loss=0.25, num_edges=4_000_000, seconds=2.0)
EPOCH = EpochRecord(
    epoch=1,
    train_loss=0.5,
    valid_metric=0.75,
    lr=0.1,
    epoch_time_s=2.0,
    eval_time_s=0.1,
    num_edges=8_000_000,
    num_vertices=10,
    stage_times_s={},
    peak_rss_bytes=3 << 29,
)
RUN = TrainResult(dataset="d", model="m", seed=0, metric="accuracy", ceiling=None, history=())


def report(directory: Path, *, terminal: bool) -> tuple[RunReport, io.StringIO]:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=100)
    return RunReport(directory, epochs=1, options={"seed": 0}, console=console), screen


def test_epoch_line_by_hand() -> None:
    line = "epoch 1/3  loss 0.5000  valid accuracy 0.7500  2.00 s  4.0 M edges/s  1.50 GiB"
    assert epoch_line(EPOCH, epochs=3, metric="accuracy") == line


def test_off_a_terminal_there_are_plain_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    observer, screen = report(tmp_path, terminal=False)
    with caplog.at_level(logging.INFO, logger="gnnscale"):
        observer.started(RUN)
        observer.stepped(STEP)
        observer.trained()
        observer.finished_epoch(EPOCH)
    assert "epoch 1/1  loss 0.5000  valid accuracy 0.7500" in caplog.text
    assert screen.getvalue() == ""
    assert OmegaConf.load(tmp_path / "config.yaml") == {"seed": 0}
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["valid_metric"] == 0.75
    assert observer.run is not None
    assert observer.run.history == (EPOCH,)


def test_on_a_terminal_there_is_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_SHOW_AFTER_S", 0.0)
    observer, screen = report(tmp_path, terminal=True)
    observer.started(RUN)
    observer.stepped(STEP)
    observer.stepped(STEP)
    observer.trained()
    observer.finished_epoch(EPOCH)
    shown = screen.getvalue()
    assert "epoch 1/1" in shown
    assert "1/4" in shown
    assert "loss 0.2500" in shown
    assert "valid accuracy 0.7500" in shown


def test_a_resumed_run_rewrites_the_lines_behind_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1}\n{"epoch": 2}\n{"epo')
    observer, _ = report(tmp_path, terminal=False)
    observer.started(TrainResult(**{**vars(RUN), "history": (EPOCH,)}))
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1
