"""The live view on a terminal: the bar of an epoch, and under it a line for each device."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from gnnscale.core.stages import STAGES
from gnnscale.plan import DevicePlan, DeviceShare
from gnnscale.report import figures, prediction
from gnnscale.report.fpga import fits
from gnnscale.runtime.telemetry.records import DeviceStep, StepRecord

#: Stage times shown are medians of so many steps: one step's jump too much to be read.
_NUM_STEPS = 16

_SHARE_BAR = 10

#: Narrower terminals get no stage times.
_NARROW = 78


class LivePanel(Progress):
    """The bar of an epoch with the devices below it, for plans that move work."""

    def __init__(self, plan: DevicePlan, console: Console) -> None:
        self._plan = plan
        self._steps: deque[tuple[DeviceStep, ...]] = deque(maxlen=_NUM_STEPS)
        self._stages: tuple[str, ...] = ()
        self._decision: str | None = None
        # Four times a second is enough for the eye, and leaves the cores to the training.
        super().__init__(*_columns(), console=console, transient=True, refresh_per_second=4)

    def take(self, record: StepRecord) -> None:
        """Remember what the devices did in a step."""
        self._steps.append(record.devices)
        self._stages = tuple(
            name
            for name in STAGES
            if name in self._stages or any(getattr(each.stages, name) for each in record.devices)
        )
        if record.decision is not None:
            self._decision = f"step {record.global_step}: {record.decision}"

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return what is drawn: the bar, the devices, and the last decision about them."""
        yield self.make_tasks_table(self.tasks)
        if self._steps:
            yield self._devices()
        if self._decision is not None:
            yield Text(f"DRM  {self._decision}", style="cyan", no_wrap=True, overflow="ellipsis")

    def _devices(self) -> Table:
        """A line for each device, with as much of its stage times as fits."""
        separate = self._table([f"{stage} ms" for stage in self._stages], gap=2)
        if fits(separate, self.console):
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
            mine = [step[rank] for step in steps]
            times = _stage_times(mine, self._stages)
            shown = times if len(headings) == len(times) else ["/".join(times)]
            table.add_row(*_cells(share, mine, batch), *(shown if headings else ()))
        return table


def epoch_bar(console: Console) -> Progress:
    """Return the bar of an epoch alone."""
    return Progress(*_columns(), console=console, transient=True)


def _columns() -> tuple[TextColumn | BarColumn | MofNCompleteColumn, ...]:
    return (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
    )


def _cells(share: DeviceShare, steps: list[DeviceStep], batch: int) -> tuple[Text | str, ...]:
    last, device = steps[-1], share.device
    style = "" if device.figures == figures.MEASURED else "yellow"
    part = last.num_seeds / batch if batch else 0.0
    filled = round(part * _SHARE_BAR)
    bar = Text("█" * filled, style="green") + Text("░" * (_SHARE_BAR - filled), style="dim")
    threads = last.threads
    return (
        device.label,
        Text(figures.kind_label(device.kind, device.figures), style=style),
        bar + Text(f" {figures.percent(part):>5}"),
        f"{last.num_seeds:,}",
        f"{threads.sample}/{threads.load}/{threads.propagate}",
    )


def _stage_times(steps: list[DeviceStep], stages: tuple[str, ...]) -> list[str]:
    """Medians in milliseconds."""
    shown = []
    for name in stages:
        median = statistics.median(getattr(step.stages, name) for step in steps)
        shown.append(figures.milliseconds(median) if median else figures.ABSENT)
    return shown


def _combined(stages: tuple[str, ...]) -> str:
    """The heading of all stage times in one column."""
    names = stages if len(stages) < 4 else (*stages[:2], "…", stages[-1])
    return f"ms {'/'.join(names)}"


def print_prediction(predicted: dict[str, Any], console: Console, *, absent: bool = False) -> None:
    """Print the stage times that ``compare`` returned as a table, in milliseconds a step.

    A row of measured times is called by the kind of its figures, one of predicted times by the name
    of the prediction; its errors are below. Stages that no device has are left out. ``absent`` also
    and states what is not known, and why.
    """
    table = Table(title="Predicted and measured stage times, ms per step")
    table.add_column("device", no_wrap=True)
    table.add_column("", no_wrap=True)
    stages = figures.present_stages(
        device[name]["stage_times_s"]
        for device in predicted["devices"]
        for name in ("measured", *figures.PREDICTIONS)
        if device[name] is not None
    )
    for stage in stages:
        table.add_column(stage, justify="right", no_wrap=True)
    for device in predicted["devices"]:
        label = figures.device_label(device["name"], device["kind"], device["figures"])
        for what, cells in _rows(device, stages):
            table.add_row(label, what, *cells)
            label = ""
        table.add_section()
    if not fits(table, console):
        table.padding = (0, 0, 0, 1)
    console.print(table)
    for sentence in prediction.sentences(predicted, absent=absent):
        console.print(sentence, highlight=False, soft_wrap=True)


def _rows(device: dict[str, Any], stages: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """The rows of a device: what it took, and below each prediction."""
    seen = device["measured"]["stage_times_s"]
    yield device["figures"], [figures.milliseconds(seen[stage]) for stage in stages]
    for name, words in figures.PREDICTIONS.items():
        if device[name] is None:
            continue
        yield (
            words,
            [figures.milliseconds(device[name]["stage_times_s"][stage]) for stage in stages],
        )
        yield (
            "  error",
            [figures.signed_percent(device[name]["stage_errors"][stage]) for stage in stages],
        )
