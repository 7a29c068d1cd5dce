"""Processors that do not shorten an accelerator's steps are left out.

An accelerator that owns its steps waits for nobody if it is alone. Beside a processor it waits in
every step for the sum of gradients, which a fast one does not get back.
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
    """A run is to continue without its processors; every worker raises this at the same time."""

    def __init__(self, left_out: DroppedProcessors) -> None:
        """Know who is left out."""
        super().__init__(left_out.line)
        self.left_out = left_out


def alone_position(config: RunConfig) -> int | None:
    """Return the position of the accelerator that could do its steps by itself; None without one.

    A split that the user gives stays, and so do the devices of a run that is to repeat: seconds do
    not.
    """
    devices = config.device_plan.parsed()
    found = [i for i, device in enumerate(devices) if not device.on_host]
    if len(found) != 1 or len(devices) == 1 or not owns_steps([devices[found[0]]]):
        return None
    fixed = config.device_plan.split is not None or config.exchange is not None
    return None if fixed or config.runtime.deterministic else found[0]


def plan_alone(device: Device, *, batch_size: int, cores: int) -> DevicePlan:
    """Return the plan of an accelerator that does its steps by itself."""
    threads = Threads(sample=cores, load=cores, propagate=0)
    share = DeviceShare(device=device, num_seeds=batch_size, threads=threads, prefetch=BY_DEVICE)
    return DevicePlan(shares=(share,))


def compare(
    devices: Sequence[Device], position: int, *, step_with_s: float, step_without_s: float
) -> DroppedProcessors | None:
    """Return who is left out, by what steps took in rehearsals; None if processors shorten them."""
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


def without(
    left_out: DroppedProcessors, config: RunConfig, options: dict[str, Any]
) -> tuple[RunConfig, dict[str, Any]]:
    """Return the options of the run that continues without its processors.

    Args:
        options: ``config`` as plain values.

    Returns:
        Its configuration, and the same as plain values.
    """
    entry = config.device_plan.devices[left_out.position]
    fields = {"kind": entry} if isinstance(entry, str) else dict(entry)
    devices = [fields | {"name": left_out.name}]
    plan = options["device_plan"] | {"devices": devices}
    return (
        replace(config, device_plan=DevicePlanConfig(devices=devices)),
        options | {"device_plan": plan},
    )
