"""The live view on a terminal: the bar of an epoch, and under it a line for each device."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from gnnscale.plan import DevicePlan, DeviceShare
from gnnscale.report.figures import ABSENT, milliseconds, percent
from gnnscale.runtime.telemetry.records import DeviceStep, StepRecord
from gnnscale.stages import STAGES

__all__ = ["LivePanel", "epoch_bar"]

#: Stage times shown are medians of so many steps: one step's jump too much to be read.
_NUM_STEPS = 16
_SHARE_BAR = 10
#: Narrower terminals get stage times in one column, and narrower still, none.
_WIDE, _NARROW = 112, 78


class LivePanel(Progress):
    """The bar of an epoch with the devices below it, for plans that move work.

    Args:
        plan: names the devices, by rank.
        console: a terminal.
    """

    def __init__(self, plan: DevicePlan, console: Console) -> None:
        self._plan = plan
        self._steps: deque[tuple[DeviceStep, ...]] = deque(maxlen=_NUM_STEPS)
        self._decision: str | None = None
        # Four times a second is enough for the eye, and leaves the cores to the training.
        super().__init__(*_columns(), console=console, transient=True, refresh_per_second=4)

    def take(self, record: StepRecord) -> None:
        """Remember what the devices did in a step."""
        self._steps.append(record.devices)
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
        width = self.console.width
        if width >= _WIDE:
            headings = [f"{stage} ms" for stage in STAGES]
        else:
            headings = ["ms sample/load/…/sync"] if width >= _NARROW else []
        steps = list(self._steps)
        gap = 2 if width >= _WIDE else 1
        table = Table(box=None, padding=(0, gap, 0, 0), header_style="dim", pad_edge=False)
        table.add_column("device", no_wrap=True)
        table.add_column("kind", no_wrap=True, min_width=len("emulated"))
        for heading in ("share", "seeds", "threads", *headings):
            table.add_column(heading, no_wrap=True, justify="right")
        batch = sum(device.num_seeds for device in steps[-1])
        for rank, share in enumerate(self._plan.shares):
            mine = [step[rank] for step in steps]
            times = _stages(mine)
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
    last = steps[-1]
    part = last.num_seeds / batch if batch else 0.0
    filled = round(part * _SHARE_BAR)
    bar = Text("█" * filled, style="green") + Text("░" * (_SHARE_BAR - filled), style="dim")
    threads = last.threads
    return (
        str(share.device.name),
        Text(share.device.kind, style="yellow" if share.device.kind == "emulated" else ""),
        bar + Text(f" {percent(part):>5}"),
        f"{last.num_seeds:,}",
        f"{threads.sample}/{threads.load}/{threads.propagate}",
    )


def _stages(steps: list[DeviceStep]) -> list[str]:
    shown = []
    for name in STAGES:
        median = statistics.median(getattr(step.stages, name) for step in steps)
        shown.append(milliseconds(median) if median else ABSENT)
    return shown
