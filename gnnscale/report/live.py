"""A run while it goes on: a bar on a terminal, plain lines elsewhere, and ``metrics.jsonl``."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from gnnscale.metrics import mteps, peak_rss_bytes
from gnnscale.report.summary import append_metrics, write_metrics, write_text
from gnnscale.runtime.records import EpochRecord, StepRecord, TrainResult

__all__ = ["RunReport", "epoch_line", "gib"]

log = logging.getLogger(__name__)

#: Epochs shorter than this need no bar, and lines come no more often off a terminal.
_SHOW_AFTER_S = 1.0


class RunReport:
    """The observer of a run: shows it, and writes ``config.yaml`` and ``metrics.jsonl``.

    Args:
        directory: the run directory.
        epochs: how many epochs the run is to have.
        options: the run's options as plain values, written to ``config.yaml``.
        console: where to show; a terminal gets a bar, everything else lines through ``logging``.
    """

    def __init__(
        self, directory: Path, *, epochs: int, options: Mapping[str, Any], console: Console
    ) -> None:
        self.run: TrainResult | None = None
        self._directory = directory
        self._epochs = epochs
        self._options = options
        self._console = console
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._last_line = 0.0

    def started(self, run: TrainResult) -> None:
        """Write the run's options, and the epochs it resumes behind."""
        self.run = run
        write_text(self._directory / "config.yaml", OmegaConf.to_yaml(dict(self._options)))
        write_metrics(self._directory, run.history)

    def stepped(self, record: StepRecord) -> None:
        """Move the bar, which appears when an epoch takes more than a second."""
        if not self._console.is_terminal or record.seconds < _SHOW_AFTER_S:
            return
        if self._bar is None:
            self._bar = self._new_bar()
            self._task = self._bar.add_task("", total=record.num_steps, figures="")
            self._bar.start()
        figures = (
            f"loss {record.loss:.4f}  {mteps(record.num_edges, record.seconds):.1f} M edges/s"
            f"  {gib(peak_rss_bytes())}"
        )
        self._bar.update(
            self._task,
            description=f"epoch {record.epoch}/{self._epochs}",
            completed=record.step,
            figures=figures,
        )

    def trained(self) -> None:
        """Take the bar away; validation may show its own."""
        self.close()

    def finished_epoch(self, record: EpochRecord) -> None:
        """Write the epoch to ``metrics.jsonl`` and show it in a line."""
        assert self.run is not None
        self.run = replace(self.run, history=(*self.run.history, record))
        append_metrics(self._directory, record)
        line = epoch_line(record, epochs=self._epochs, metric=self.run.metric)
        now = time.monotonic()
        last = record.epoch == self._epochs
        if now - self._last_line < _SHOW_AFTER_S and not last:
            return
        self._last_line = now
        if self._console.is_terminal:
            self._console.print(line, highlight=False)
        else:
            log.info(line)

    def close(self) -> None:
        """Take the bar away, whatever the run was doing."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = None

    def _new_bar(self) -> Progress:
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            console=self._console,
            transient=True,
        )


def epoch_line(record: EpochRecord, *, epochs: int, metric: str) -> str:
    """Return an epoch's figures as one line."""
    valid = "" if record.valid_metric is None else f"  valid {metric} {record.valid_metric:.4f}"
    return (
        f"epoch {record.epoch}/{epochs}  loss {record.train_loss:.4f}{valid}"
        f"  {record.epoch_time_s:.2f} s"
        f"  {mteps(record.num_edges, record.epoch_time_s):.1f} M edges/s"
        f"  {gib(record.peak_rss_bytes)}"
    )


def gib(num_bytes: int) -> str:
    """Return a number of bytes in GiB."""
    return f"{num_bytes / 2**30:.2f} GiB"
