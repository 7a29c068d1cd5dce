"""Counts of C simulation of an FPGA, per step: cycles, engines and device memory."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from gnnscale.planner import Device, Fpga
from gnnscale.report.formatting import count, device_label, duration, percent, print_lines

#: Prefix of the counters of C simulation (``gnnscale.backend.fpga.step_result``).
SIMULATED = "csim_"
#: Share of busy cycles that an engine must exceed to be the bottleneck.
_IDLE = 0.5
_CYCLES, _SECONDS, _BYTES = "cycles", "simulating_s", "_bytes"
#: A width in characters that no terminal has.
_NO_LIMIT = 100_000


def fits(table: Table, console: Console) -> bool:
    """Return whether ``console`` is wide enough for all cells of ``table``."""
    options = console.options.update(width=_NO_LIMIT)
    return console.measure(table, options=options).maximum <= console.width


def is_simulated(device: Device) -> bool:
    """Return whether ``device`` is an FPGA in C simulation."""
    return isinstance(device, Fpga) and device.bitstream is None


def csim_figures(
    counters: Mapping[str, float], *, num_steps: int, clock_hz: float
) -> dict[str, Any] | None:
    """Return results of C simulation from ``counters`` summed over ``num_steps``; None: no cycles.

    ``clock_hz`` is the card's. Means per step: ``cycles`` of the slowest compute unit; ``busy``, by
    engine, the share of these cycles in which it had work; ``bottleneck``, the busiest engine, or
    ``latency`` if no engine is busy for more than half of the cycles; ``memory_bytes`` of the
    device memory of all compute units, by kind; and ``events``, by name. Over all steps: ``card_s``
    and ``simulating_s``, the seconds of the card and of the simulation on this machine.
    """
    counts = {
        name.removeprefix(SIMULATED): value
        for name, value in counters.items()
        if name.startswith(SIMULATED)
    }
    cycles = counts.pop(_CYCLES, 0)
    simulating_s = counts.pop(_SECONDS, 0.0)
    if not cycles or not num_steps:
        return None
    busy = _pop_with_suffix(counts, f"_{_CYCLES}", cycles)
    busiest = max(busy, key=lambda engine: busy[engine], default=None)
    return {
        "cycles": cycles / num_steps,
        "busy": busy,
        "bottleneck": "latency" if busiest is None or busy[busiest] <= _IDLE else busiest,
        "memory_bytes": _pop_with_suffix(counts, _BYTES, num_steps),
        "events": {name: value / num_steps for name, value in counts.items()},
        "card_s": cycles / clock_hz,
        "simulating_s": simulating_s,
    }


def _pop_with_suffix(counters: dict[str, float], ending: str, divisor: float) -> dict[str, float]:
    """Remove the counters with a suffix; return them without it, divided by ``divisor``."""
    names = [name for name in counters if name.endswith(ending)]
    return {name.removesuffix(ending): counters.pop(name) / divisor for name in names}


def simulating(figures: Mapping[str, Any]) -> str:
    """Return a sentence with ``simulating_s`` and ``card_s`` of ``csim_figures``."""
    took, card = duration(figures["simulating_s"]), duration(figures["card_s"])
    return f"simulating took {took} for {card} of the card"


def csim_tables(figures: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """Return tables of ``csim_figures``: columns of cells, one for each device, by title."""

    def columns(kind: str, form: Callable[[float], str]) -> dict[str, list[str]]:
        names = {name: name.replace("_", " ") for name in figures[0][kind]}
        return {
            text: [form(entry[kind][name]) for entry in figures] for name, text in names.items()
        }

    return {
        "Cycles of a step, csim, and in how many of them engines work": {
            "cycles": [count(round(entry["cycles"])) for entry in figures],
            **columns("busy", percent),
            "bottleneck": [entry["bottleneck"] for entry in figures],
        },
        "Device memory of a step, csim, MiB": columns(
            "memory_bytes", lambda num_bytes: count(num_bytes / 2**20)
        ),
        "Events of a step, csim": columns("events", lambda events: count(round(events))),
    }


def print_csim(devices: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print tables of cycles and device memory of the devices in C simulation, if any.

    ``devices`` are those of a run's summary; lines below compare simulated and simulating time.
    """
    simulated = [device for device in devices if device["csim"] is not None]
    if not simulated:
        return
    labels = [
        device_label(device["name"], device["kind"], device["figures"]) for device in simulated
    ]
    tables = csim_tables([device["csim"] for device in simulated])
    for title, columns in list(tables.items())[:2]:
        table = Table("device", title=title)
        for name in columns:
            table.add_column(name, justify="right", no_wrap=True)
        for row in zip(labels, *columns.values(), strict=True):
            table.add_row(*row)
        table.columns[0].no_wrap = True
        if not fits(table, console):
            table.padding = (0, 0, 0, 1)
        console.print(table)
    pairs = zip(labels, simulated, strict=True)
    print_lines(console, [f"{label}: {simulating(entry['csim'])}" for label, entry in pairs])
