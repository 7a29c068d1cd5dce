"""Live report of a run: a progress bar and a table on a terminal, log lines elsewhere."""

import logging
import statistics
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from gnnscale.core import STAGES, KnownFolder, StructArray, mteps
from gnnscale.core.config import STEPS_FILE, untrusted
from gnnscale.planner import DevicePlan, DeviceShare
from gnnscale.report import formatting, fpga, prediction, steps, summary
from gnnscale.run import records
from gnnscale.run.history import History

#: Steps over which displayed stage times are medians; the times of single steps jump too much.
_NUM_STEPS = 16

_SHARE_BAR = 10

#: Least width of a terminal, in characters, for a combined column of stage times.
_NARROW = 78


class LivePanel(Progress):
    """Progress bar of an epoch, with a table of the devices below it."""

    def __init__(self, plan: DevicePlan, console: Console) -> None:
        self._plan = plan
        self._steps: deque[tuple[records.DeviceStep, ...]] = deque(maxlen=_NUM_STEPS)
        self._stages: tuple[str, ...] = ()
        self._decision: str | None = None
        # Four frames a second leave the cores to training.
        super().__init__(*_columns(), console=console, transient=True, refresh_per_second=4)

    def take(self, record: records.StepRecord) -> None:
        """Add a step to those whose medians the table shows, and keep its decision, if any."""
        self._steps.append(record.devices)
        present = {name for name in STAGES for d in record.devices if getattr(d.stages, name)}
        self._stages = tuple(name for name in STAGES if name in present.union(self._stages))
        if record.decision is not None:
            self._decision = f"step {record.global_step}: {record.decision}"

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bar, the table of devices, and the last decision of resource management."""
        yield self.make_tasks_table(self.tasks)
        if self._steps:
            yield self._devices()
        if self._decision is not None:
            yield Text(f"DRM  {self._decision}", style="cyan", no_wrap=True, overflow="ellipsis")

    def _devices(self) -> Table:
        """Return the table of devices, with stage times in as many columns as fit."""
        separate = self._table([f"{stage} ms" for stage in self._stages], gap=2)
        if fpga.fits(separate, self.console):
            return separate
        return self._table(
            [_combined(self._stages)] if self.console.width >= _NARROW else [], gap=1
        )

    def _table(self, headings: list[str], *, gap: int) -> Table:
        steps = list(self._steps)
        table = Table(box=None, padding=(0, gap, 0, 0), header_style="dim", pad_edge=False)
        table.add_column("device", no_wrap=True)
        table.add_column("kind", no_wrap=True)
        for heading in ("share", "seeds", "threads", *headings):
            table.add_column(heading, no_wrap=True, justify="right")
        batch = sum(device.num_seeds for device in steps[-1])
        for rank, share in enumerate(self._plan.shares):
            device_steps = [step[rank] for step in steps]
            times = _stage_times(device_steps, self._stages)
            columns = times if len(headings) == len(times) else ["/".join(times)]
            table.add_row(*_cells(share, device_steps, batch), *(columns if headings else ()))
        return table


def epoch_bar(console: Console) -> Progress:
    """Return a progress bar of an epoch, without devices."""
    return Progress(*_columns(), console=console, transient=True)


def _columns() -> tuple[TextColumn | BarColumn | MofNCompleteColumn, ...]:
    return (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
    )


def _cells(
    share: DeviceShare, steps: list[records.DeviceStep], batch: int
) -> tuple[Text | str, ...]:
    last, device = steps[-1], share.device
    style = "" if device.figures == formatting.MEASURED else "yellow"
    part = last.num_seeds / batch if batch else 0.0
    filled = round(part * _SHARE_BAR)
    bar = Text("█" * filled, style="green") + Text("░" * (_SHARE_BAR - filled), style="dim")
    threads = last.threads
    return (
        device.label,
        Text(formatting.kind_label(device.kind, device.figures), style=style),
        bar + Text(f" {formatting.percent(part):>5}"),
        f"{last.num_seeds:,}",
        f"{threads.sample}/{threads.load}/{threads.propagate}",
    )


def _stage_times(steps: list[records.DeviceStep], stages: tuple[str, ...]) -> list[str]:
    """Return a device's median time of each stage in milliseconds, as text; 0 is ``ABSENT``."""
    medians = []
    for name in stages:
        median = statistics.median(getattr(step.stages, name) for step in steps)
        medians.append(formatting.milliseconds(median) if median else formatting.ABSENT)
    return medians


def _combined(stages: tuple[str, ...]) -> str:
    """Return the heading of one column of all stage times, such as ``ms sample/load``."""
    names = stages if len(stages) < 4 else (*stages[:2], "…", stages[-1])
    return f"ms {'/'.join(names)}"


def print_prediction(predicted: dict[str, Any], console: Console, *, absent: bool = False) -> None:
    """Print a table of a result of ``compare``: measured and predicted stage times in ms per step.

    Each device has a row of measured times, and for each prediction a row of times and a row of
    errors. Lines about steps follow; ``absent``: also about unknown values, and the reasons.
    """
    table = Table(title="Predicted and measured stage times, ms per step")
    table.add_column("device", no_wrap=True)
    table.add_column("", no_wrap=True)
    stages = formatting.present_stages(
        device[name]["stage_times_s"]
        for device in predicted["devices"]
        for name in ("measured", *formatting.PREDICTIONS)
        if device[name] is not None
    )
    for stage in stages:
        table.add_column(stage, justify="right", no_wrap=True)
    for device in predicted["devices"]:
        label = formatting.device_label(device["name"], device["kind"], device["figures"])
        for row_label, cells in _rows(device, stages):
            table.add_row(label, row_label, *cells)
            label = ""
        table.add_section()
    if not fpga.fits(table, console):
        table.padding = (0, 0, 0, 1)
    console.print(table)
    formatting.print_lines(console, prediction.sentences(predicted, absent=absent))


def _rows(device: dict[str, Any], stages: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of a device with their labels: measured times, then predictions."""
    measured = device["measured"]["stage_times_s"]
    yield device["figures"], [formatting.milliseconds(measured[stage]) for stage in stages]
    for name, label in formatting.PREDICTIONS.items():
        if device[name] is None:
            continue
        times, errors = device[name]["stage_times_s"], device[name]["stage_errors"]
        yield label, [formatting.milliseconds(times[stage]) for stage in stages]
        yield "  error", [formatting.signed_percent(errors[stage]) for stage in stages]


log = logging.getLogger(__name__)

#: Seconds before a run or an epoch gets a bar, and between two log lines without a terminal.
_SHOW_AFTER_S = 1.0
#: Seconds between two log lines within an epoch, without a terminal.
_PROGRESS_EVERY_S = 10.0


class RunReport(records.Observer):
    """Observer that shows a run, and writes ``config.yaml``, ``metrics.jsonl``, ``steps.jsonl``.

    A terminal ``console`` gets a progress bar, another console log lines. ``began`` is the start of
    the command by ``time.monotonic``; None: now.
    """

    def __init__(
        self,
        directory: Path,
        *,
        epochs: int,
        options: Mapping[str, Any],
        console: Console,
        began: float | None = None,
        command: str | None = None,
    ) -> None:
        self.run: records.TrainResult | None = None  #: the run so far; None before it starts
        self.directory = directory  #: the run directory
        self.command = command  #: command line that repeats the run
        self.options = options  #: the run's options as plain values, written to ``config.yaml``
        self.spans = steps.Spans()  #: start and end of the stages of the first steps
        #: seconds from the start of the command to the report of its first step
        self.first_step_s: float | None = None
        self.started_at = time.time()  #: start of the run in this process, in seconds since 1970
        self._began = time.monotonic() if began is None else began
        self._epochs = epochs
        self._console = console
        self._draws = console.is_terminal  # looked up once: it takes as long as writing a step
        self._folder = KnownFolder(directory)
        self._steps = steps.StepLog(directory / STEPS_FILE)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._start = 0.0
        self._last_line = 0.0
        self._last_progress = 0.0
        self._last_decision = 0.0
        self._num_not_logged = 0

    def write_options(self) -> None:
        """Write the run's options to ``config.yaml``, and record the run as this user's."""
        untrusted.write_own(self.directory, self.options)

    def started(self, run: records.TrainResult) -> None:
        """Write ``config.yaml``, and the epochs before a resumption to ``metrics.jsonl``.

        A new run removes ``steps.jsonl`` and ``trace.json`` of an earlier run.
        """
        self.run = replace(run, history=History(run.history))
        self._start = self._last_progress = time.monotonic()
        self.write_options()
        summary.write_metrics(self.directory, run.history)
        if not run.history and not run.steps_done:
            # An earlier run may have left them.
            for name in (STEPS_FILE, steps.TRACE_FILE):
                (self.directory / name).unlink(missing_ok=True)

    def stepped(self, record: records.StepRecord) -> None:
        """Write the step to ``steps.jsonl``, and show it."""
        self._steps.add(record)
        if self.first_step_s is None:
            self.first_step_s = time.monotonic() - self._began
        if self._draws:
            self._draw(record)
        else:
            self._log(record)

    def traced(self, spans: StructArray) -> None:
        """Keep the spans of the first steps in memory, for ``trace.json``."""
        self.spans.add(spans)

    def trained(self) -> None:
        """Write the epoch's steps, and hide the bar, since validation may show another."""
        # Steps must be on disk before the checkpoint that follows them.
        self._steps.flush()
        self._hide()

    def finished_epoch(self, record: records.EpochRecord) -> None:
        """Write the epoch to ``metrics.jsonl``; show it after a second, or if it is the last."""
        assert self.run is not None
        history = self.run.history
        assert isinstance(history, History)
        self.run = replace(self.run, history=history.appended(record))
        self._folder.check()
        summary.append_metrics(self.directory, record)
        line = epoch_line(
            record, epochs=self._epochs, metric=self.run.metric, kind=_kind(self.run.plan)
        )
        now = time.monotonic()
        last = record.epoch == self._epochs
        if now - self._last_line < _SHOW_AFTER_S and not last:
            return
        self._last_line = self._last_progress = now
        if self._console.is_terminal:
            self._console.print(line, highlight=False, markup=False)
        else:
            log.info(line)

    def close(self) -> None:
        """Hide the bar, and write steps that are not written yet."""
        self._hide()
        self._steps.flush()

    def _draw(self, record: records.StepRecord) -> None:
        """Update the bar; it appears a second into an epoch, or into a run that shows devices."""
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
        rate = _rate(record.num_edges, record.seconds, _kind(plan))
        if isinstance(self._bar, LivePanel):
            self._bar.take(record)
        self._bar.update(
            self._task,
            description=f"epoch {record.epoch}/{self._epochs}",
            completed=record.step,
            figures=f"loss {record.mean_loss:.4f}  {rate}",
        )

    def _log(self, record: records.StepRecord) -> None:
        """Log a decision of resource management, at most one a second; every 10 s the progress."""
        assert self.run is not None
        now = time.monotonic()
        if record.decision is not None:
            if now - self._last_decision < _SHOW_AFTER_S:
                self._num_not_logged += 1
            else:
                hidden = self._num_not_logged
                more = f" ({hidden} before it not shown)" if hidden else ""
                log.info(f"step {record.global_step}: DRM: {record.decision}{more}")
                self._last_decision, self._num_not_logged = now, 0
        if now - self._last_progress >= _PROGRESS_EVERY_S:
            self._last_progress = now
            log.info(
                f"epoch {record.epoch}/{self._epochs}  step {record.step}/{record.num_steps}"
                f"  loss {record.mean_loss:.4f}"
                f"  {_rate(record.num_edges, record.seconds, _kind(self.run.plan))}"
            )

    def _hide(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar = None


def epoch_line(record: records.EpochRecord, *, epochs: int, metric: str, kind: str) -> str:
    """Return a line with an epoch's loss, metrics, speed, ``kind`` of times, and memory."""
    measured = record.valid_metrics or {metric: record.valid_metric}
    valid = "".join(
        f"  valid {name} {value:.4f}" for name, value in measured.items() if value is not None
    )
    return (
        f"epoch {record.epoch}/{epochs}  loss {record.train_loss:.4f}{valid}"
        f"  {record.epoch_time_s:.2f} s"
        f"  {_rate(record.num_edges, record.epoch_time_s, kind)}"
        f"  {formatting.gib(record.peak_rss_bytes)}"
    )


def _rate(num_edges: int, seconds: float, kind: str) -> str:
    """Return the edges per second, followed by the ``kind`` of the seconds unless measured."""
    mark = "" if kind == formatting.MEASURED else f" ({kind})"
    return f"{mteps(num_edges, seconds):.1f} M edges/s{mark}"


def _kind(plan: DevicePlan) -> str:
    """Return the devices' kind of times farthest from hardware, such as ``emulated``."""
    return formatting.least_real(share.device.figures for share in plan.shares)


def _shows_each_device(plan: DevicePlan) -> bool:
    """Whether devices get a line each: not if the only device is the measured host."""
    device = plan.shares[0].device
    return len(plan.shares) > 1 or not device.on_host or device.figures != formatting.MEASURED
