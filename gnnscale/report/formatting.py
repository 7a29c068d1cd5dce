"""Figures as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gnnscale.core import STAGES, Traffic

if TYPE_CHECKING:
    from gnnscale.run.records import TrainResult


ABSENT = "–"

#: Predictions of the performance model, as ``summary.json`` calls them, and as people read them.
PREDICTIONS = {"by_rates": "by rates", "rehearsed": "rehearsed"}


def count(value: float | None) -> str:
    """Return a number with three significant digits at least, and separated thousands."""
    if value is None:
        return ABSENT
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) < 0.1:
        return f"{value:.3g}"
    decimals = 2 if abs(value) >= 1 else 3
    return f"{value:.{decimals}f}"


def short(number: int) -> str:
    """Return a whole number in five characters at most: 1,234, 56.7k, 8.90M."""
    if number < 10_000:
        return f"{number:,}"
    power = (len(str(number)) - 1) // 3
    # 999,950 would become 1000k.
    if round(number / 1000**power, 0) >= 1000:
        power += 1
    value = number / 1000**power
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f}{('', 'k', 'M', 'G', 'T')[power]}"


def gib(num_bytes: float | None) -> str:
    """Return a number of bytes in GiB; in MiB or KiB if it is less than a tenth of the larger."""
    if num_bytes is None:
        return ABSENT
    if 0 < num_bytes < 0.1 * 2**20:
        return f"{num_bytes / 2**10:.1f} KiB"
    if 0 < num_bytes < 0.1 * 2**30:
        return f"{num_bytes / 2**20:.1f} MiB"
    return f"{num_bytes / 2**30:.2f} GiB"


def milliseconds(seconds: float | None) -> str:
    """Return seconds in milliseconds, without the unit, to about three digits."""
    if seconds is None:
        return ABSENT
    value = seconds * 1e3
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{decimals}f}"


def duration(seconds: float) -> str:
    """Return seconds with their unit, in milliseconds if they are less than one."""
    if seconds < 1:
        return f"{milliseconds(seconds)} ms"
    decimals = 0 if seconds >= 99.95 else 1 if seconds >= 9.995 else 2
    return f"{seconds:,.{decimals}f} s"


def percent(share: float | None) -> str:
    """Return a share of 1 in percent."""
    return ABSENT if share is None else f"{share * 100:.0f} %"


def fine_percent(error: float | None) -> str:
    """Return a small relative error in percent, with its sign and one decimal."""
    return ABSENT if error is None else f"{error * 100:+.1f} %"


def signed_percent(error: float | None) -> str:
    """Return a relative error in percent, with its sign."""
    return ABSENT if error is None else f"{error * 100:+.0f} %"


#: The kind of figures that need no mark: those of real hardware.
MEASURED = "measured"

#: Kinds of figures (``Device.figures``), the most real first.
_KINDS_OF_FIGURES = (MEASURED, "emulated", "csim")


def least_real(kinds: Iterable[str]) -> str:
    """Return the kind of a figure that rests on figures of all ``kinds``.

    One that is not known here counts as the least real; no figures at all are measured ones.
    """

    def distance(kind: str) -> int:
        known = kind in _KINDS_OF_FIGURES
        return _KINDS_OF_FIGURES.index(kind) if known else len(_KINDS_OF_FIGURES)

    return max(kinds, key=distance, default=MEASURED)


def kind_label(kind: str, figures: str) -> str:
    """Return a device's kind, and the kind of its figures unless they are measured."""
    return kind if figures in (MEASURED, kind) else f"{kind} {figures}"


def device_label(name: str, kind: str, figures: str) -> str:
    """Return a device's name, and in brackets what ``kind_label`` adds to it."""
    words = kind_label(kind, figures).split()
    missing = [word for word in words if word not in name]
    return f"{name} ({' '.join(missing)})" if missing else name


def present_stages(devices: Iterable[Mapping[str, float | None]]) -> tuple[str, ...]:
    """Return the stages that at least one of ``devices`` has a time of, in pipeline order."""
    present = {name for times in devices for name, time in times.items() if time is not None}
    return tuple(name for name in STAGES if name in present)


def energy_sentence(summary: Mapping[str, Any]) -> str | None:
    """Return what the GPUs of a run took to train; None if nothing counted it."""
    joules, epochs = summary["energy_j"], summary["epochs"]
    if joules is None or not epochs:
        return None
    return (
        f"energy: {joules:,.0f} J while training, {joules / epochs:,.1f} J an epoch, by NVML over "
        "all GPUs"
    )


def late_sentences(devices: Iterable[Mapping[str, Any]], *, num_steps: int) -> list[str]:
    """Return a sentence for each emulated device that the host was too slow for."""
    said = []
    for device in devices:
        seconds = device["counters"].get("late_s", 0.0)
        steps = round(device["counters"].get("late_steps", 0.0))
        if seconds and steps:
            said.append(
                f"{device['name']}: the host was slower than the device that it emulates in "
                f"{steps:,} of {num_steps:,} steps, by {seconds:.2g} s in all; times of this "
                "device are too long by that"
            )
    return said


def network_figures(run: TrainResult) -> dict[str, Any] | None:
    """Return the rows that cross the network in a step, over all devices: means of all steps.

    ``expected`` bytes are the rows that the planner missed, each with its id; ``bytes`` are those
    of the messages that were sent for them, both ways. None unless machines divide the rows.
    """
    layout = run.layout.network
    if layout is None or not run.history or not run.steps_per_epoch:
        return None
    total = sum((each.traffic for epoch in run.history for each in epoch.devices), Traffic())
    steps, tier, disk = len(run.history) * run.steps_per_epoch, total.tier, total.disk
    rows = tier.misses - disk.misses
    return {
        "machines": layout.num_machines,
        "row_bytes": layout.row_bytes,
        "id_bytes": layout.id_bytes,
        "rows": rows / steps,
        "requests": (tier.link_requests - disk.link_requests) / steps,
        "bytes": (tier.link_bytes - disk.link_bytes) / steps,
        "expected": rows * (layout.row_bytes + layout.id_bytes) / steps,
    }


def network_line(run: TrainResult) -> str | None:
    """Return ``network_figures`` for a terminal; None without any."""
    found = network_figures(run)
    if found is None:
        return None
    measured, expected = found["bytes"], found["expected"]
    error = f" ({expected / measured - 1:+.2%})" if measured else ""
    return (
        f"network: {measured / 1e6:,.2f} MB a step for rows of other machines, "
        f"{expected / 1e6:,.2f} MB expected{error}"
    )
