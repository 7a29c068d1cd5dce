"""Device plans, of which a test says only what matters to it."""

from typing import Any

from gnnscale.planner import Cpu, Device, DevicePlan, DeviceShare, Emulated, Threads

CPU = Cpu(name="cpu:0")


def accelerator(name: str = "emulated:1") -> Emulated:
    """Return an accelerator, whose figures are 1."""
    figures = {"macs_per_s": 1, "memory_bandwidth": 1, "memory_bytes": 1, "link_bandwidth": 1}
    return Emulated(name=name, **figures)


def share(
    device: Device = CPU,
    num_seeds: int = 8,
    threads: int | tuple[int, int, int] = 1,
    prefetch: str = "none",
    **fields: Any,
) -> DeviceShare:
    """Return a device's share; ``threads`` are those of every stage, or of one after the other."""
    sample, load, propagate = (threads,) * 3 if isinstance(threads, int) else threads
    return DeviceShare(
        device=device,
        num_seeds=num_seeds,
        threads=Threads(sample=sample, load=load, propagate=propagate),
        prefetch=prefetch,
        **fields,
    )


def plan_of(*shares: DeviceShare) -> DevicePlan:
    return DevicePlan(shares=shares)
