"""What C simulation counted of an FPGA, as figures of a step: cycles, engines and device memory."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from gnnscale.planner import Device, Fpga
from gnnscale.report.formatting import count, device_label, duration, percent

#: What names of such counters begin with (``gnnscale.backend.fpga.step_result``).
SIMULATED = "csim_"
#: An engine that is busy for at most this part of the cycles delays no other engine.
_IDLE = 0.5
_CYCLES, _SECONDS, _BYTES = "cycles", "simulating_s", "_bytes"
#: More columns than any terminal has.
_NO_LIMIT = 100_000


def fits(table: Table, console: Console) -> bool:
    """Return whether ``console`` is wide enough for every cell of ``table``."""
    options = console.options.update(width=_NO_LIMIT)
    return console.measure(table, options=options).maximum <= console.width


def is_simulated(device: Device) -> bool:
    """Return whether ``device`` is an FPGA in C simulation."""
    return isinstance(device, Fpga) and device.bitstream is None


def csim_figures(
    counters: Mapping[str, float], *, num_steps: int, clock_hz: float
) -> dict[str, Any] | None:
    """Return a device's figures of a step, None if nothing was simulated.

    Args:
        counters: sums over ``num_steps`` steps; those of C simulation begin with ``csim_``.
        clock_hz: cycles a second of its clock.

    Returns:
        ``cycles`` of the slowest compute unit, ``busy`` (by engine, the part of these cycles in
        which it had work), ``bottleneck`` (the busiest engine, or ``latency`` if none is busy
        for more than half of them), ``memory_bytes`` of all compute units' device memory, by kind,
        and ``events``, by name: all of them means of a step. ``card_s`` and ``simulating_s`` are
        the seconds of the card and of this machine over all steps.
    """
    own = {
        name.removeprefix(SIMULATED): value
        for name, value in counters.items()
        if name.startswith(SIMULATED)
    }
    cycles = own.pop(_CYCLES, 0)
    simulating_s = own.pop(_SECONDS, 0.0)
    if not cycles or not num_steps:
        return None
    busy = _named(own, f"_{_CYCLES}", cycles)
    busiest = max(busy, key=lambda engine: busy[engine], default=None)
    return {
        "cycles": cycles / num_steps,
        "busy": busy,
        "bottleneck": "latency" if busiest is None or busy[busiest] <= _IDLE else busiest,
        "memory_bytes": _named(own, _BYTES, num_steps),
        "events": {name: value / num_steps for name, value in own.items()},
        "card_s": cycles / clock_hz,
        "simulating_s": simulating_s,
    }


def _named(counters: dict[str, float], ending: str, divisor: float) -> dict[str, float]:
    """Take the counters whose names end so out of ``counters``, divided, without the ending."""
    names = [name for name in counters if name.endswith(ending)]
    return {name.removesuffix(ending): counters.pop(name) / divisor for name in names}


def simulating(figures: Mapping[str, Any]) -> str:
    """Return how long simulating took, beside the time of the card."""
    took, card = duration(figures["simulating_s"]), duration(figures["card_s"])
    return f"simulating took {took} for {card} of the card"


def print_csim(devices: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print the figures of those ``devices`` of a summary that are simulated, if any are."""
    found = [each for each in devices if each["csim"] is not None]
    if not found:
        return
    engines, memory = list(found[0]["csim"]["busy"]), list(found[0]["csim"]["memory_bytes"])
    cycles = _table(
        "Cycles of a step, csim, and in how many of them engines work",
        *("cycles", *engines, "bottleneck"),
    )
    moved = _table("Device memory of a step, csim, MiB", *memory)
    for each in found:
        label = device_label(each["name"], each["kind"], each["figures"])
        figures = each["csim"]
        busy = (percent(figures["busy"][engine]) for engine in engines)
        cycles.add_row(label, count(round(figures["cycles"])), *busy, figures["bottleneck"])
        mib = (count(figures["memory_bytes"][kind] / 2**20) for kind in memory)
        moved.add_row(label, *mib)
    for table in (cycles, moved):
        if not fits(table, console):
            table.padding = (0, 0, 0, 1)
        console.print(table)
    for each in found:
        label = device_label(each["name"], each["kind"], each["figures"])
        line = f"{label}: {simulating(each['csim'])}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    table.add_column("device", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table
