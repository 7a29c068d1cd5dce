"""Dropping of CPU workers that do not shorten the steps of an accelerator.

An accelerator with device-driven steps never waits if it trains without other workers. Next to a
CPU worker it waits for the sum of gradients in every step; on a fast accelerator this wait exceeds
the gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gnnscale.planner import BY_DEVICE, Device, DevicePlan, DevicePlanConfig, DeviceShare, Threads
from gnnscale.planner.device_spec import owns_steps
from gnnscale.run.config import RunConfig
from gnnscale.run.records import DroppedProcessors


class ProcessorsDropped(Exception):  # noqa: N818  no error: the run continues
    """Signal to continue without CPU workers, raised by every worker at the same time."""

    def __init__(self, dropped: DroppedProcessors) -> None:
        """Signal that ``dropped`` leaves the run."""
        super().__init__(dropped.line)
        self.dropped = dropped


def accelerator_position(config: RunConfig) -> int | None:
    """Return the position of the accelerator that could train without the CPU workers.

    None: there is no single accelerator with device-driven steps, ``device_plan.split`` or
    ``exchange`` is set, or the run is deterministic, since measured times do not repeat.
    """
    devices = config.device_plan.parsed()
    accelerators = [i for i, device in enumerate(devices) if not device.on_host]
    if len(accelerators) != 1 or len(devices) == 1 or not owns_steps([devices[accelerators[0]]]):
        return None
    fixed = config.device_plan.split is not None or config.exchange is not None
    return None if fixed or config.runtime.deterministic else accelerators[0]


def plan_solo(device: Device, *, batch_size: int, cores: int) -> DevicePlan:
    """Return the plan of a single accelerator with device-driven steps."""
    threads = Threads(sample=cores, load=cores, propagate=0)
    share = DeviceShare(device=device, num_seeds=batch_size, threads=threads, prefetch=BY_DEVICE)
    return DevicePlan(shares=(share,))


def compare(
    devices: Sequence[Device], position: int, *, step_with_s: float, step_without_s: float
) -> DroppedProcessors | None:
    """Return the CPU workers to drop, by profiled step times; None: they shorten the step."""
    if step_with_s < step_without_s:
        return None
    labels = [device.label for device in devices]
    return DroppedProcessors(
        names=tuple(name for i, name in enumerate(labels) if i != position),
        position=position,
        name=labels[position],
        step_with_s=step_with_s,
        step_without_s=step_without_s,
    )


def without_cpu(
    dropped: DroppedProcessors, config: RunConfig, options: dict[str, Any]
) -> tuple[RunConfig, dict[str, Any]]:
    """Return the options of the run that continues without its CPU workers.

    Args:
        dropped: the CPU workers, and the accelerator that continues.
        options: ``config`` as plain values.

    Returns:
        The new configuration, and the new plain values.
    """
    entry = config.device_plan.devices[dropped.position]
    fields = {"kind": entry} if isinstance(entry, str) else dict(entry)
    devices = [fields | {"name": dropped.name}]
    plan = options["device_plan"] | {"devices": devices}
    return (
        replace(config, device_plan=DevicePlanConfig(devices=devices)),
        options | {"device_plan": plan},
    )
