"""What the machines of a run read of each other's rows, beside what its planner counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnnscale.core import Traffic

if TYPE_CHECKING:
    from gnnscale.runtime.telemetry.records import TrainResult


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
