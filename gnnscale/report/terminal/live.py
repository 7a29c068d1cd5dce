"""A run while it goes on: a bar on a terminal, plain lines elsewhere, and files of what happens."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import OmegaConf
from rich.console import Console
from rich.progress import Progress, TaskID

from gnnscale.core.files import write_atomically
from gnnscale.core.metrics import mteps
from gnnscale.options.found import remember_own
from gnnscale.options.run_directory import CONFIG_FILE
from gnnscale.plan import DevicePlan
from gnnscale.report.figures import MEASURED, gib
from gnnscale.report.files import steps, summary, trace
from gnnscale.report.terminal.panel import LivePanel, epoch_bar
from gnnscale.runtime.telemetry.records import EpochRecord, Observer, StepRecord, TrainResult

log = logging.getLogger(__name__)

#: Runs and epochs shorter than this need no bar, and lines come no more often off a terminal.
_SHOW_AFTER_S = 1.0
#: Off a terminal, a long epoch logs its progress this often.
_PROGRESS_EVERY_S = 10.0


class RunReport(Observer):
    """The observer of a run.

    It shows the run, and writes ``config.yaml``, ``metrics.jsonl`` and ``steps.jsonl``.

    Args:
        console: where to show; a terminal gets a bar, everything else lines through ``logging``.
        began: when the command began, by ``time.monotonic``; None for now.
    """

    def __init__(
        self,
        directory: Path,
        *,
        epochs: int,
        options: Mapping[str, Any],
        console: Console,
        began: float | None = None,
    ) -> None:
        self.run: TrainResult | None = None  #: the run so far, None until it has started
        self.directory = directory  #: the run directory
        self.options = options  #: the run's options as plain values, written to ``config.yaml``
        self.spans = trace.Spans()  #: when the stages of the first steps ran
        #: seconds from the start of the command until its first step was reported
        self.first_step_s: float | None = None
        self._began = time.monotonic() if began is None else began
        self._epochs = epochs
        self._console = console
        self._steps = steps.StepLog(directory / steps.STEPS_FILE)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._start = 0.0
        self._last_line = 0.0
        self._last_progress = 0.0
        self._last_decision = 0.0
        self._num_not_logged = 0

    def write_options(self) -> None:
        """Write the run's options, whole or not at all."""
        write_atomically(self.directory / CONFIG_FILE, OmegaConf.to_yaml(dict(self.options)))
        remember_own(self.directory)

    def started(self, run: TrainResult) -> None:
        """Write the run's options, and the epochs after which it resumes."""
        self.run = run
        self._start = self._last_progress = time.monotonic()
        self.write_options()
        summary.write_metrics(self.directory, run.history)
        if not run.history and not run.steps_done:
            # What another run has left here.
            for name in (steps.STEPS_FILE, trace.TRACE_FILE):
                (self.directory / name).unlink(missing_ok=True)

    def stepped(self, record: StepRecord) -> None:
        """Write the step to ``steps.jsonl``, and show it."""
        self._steps.add(record)
        if self.first_step_s is None:
            self.first_step_s = time.monotonic() - self._began
        if self._console.is_terminal:
            self._draw(record)
        else:
            self._log(record)

    def traced(self, spans: NDArray[np.void]) -> None:
        """Keep the spans for ``trace.json``."""
        self.spans.add(spans)

    def trained(self) -> None:
        """Write the epoch's steps, and take the bar away; validation may show its own."""
        # A checkpoint that follows continues after them.
        self._steps.flush()
        self._hide()

    def finished_epoch(self, record: EpochRecord) -> None:
        """Write the epoch to ``metrics.jsonl`` and show it in a line."""
        assert self.run is not None
        self.run = replace(self.run, history=(*self.run.history, record))
        summary.append_metrics(self.directory, record)
        line = epoch_line(record, epochs=self._epochs, metric=self.run.metric)
        now = time.monotonic()
        last = record.epoch == self._epochs
        if now - self._last_line < _SHOW_AFTER_S and not last:
            return
        self._last_line = self._last_progress = now
        if self._console.is_terminal:
            self._console.print(line, highlight=False)
        else:
            log.info(line)

    def close(self) -> None:
        """Take the bar away and write what is not yet written, whatever the run was doing."""
        self._hide()
        self._steps.flush()

    def _draw(self, record: StepRecord) -> None:
        """Move the bar, which appears when an epoch, or a run on several devices, takes longer."""
        assert self.run is not None
        plan = self.run.plan
        each_device = _shows_each_device(plan)
        seconds = time.monotonic() - self._start if each_device else record.seconds
        if self._bar is None and seconds < _SHOW_AFTER_S:
            return
        if self._bar is None:
            self._bar = LivePanel(plan, self._console) if each_device else epoch_bar(self._console)
            self._task = self._bar.add_task("", total=record.num_steps, figures="")
            self._bar.start()
        rate = mteps(record.num_edges, record.seconds)
        if isinstance(self._bar, LivePanel):
            self._bar.take(record)
        self._bar.update(
            self._task,
            description=f"epoch {record.epoch}/{self._epochs}",
            completed=record.step,
            figures=f"loss {record.mean_loss:.4f}  {rate:.1f} M edges/s",
        )

    def _log(self, record: StepRecord) -> None:
        """Log a decision, and every now and then how far a long epoch is."""
        now = time.monotonic()
        if record.decision is not None:
            if now - self._last_decision < _SHOW_AFTER_S:
                self._num_not_logged += 1
            else:
                more = (
                    f" ({self._num_not_logged} before it not shown)" if self._num_not_logged else ""
                )
                log.info(f"step {record.global_step}: DRM: {record.decision}{more}")
                self._last_decision, self._num_not_logged = now, 0
        if now - self._last_progress >= _PROGRESS_EVERY_S:
            self._last_progress = now
            log.info(
                f"epoch {record.epoch}/{self._epochs}  step {record.step}/{record.num_steps}"
                f"  loss {record.mean_loss:.4f}"
                f"  {mteps(record.num_edges, record.seconds):.1f} M edges/s"
            )

    def _hide(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar = None


def epoch_line(record: EpochRecord, *, epochs: int, metric: str) -> str:
    """Return an epoch's figures as one line."""
    measured = record.valid_metrics or {metric: record.valid_metric}
    valid = "".join(
        f"  valid {name} {value:.4f}" for name, value in measured.items() if value is not None
    )
    return (
        f"epoch {record.epoch}/{epochs}  loss {record.train_loss:.4f}{valid}"
        f"  {record.epoch_time_s:.2f} s"
        f"  {mteps(record.num_edges, record.epoch_time_s):.1f} M edges/s"
        f"  {gib(record.peak_rss_bytes)}"
    )


def _shows_each_device(plan: DevicePlan) -> bool:
    """Whether devices get a line each: not if there is only the host itself."""
    device = plan.shares[0].device
    return len(plan.shares) > 1 or not device.on_host or device.figures != MEASURED
