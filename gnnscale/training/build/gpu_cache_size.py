"""How large a GPU's cache is: what its allocator has left after a rehearsal (PaGraph, section 3.3).

PaGraph's cache takes a device's memory, less what the first mini-batch used at its peak, less a
reserve. A GPU's own allocator knows that peak, once some steps were done without a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from gnnscale.cache.policies import NoCache
from gnnscale.core import ConfigError
from gnnscale.core.artifact.files import size
from gnnscale.planner import Cuda, Device, DevicePlanConfig
from gnnscale.run.config import RunConfig

#: A budget is a multiple of this part of the memory: what is free differs a little from run to run,
#: and each budget has another plan.
_STEP = 128


@dataclass(frozen=True, kw_only=True)
class MemoryLeft:
    """What rehearsed steps without a cache left of a run's devices, in the order of the plan."""

    unused_bytes: tuple[int | None, ...]  #: None of a device that keeps no rows


def is_rehearsed(config: RunConfig) -> bool:
    """Whether a cache sizes itself by a rehearsal: only GPUs have one, and seconds do not matter.

    A run that is to repeat goes by the workload's bytes, as emulated devices do.
    """
    planner = config.cache_planner
    if not planner.caches or not planner.sizes_itself or config.runtime.deterministic:
        return False
    cached = [each for each in config.device_plan.parsed() if each.holds_cache]
    return bool(cached) and all(isinstance(each, Cuda) for each in cached)


def without_caches(config: RunConfig) -> RunConfig:
    """Return the options of a rehearsal: data lie in the memory that they have beside a cache."""
    devices = [_entry(each) for each in config.device_plan.parsed()]
    return replace(
        config,
        cache_planner=NoCache(),
        device_plan=DevicePlanConfig(devices=devices, split=config.device_plan.split),
        runtime=replace(config.runtime, checkpoint=False),
        resume=None,
    )


def _entry(device: Device) -> dict[str, Any]:
    if isinstance(device, Cuda) and device.holds_cache:
        topology = "device" if device.topology == "device" else "host"
        device = replace(device, features="host", topology=topology)
    values = {each.name: getattr(device, each.name) for each in fields(device) if each.init}
    return {"kind": device.kind, **values}


def sized(config: RunConfig, left: MemoryLeft) -> RunConfig:
    """Return the options of the run whose caches take what was ``left``, less the reserve.

    All GPUs have as much, by the one that has least.

    Raises:
        ConfigError: nothing is left.
    """
    devices, reserve = config.device_plan.parsed(), config.cache_planner.reserve
    budgets = {
        device.label: unused - int(reserve * _budget(device))
        for device, unused in zip(devices, left.unused_bytes, strict=True)
        if unused is not None
    }
    name = min(budgets, key=lambda each: budgets[each])
    memory = next(_budget(each) for each in devices if each.label == name)
    step = max(memory // _STEP, 1)
    budget = budgets[name] // step * step
    if budget <= 0:
        unused = budgets[name] + int(reserve * memory)
        raise ConfigError(
            f"cache_planner={config.cache_planner.policy}: {name} has no memory left for a cache: "
            f"of {size(memory)}, steps without one left {size(unused)}, and "
            f"cache_planner.reserve={reserve} keeps a part free; a smaller batch_size, fewer "
            "neighbours (sampler.fanouts) or cache_planner.budget_bytes allow one"
        )
    return replace(config, cache_planner=replace(config.cache_planner, budget_bytes=budget))


def _budget(device: Device) -> int:
    assert isinstance(device, Cuda)
    return device.budget_bytes


def describe(planned: RunConfig, left: Sequence[int | None]) -> str:
    """Say in one line how large the caches are."""
    least = min(each for each in left if each is not None)
    budget = planned.cache_planner.budget_bytes or 0
    return (
        f"cache_planner={planned.cache_planner.policy}: {size(budget)} for each GPU's cache; steps "
        f"without one left {size(least)}"
    )
