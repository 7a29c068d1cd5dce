"""Size of a GPU's cache: the memory that a profiling run leaves unused (PaGraph, section 3.3).

A cache takes the memory of the device, minus the peak that the allocator reports for a few steps
without a cache, minus a reserve; every GPU gets the budget of the GPU with the least unused memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from gnnscale.cache import CachePlannerConfig
from gnnscale.core import ConfigError
from gnnscale.core.artifact.files import size
from gnnscale.planner import Cuda, Device, DevicePlanConfig

#: Budgets are multiples of the memory divided by this: free memory varies a little between runs,
#: and each budget needs its own plan.
_NUM_BUDGETS = 128


@dataclass(frozen=True, kw_only=True)
class MemoryLeft:
    """Memory of each device that steps of a profiling run without caches did not use."""

    unused_bytes: tuple[int | None, ...]  #: bytes by position; None: the device caches no rows


def is_profiled(planner: CachePlannerConfig, devices: Sequence[Device]) -> bool:
    """Whether a profiling run sizes the caches: no option sets their size, and all are on GPUs.

    Caches of emulated devices take the bytes that the workload leaves instead.
    """
    if not planner.caches or not planner.uses_free_memory:
        return False
    cached = [device for device in devices if device.holds_cache]
    return bool(cached) and all(isinstance(device, Cuda) for device in cached)


def without_caches(plan: DevicePlanConfig) -> DevicePlanConfig:
    """Return ``plan`` for the profiling run: GPUs with a cache read features from host memory."""
    return DevicePlanConfig(devices=[_entry(device) for device in plan.parsed()], split=plan.split)


def _entry(device: Device) -> dict[str, Any]:
    if isinstance(device, Cuda) and device.holds_cache:
        topology = "device" if device.topology == "device" else "host"
        device = replace(device, features="host", topology=topology)
    values = {field.name: getattr(device, field.name) for field in fields(device) if field.init}
    return {"kind": device.kind, **values}


def with_cache_budget(
    planner: CachePlannerConfig, devices: Sequence[Device], memory_left: MemoryLeft
) -> CachePlannerConfig:
    """Return ``planner`` with ``budget_bytes`` of a cache: ``memory_left`` minus the reserve.

    All GPUs get the same budget, determined by the GPU with the least unused memory. ConfigError if
    it is 0 or less.
    """
    reserve = planner.reserve
    budgets = {
        device.label: unused - int(reserve * _budget(device))
        for device, unused in zip(devices, memory_left.unused_bytes, strict=True)
        if unused is not None
    }
    name = min(budgets, key=lambda label: budgets[label])
    memory = next(_budget(device) for device in devices if device.label == name)
    step = max(memory // _NUM_BUDGETS, 1)
    budget = budgets[name] // step * step
    if budget <= 0:
        unused = budgets[name] + int(reserve * memory)
        raise ConfigError(
            f"cache_planner={planner.policy}: {name} has no memory left for a cache: "
            f"steps without one leave {size(unused)} of {size(memory)}, and "
            f"cache_planner.reserve={reserve} keeps a part free; reduce batch_size or "
            "sampler.fanouts, or set cache_planner.budget_bytes"
        )
    return replace(planner, budget_bytes=budget)


def _budget(device: Device) -> int:
    assert isinstance(device, Cuda)
    return device.budget_bytes


def describe(planner: CachePlannerConfig, memory_left: MemoryLeft) -> str:
    """Return a log line with the bytes of each GPU's cache, and the least unused memory."""
    least = min(unused for unused in memory_left.unused_bytes if unused is not None)
    return (
        f"cache_planner={planner.policy}: {size(planner.budget_bytes or 0)} for each GPU's cache; "
        f"steps without a cache left {size(least)} unused"
    )
