"""Pieces of HTML that several sections of ``report.html`` are made of."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gnnscale.plan import DevicePlan

__all__ = ["badge", "card", "device_css", "device_title", "grid", "nothing"]

#: Colours for devices; a plan with more of them begins again.
_NUM_COLOURS = 8


def badge(kind: str) -> str:
    """Return the mark that an emulated device carries wherever it is named, or nothing."""
    return ' <span class="badge">emulated</span>' if kind == "emulated" else ""


def device_css(rank: int) -> str:
    """Return the class that gives a device its colour."""
    return f"d-{rank % _NUM_COLOURS}"


def device_title(plan: DevicePlan, rank: int) -> str:
    """Return a device's name with its mark."""
    device = plan.shares[rank].device
    return f"{escape(str(device.name))}{badge(device.kind)}"


def card(title: str, content: str) -> str:
    """Return a box; ``title`` and ``content`` are HTML."""
    return f'<div class="card"><h3>{title}</h3>{content}</div>'


def grid(cards: Sequence[str]) -> str:
    """Return boxes two by two, nothing where there are none."""
    return f'<div class="grid2">{"".join(cards)}</div>' if cards else ""


def nothing(why: str) -> str:
    """Return a line that says why a section is empty."""
    return f'<p class="soft">{why}</p>'
