"""Pieces of HTML that several sections of ``report.html`` are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from gnnscale.plan import DevicePlan
from gnnscale.report.devices import MEASURED
from gnnscale.report.figures import ABSENT

__all__ = ["badge", "card", "device_css", "device_title", "grid", "nothing", "table"]

#: Colours for devices; a plan with more of them begins again.
_NUM_COLOURS = 8


def badge(figures: str) -> str:
    """Return the mark of figures that are not measured: the word for their kind, or nothing."""
    return "" if figures == MEASURED else f' <span class="badge">{escape(figures)}</span>'


def device_css(rank: int) -> str:
    """Return the class that gives a device its colour."""
    return f"d-{rank % _NUM_COLOURS}"


def device_title(plan: DevicePlan, rank: int) -> str:
    """Return a device's name with its mark."""
    device = plan.shares[rank].device
    return f"{escape(device.label)}{badge(device.figures)}"


def card(title: str, content: str) -> str:
    """Return a box; ``title`` and ``content`` are HTML."""
    return f'<div class="card"><h3>{title}</h3>{content}</div>'


def table(labels: Mapping[str, Sequence[str]], figures: Mapping[str, Sequence[str]]) -> str:
    """Return a table, without those of ``figures`` that are absent in each of its rows.

    Args:
        labels: headings with their cells, to the left; HTML.
        figures: headings with their cells, to the right; HTML.
    """
    shown = {name: cells for name, cells in figures.items() if set(cells) - {ABSENT}}
    head = [f'<th class="left">{name}</th>' for name in labels]
    head += [f"<th>{name}</th>" for name in shown]
    columns = [[f'<td class="left">{cell}</td>' for cell in cells] for cells in labels.values()]
    columns += [[f"<td>{cell}</td>" for cell in cells] for cells in shown.values()]
    rows = ("".join(row) for row in (head, *zip(*columns, strict=True)))
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def grid(cards: Sequence[str]) -> str:
    """Return boxes two by two, nothing where there are none."""
    return f'<div class="grid2">{"".join(cards)}</div>' if cards else ""


def nothing(why: str) -> str:
    """Return a line that says why a section is empty."""
    return f'<p class="soft">{why}</p>'
