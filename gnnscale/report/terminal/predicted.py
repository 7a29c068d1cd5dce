"""Predicted next to measured stage times: the table at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from gnnscale.report.devices import device_label, present_stages
from gnnscale.report.figures import PREDICTIONS, milliseconds, signed_percent
from gnnscale.report.terminal.tables import fits
from gnnscale.report.verdict import sentences

__all__ = ["print_prediction"]


def print_prediction(predicted: dict[str, Any], console: Console, *, absent: bool = False) -> None:
    """Print the stage times that ``compare`` returned as a table, in milliseconds a step.

    A row of measured times is called by the kind of its figures, one of predicted times by the name
    of the prediction; its errors are below. Stages that no device has are left out. ``absent`` also
    says what is not known, and why.
    """
    table = Table(title="Predicted and measured stage times, ms per step")
    table.add_column("device", no_wrap=True)
    table.add_column("", no_wrap=True)
    stages = present_stages(
        device[name]["stage_times_s"]
        for device in predicted["devices"]
        for name in ("measured", *PREDICTIONS)
        if device[name] is not None
    )
    for stage in stages:
        table.add_column(stage, justify="right", no_wrap=True)
    for device in predicted["devices"]:
        label = device_label(device["name"], device["kind"], device["figures"])
        for what, cells in _rows(device, stages):
            table.add_row(label, what, *cells)
            label = ""
        table.add_section()
    if not fits(table, console):
        table.padding = (0, 0, 0, 1)
    console.print(table)
    for sentence in sentences(predicted, absent=absent):
        console.print(sentence, highlight=False, soft_wrap=True)


def _rows(device: dict[str, Any], stages: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """The rows of a device: what it took, and below what each prediction says."""
    seen = device["measured"]["stage_times_s"]
    yield device["figures"], [milliseconds(seen[stage]) for stage in stages]
    for name, words in PREDICTIONS.items():
        if device[name] is None:
            continue
        yield words, [milliseconds(device[name]["stage_times_s"][stage]) for stage in stages]
        yield "  error", [signed_percent(device[name]["stage_errors"][stage]) for stage in stages]
