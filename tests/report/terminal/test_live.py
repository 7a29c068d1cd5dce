import io
import itertools
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from rich.console import Console

from gnnscale.report.terminal import RunReport, epoch_line


def report(directory: Path, *, terminal: bool, epochs: int = 3) -> tuple[RunReport, io.StringIO]:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=120)
    return RunReport(directory, epochs=epochs, options={"seed": 0}, console=console), screen


@pytest.fixture
def monotonic(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("gnnscale.report.terminal.time.monotonic", lambda: now[0])
    return now


def test_epoch_line_by_hand(cpu_run: Any) -> None:
    sizes = {"num_edges": 8_000_000, "peak_rss_bytes": 3 << 29}
    metrics = {"train_loss": 0.5, "valid_metric": 0.75, "epoch_time_s": 2.0}
    epoch = replace(cpu_run.epochs[0], **metrics, **sizes)
    line = "epoch 1/3  loss 0.5000  valid accuracy 0.7500  2.00 s  4.0 M edges/s  1.50 GiB"
    assert epoch_line(epoch, epochs=3, metric="accuracy", kind="measured") == line
    emulated = epoch_line(epoch, epochs=3, metric="accuracy", kind="emulated")
    assert emulated == line.replace("edges/s", "edges/s (emulated)")


def test_off_a_terminal(tmp_path: Path, caplog: pytest.LogCaptureFixture, hybrid_run: Any) -> None:
    observer, screen = report(tmp_path, terminal=False)
    with caplog.at_level(logging.INFO, logger="gnnscale"):
        hybrid_run.tell(observer)
    assert "epoch 1/3  loss 1.0000  valid accuracy 0.5700" in caplog.text
    assert "epoch 3/3" in caplog.text
    assert screen.getvalue() == ""
    assert OmegaConf.load(tmp_path / "config.yaml") == {"seed": 0}
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3]
    assert json.loads(lines[0])["devices"][1]["kind"] == "emulated"
    assert len((tmp_path / "steps.jsonl").read_text().splitlines()) == 90
    assert observer.run is not None
    assert observer.run.history == hybrid_run.epochs
    assert len(observer.spans.all()) == len(hybrid_run.spans)


def test_the_steps_of_an_epoch_are_written_at_its_end(tmp_path: Path, hybrid_run: Any) -> None:
    observer, _ = report(tmp_path, terminal=False)
    observer.started(hybrid_run.started)
    observer.stepped(hybrid_run.steps[0])
    observer.trained()
    assert len((tmp_path / "steps.jsonl").read_text().splitlines()) == 1


def test_decisions_are_told_but_not_more_than_one_a_second(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, hybrid_run: Any, monotonic: list[float]
) -> None:
    observer, _ = report(tmp_path, terminal=False)
    observer.started(hybrid_run.started)
    with caplog.at_level(logging.INFO, logger="gnnscale"):
        for step in hybrid_run.steps[:25]:
            monotonic[0] += 2.0 if step.global_step == 20 else 0.0
            observer.stepped(step)
    first, second = caplog.messages
    assert first.startswith("step 8: DRM: T_TC")
    assert second.startswith("step 24: DRM: T_TC")
    assert second.endswith("(1 before it not shown)")


def test_a_long_epoch_is_not_silent(tmp_path, caplog, cpu_run, monotonic) -> None:
    observer, _ = report(tmp_path, terminal=False)
    observer.started(cpu_run.started)
    with caplog.at_level(logging.INFO, logger="gnnscale"):
        for step in cpu_run.steps[:30]:
            observer.stepped(step)
            monotonic[0] += 1.0
    assert len(caplog.messages) == 2
    assert caplog.messages[0].startswith("epoch 1/3  step 11/30  loss ")


def test_one_processor_gets_a_bar_alone_and_several_a_table(
    tmp_path, cpu_run, monkeypatch, hybrid_run
) -> None:
    slow = tuple(replace(step, seconds=step.seconds + 1) for step in cpu_run.steps)
    observer, screen = report(tmp_path, terminal=True)
    replace(cpu_run, steps=slow).tell(observer)
    shown = screen.getvalue()
    for part in ("epoch 1/3", "30/30", "loss 0.", "valid accuracy 0.5700"):
        assert part in shown
    assert "cpu:0" not in shown
    seconds = itertools.count()
    monkeypatch.setattr("gnnscale.report.terminal.time.monotonic", lambda: next(seconds))
    observer, screen = report(tmp_path, terminal=True)
    hybrid_run.tell(observer)
    shown = screen.getvalue()
    for word in ("cpu:0", "emulated:1", "emulated", "30/30", "step 24: T_TC", "propagate ms"):
        assert word in shown


def test_a_resumed_run_rewrites_lines_after_its_checkpoint(tmp_path: Path, hybrid_run: Any) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1}\n{"epoch": 2}\n{"epo')
    first, _ = report(tmp_path, terminal=False)
    first.started(hybrid_run.started)
    for step in hybrid_run.steps[:45]:
        first.stepped(step)
    first.close()
    observer, _ = report(tmp_path, terminal=False)
    observer.started(replace(hybrid_run.started, history=hybrid_run.epochs[:1]))
    observer.stepped(hybrid_run.steps[30])
    observer.close()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1
    assert len((tmp_path / "steps.jsonl").read_text().splitlines()) == 31
    # Of a checkpoint inside the first epoch there are steps, and no epochs.
    inside, _ = report(tmp_path, terminal=False)
    inside.started(replace(hybrid_run.started, steps_done=7))
    inside.stepped(hybrid_run.steps[7])
    inside.close()
    assert (tmp_path / "metrics.jsonl").read_text() == ""
    assert len((tmp_path / "steps.jsonl").read_text().splitlines()) == 8
