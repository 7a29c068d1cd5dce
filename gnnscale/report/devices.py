"""What every report says of devices: their names, the kind of their figures, their stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gnnscale.stages import STAGES

__all__ = [
    "MEASURED",
    "device_label",
    "kind_label",
    "late_sentences",
    "least_real",
    "present_stages",
]

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
    """Return a device's name, and in brackets what it does not tell of ``kind_label``."""
    words = kind_label(kind, figures).split()
    missing = [word for word in words if word not in name]
    return f"{name} ({' '.join(missing)})" if missing else name


def present_stages(devices: Iterable[Mapping[str, float | None]]) -> tuple[str, ...]:
    """Return the stages that at least one of ``devices`` has a time of, in pipeline order."""
    present = {name for times in devices for name, time in times.items() if time is not None}
    return tuple(name for name in STAGES if name in present)


def late_sentences(devices: Iterable[Mapping[str, Any]], *, num_steps: int) -> list[str]:
    """Return a sentence for each emulated device that the host was too slow for.

    Args:
        devices: those of ``summary.json``.
        num_steps: steps of the whole run.
    """
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
