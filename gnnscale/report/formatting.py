"""Numbers, times and kinds of figures as text for people."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from gnnscale.core import STAGES, Traffic
from gnnscale.core.binary_metrics import Thresholds

if TYPE_CHECKING:
    from gnnscale.run.records import TrainResult


#: Text of an unknown value, None.
ABSENT = "–"

#: Predictions of the performance model: key in ``summary.json``, and label.
PREDICTIONS = {"by_rates": "by rates", "rehearsed": "rehearsed"}


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print ``lines`` as they are: without markup, and unbroken in a file."""
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def wide(console: Console, width: int) -> Console:
    """Return ``console``; of a file, which needs no line breaks, one of ``width`` characters."""
    return console if console.is_terminal else Console(width=width, file=console.file)


def count(value: float | None) -> str:
    """Return a number as text: whole, but fractions below 100 to about three digits.

    None: ``ABSENT``.
    """
    if value is None:
        return ABSENT
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) < 0.1:
        return f"{value:.3g}"
    decimals = 2 if abs(value) >= 1 else 3
    return f"{value:.{decimals}f}"


def short(number: int) -> str:
    """Return a whole number in at most five characters: 1,234, 56.7k, 8.90M."""
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
    """Return bytes in GiB, below 0.1 GiB in MiB, below 0.1 MiB in KiB; None: ``ABSENT``."""
    if num_bytes is None:
        return ABSENT
    if 0 < num_bytes < 0.1 * 2**20:
        return f"{num_bytes / 2**10:.1f} KiB"
    if 0 < num_bytes < 0.1 * 2**30:
        return f"{num_bytes / 2**20:.1f} MiB"
    return f"{num_bytes / 2**30:.2f} GiB"


def milliseconds(seconds: float | None) -> str:
    """Return seconds in milliseconds, without unit, with up to two decimals; None: ``ABSENT``."""
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
    """Return a share, where 1 is all, in whole percent; None: ``ABSENT``."""
    return ABSENT if share is None else f"{share * 100:.0f} %"


def fixed(value: float | None, decimals: int) -> str:
    """Return a number with ``decimals`` decimals; None: ``ABSENT``."""
    return ABSENT if value is None else f"{value:.{decimals}f}"


def metrics_line(metrics: Mapping[str, float | None], base_rate: float | None) -> str:
    """Return names and values of metrics, and the base rate that some compare with."""
    words = [
        f"{name} {'not defined' if value is None else f'{value:.4f}'}"
        for name, value in metrics.items()
    ]
    return ", ".join(words + ([] if base_rate is None else [f"base rate {base_rate:.4f}"]))


def threshold_words(values: Sequence[float]) -> str:
    """Return one threshold, or number and range of the thresholds of several classes."""
    if len(values) == 1:
        return f"threshold {values[0]:.4g}"
    return f"thresholds of {len(values)} classes from {min(values):.4g} to {max(values):.4g}"


def thresholds_line(thresholds: Thresholds) -> str:
    """Return thresholds that a run has chosen, their rule, and validation at them."""
    valid = metrics_line(thresholds.valid, None)
    return (
        f"{threshold_words(thresholds.values)}, chosen by {thresholds.rule} on validation: {valid}"
    )


def fine_percent(error: float | None) -> str:
    """Return a relative error in percent with sign and one decimal; None: ``ABSENT``."""
    return ABSENT if error is None else f"{error * 100:+.1f} %"


def mean_present(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None: every value is None."""
    present = [value for value in values if value is not None]
    return statistics.fmean(present) if present else None


def signed_percent(error: float | None) -> str:
    """Return a relative error in whole percent with sign; None: ``ABSENT``."""
    return ABSENT if error is None else f"{error * 100:+.0f} %"


#: Kind of figures measured on real hardware, which get no mark.
MEASURED = "measured"

#: Kinds of figures (``Device.figures``), closest to real hardware first.
_KINDS_OF_FIGURES = (MEASURED, "emulated", "csim")


def least_real(kinds: Iterable[str]) -> str:
    """Return the kind of times, such as ``emulated``, that is farthest from real hardware.

    Unknown kinds are farthest; ``MEASURED`` without kinds.
    """

    def distance(kind: str) -> int:
        is_known = kind in _KINDS_OF_FIGURES
        return _KINDS_OF_FIGURES.index(kind) if is_known else len(_KINDS_OF_FIGURES)

    return max(kinds, key=distance, default=MEASURED)


def kind_label(kind: str, figures: str) -> str:
    """Return a device's kind and how its times arise (``figures``), such as ``fpga csim``.

    ``figures`` are left out if they are measured or equal to ``kind``.
    """
    return kind if figures in (MEASURED, kind) else f"{kind} {figures}"


def device_label(name: str, kind: str, figures: str) -> str:
    """Return a device's name and, in parentheses, its kind and kind of times (``figures``).

    Words that the name contains, and ``measured``, are left out.
    """
    missing = [word for word in kind_label(kind, figures).split() if word not in name]
    return f"{name} ({' '.join(missing)})" if missing else name


def present_stages(devices: Iterable[Mapping[str, float | None]]) -> tuple[str, ...]:
    """Return, in pipeline order, the stages with a time in at least one of ``devices``.

    Each of ``devices`` maps stages to seconds, or to None without a time.
    """
    present = {name for times in devices for name, time in times.items() if time is not None}
    return tuple(name for name in STAGES if name in present)


def energy_sentence(summary: Mapping[str, Any]) -> str | None:
    """Return a sentence with the joules of all GPUs, from a run's ``summary``.

    None: they were not counted, or no epoch ended.
    """
    joules, epochs = summary["energy_j"], summary["epochs"]
    if joules is None or not epochs:
        return None
    return (
        f"energy: {joules:,.0f} J while training, {joules / epochs:,.1f} J an epoch, by NVML over "
        "all GPUs"
    )


def late_sentences(devices: Iterable[Mapping[str, Any]], *, num_steps: int) -> list[str]:
    """Return a sentence per emulated device for which the host was slower than the device.

    It has the number of such steps, out of ``num_steps``, and the excess seconds.
    """
    sentences = []
    for device in devices:
        seconds = device["counters"].get("late_s", 0.0)
        steps = round(device["counters"].get("late_steps", 0.0))
        if seconds and steps:
            sentences.append(
                f"{device['name']}: the host was slower than the device that it emulates in "
                f"{steps:,} of {num_steps:,} steps, by {seconds:.2g} s in all; times of this "
                "device are too long by that"
            )
    return sentences


def network_figures(run: "TrainResult") -> dict[str, Any] | None:
    """Return the traffic of feature rows sharded among machines: sums over devices, mean per step.

    ``expected`` is the bytes of the missed rows and their ids; ``bytes`` is the bytes of the
    messages sent for them, both ways. None: rows are not sharded among machines, or no epoch ended.
    """
    layout = run.layout.network
    if layout is None or not run.history or not run.steps_per_epoch:
        return None
    total = sum((device.traffic for epoch in run.history for device in epoch.devices), Traffic())
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


def network_line(run: "TrainResult") -> str | None:
    """Return a line with measured and expected MB per step of ``network_figures``, or None."""
    network = network_figures(run)
    if network is None:
        return None
    measured, expected = network["bytes"], network["expected"]
    error = f" ({expected / measured - 1:+.2%})" if measured else ""
    return (
        f"network: {measured / 1e6:,.2f} MB a step for rows of other machines, "
        f"{expected / 1e6:,.2f} MB expected{error}"
    )
