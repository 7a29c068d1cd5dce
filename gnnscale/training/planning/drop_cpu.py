"""Dropping of CPU workers that do not shorten the steps of an accelerator.

Next to a CPU worker, an accelerator with device-driven steps waits for the sum of gradients in
every step; on a fast accelerator this wait exceeds the gain.
"""

from collections.abc import Sequence
from typing import Any

from gnnscale.planner import BY_DEVICE, Device, DevicePlan, DevicePlanConfig, DeviceShare, Threads
from gnnscale.planner.device_spec import owns_steps
from gnnscale.run.records import DroppedProcessors


class ProcessorsDropped(Exception):  # noqa: N818  no error: the run continues
    """Signal to continue without CPU workers, raised by every worker at the same time."""

    def __init__(self, dropped: DroppedProcessors) -> None:
        """Signal that the CPU workers named in ``dropped`` leave the run."""
        super().__init__(dropped.line)
        self.dropped = dropped


def accelerator_position(devices: Sequence[Device]) -> int | None:
    """Return the position of the only accelerator, if it could train without the CPU workers."""
    accelerators = [i for i, device in enumerate(devices) if not device.on_host]
    if len(accelerators) != 1 or len(devices) == 1 or not owns_steps([devices[accelerators[0]]]):
        return None
    return accelerators[0]


def plan_solo(device: Device, *, batch_size: int, cores: int) -> DevicePlan:
    """Return the plan by which ``device`` trains all seeds alone, with device-driven steps."""
    threads = Threads(sample=cores, load=cores, propagate=0)
    share = DeviceShare(device=device, num_seeds=batch_size, threads=threads, prefetch=BY_DEVICE)
    return DevicePlan(shares=(share,))


def compare(
    devices: Sequence[Device], position: int, *, step_with_s: float, step_without_s: float
) -> DroppedProcessors | None:
    """Return all workers but that at ``position``, to drop them; None: steps get slower by that."""
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


def without_cpu(dropped: DroppedProcessors, plan: DevicePlanConfig) -> list[dict[str, Any]]:
    """Return the ``devices`` option of ``plan`` with the accelerator alone, under its name."""
    entry = plan.devices[dropped.position]
    fields = {"kind": entry} if isinstance(entry, str) else dict(entry)
    return [fields | {"name": dropped.name}]
