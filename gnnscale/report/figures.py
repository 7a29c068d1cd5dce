"""Figures as people read them."""

from __future__ import annotations

__all__ = [
    "ABSENT",
    "PREDICTIONS",
    "count",
    "duration",
    "fine_percent",
    "gib",
    "milliseconds",
    "percent",
    "short",
    "signed_percent",
]

ABSENT = "–"
#: Predictions of the performance model, as ``summary.json`` calls them, and as people read them.
PREDICTIONS = {"by_rates": "by rates", "rehearsed": "rehearsed"}


def count(value: float | None) -> str:
    """Return a number with three significant digits at least, and thousands apart."""
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
    """Return seconds with their unit, in milliseconds where they are less than one."""
    if seconds < 1:
        return f"{milliseconds(seconds)} ms"
    return f"{seconds:,.0f} s" if seconds >= 9.95 else f"{seconds:.1f} s"


def percent(share: float | None) -> str:
    """Return a share of 1 in percent."""
    return ABSENT if share is None else f"{share * 100:.0f} %"


def fine_percent(error: float | None) -> str:
    """Return a small relative error in percent, with its sign and one decimal."""
    return ABSENT if error is None else f"{error * 100:+.1f} %"


def signed_percent(error: float | None) -> str:
    """Return a relative error in percent, with its sign."""
    return ABSENT if error is None else f"{error * 100:+.0f} %"
