"""Device plans: the division of a mini-batch and of the host's threads among devices."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from gnnscale.core import MAX_COUNT, ConfigError, check_choice, check_range, decode, torchrun_rank
from gnnscale.core.config.untrusted import names
from gnnscale.planner.cuda_spec import find_all_gpus
from gnnscale.planner.device_spec import MAX_DEVICES, Device, owns_steps
from gnnscale.planner.registry import device_options, parse_devices

#: Prefetching: none; one stage before propagation; loading and transfer as two stages (two-stage
#: feature prefetching, HyScale-GNN section IV-B).
PREFETCH = ("none", "one_stage", "two_stage")
#: Prefetching of device-driven steps: the device overlaps its stages.
BY_DEVICE = "device"
#: Period, in mini-batches, of sampling by the host for a device that samples.
SAMPLED_IN_TURN = 8
#: Maximum number of threads.
MAX_THREADS = 4096


@dataclass(frozen=True, kw_only=True)
class Threads:
    """Host threads of a worker's stages; ``propagate`` is 0 if the device itself computes."""

    sample: int
    load: int
    propagate: int

    def __post_init__(self) -> None:
        for stage, minimum in (("sample", 1), ("load", 1), ("propagate", 0)):
            check_range(f"threads.{stage}", getattr(self, stage), minimum, MAX_THREADS)


@dataclass(frozen=True, kw_only=True)
class DeviceShare:
    """Share of one device in a plan: seeds, host threads and prefetching."""

    device: Device  #: the device
    num_seeds: int  #: seeds of the device's slice of a full mini-batch; may be 0
    threads: Threads  #: host threads of the device's stages
    prefetch: str  #: one of ``PREFETCH``, or ``BY_DEVICE``
    max_seeds: int | None = None  #: seeds that fit into the device's memory. None: no limit
    machine: int = 0  #: number of the worker's machine; threads are divided within a machine
    #: mini-batches that may be prepared ahead within the device's memory. None: the limit of the
    #: run
    depth: int | None = None
    #: of ``SAMPLED_IN_TURN`` mini-batches of a device that samples, the number that the host
    #: samples (HyScale-GNN, section IV-A)
    host_samples: int = 0

    def __post_init__(self) -> None:
        check_range("host_samples", self.host_samples, 0, SAMPLED_IN_TURN)
        check_choice("prefetch", self.prefetch, (*PREFETCH, BY_DEVICE))
        check_range("num_seeds", self.num_seeds, 0)
        check_range("machine", self.machine, 0, MAX_DEVICES)
        if self.depth is not None:
            check_range("depth", self.depth, 1)

    def host_samples_at(self, step: int) -> bool:
        """Whether the host, in place of the device, samples the mini-batch of ``step``.

        This holds for ``host_samples`` of every 8 steps, spread evenly.
        """
        if not self.host_samples:
            return False
        index = step % SAMPLED_IN_TURN
        done, due = (i * self.host_samples // SAMPLED_IN_TURN for i in (index, index + 1))
        return due > done

    @property
    def host_threads(self) -> int:
        """Number of host threads that compute at a time; 1 if the device drives its steps.

        Stages that take turns use the same threads.
        """
        threads = self.threads
        if self.prefetch == BY_DEVICE:
            return 1  # launches the device's steps
        if self.prefetch == "none":
            return max(threads.sample, threads.load, threads.propagate)
        if self.prefetch == "one_stage":
            return max(threads.sample, threads.load) + threads.propagate
        return threads.sample + threads.load + threads.propagate


@dataclass(frozen=True, kw_only=True)
class _ShareValues(DeviceShare):
    """Share as decoded from ``DevicePlan.to_values``, without a device."""

    device: Any = None


@dataclass(frozen=True, kw_only=True)
class DevicePlan:
    """Shares of all devices; the index of a share is the worker's rank."""

    shares: tuple[DeviceShare, ...]

    def __post_init__(self) -> None:
        if not owns_steps([share.device for share in self.shares]):
            for share in self.shares:
                check_choice("prefetch", share.prefetch, PREFETCH)

    @cached_property
    def batch_size(self) -> int:
        """Number of seeds of a full mini-batch over all devices."""
        return sum(share.num_seeds for share in self.shares)

    @cached_property
    def split(self) -> tuple[int, ...]:
        """Number of seeds of each device in a full mini-batch."""
        return tuple(share.num_seeds for share in self.shares)

    @property
    def host_threads(self) -> int:
        """Number of host threads of all workers that compute at a time."""
        return sum(share.host_threads for share in self.shares)

    def counts(self, num_seeds: int) -> tuple[int, ...]:
        """Return each device's seeds in a mini-batch of ``num_seeds``, divided like ``split``."""
        if num_seeds == self.batch_size:
            return self.split
        return tuple(apportion(self.split, num_seeds))

    def within_memory(self, split: Sequence[int]) -> tuple[int, ...]:
        """Return ``split`` with seeds above a device's ``max_seeds`` moved to other devices."""
        return cap_split(split, [share.max_seeds for share in self.shares])

    def with_split(self, split: Sequence[int]) -> "DevicePlan":
        """Return this plan with ``split``; ConfigError unless it adds up to the batch size."""
        check_split("split", split, len(self.shares), self.batch_size)
        shares = zip(self.shares, split, strict=True)
        return DevicePlan(shares=tuple(replace(s, num_seeds=n) for s, n in shares))

    def to_values(self) -> list[dict[str, Any]]:
        """Return the shares as plain values, without devices, which are in the run's options."""
        values = [asdict(share) for share in self.shares]
        for share in values:
            del share["device"]
        return values

    @classmethod
    def from_values(cls, devices: Sequence[Device], values: Any) -> "DevicePlan":
        """Rebuild a plan from ``to_values``; ValueError: they describe no plan for ``devices``."""
        shares = decode(list[_ShareValues], values, source="plan")
        if len(shares) != len(devices):
            raise ValueError(f"plan: expected {len(devices)} shares, got {len(shares)}")
        pairs = zip(devices, shares, strict=True)
        return cls(shares=tuple(DeviceShare(**{**vars(s), "device": d}) for d, s in pairs))


@dataclass(frozen=True, kw_only=True)
class DevicePlanConfig:
    """Configuration group ``device_plan``.

    Attributes:
        devices: for each device its kind, such as ``cpu``, or a mapping of ``kind`` and options.
        split: seeds of each device in a full mini-batch. None: the performance model chooses.
    """

    devices: list[Any] = field(metadata=names("text", entries=device_options))
    split: list[int] | None = None

    #: Hint for errors about ``devices``, of a plan that finds its devices on this machine instead.
    finds_devices: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if self.finds_devices and self.devices:
            raise ConfigError(f"device_plan.devices: expected none with {self.finds_devices}")
        devices = self.parsed()
        names = [device.name for device in devices]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"device_plan.devices: expected distinct names, got {name} twice")
        if self.split is None:
            return
        check_split("device_plan.split", self.split, len(devices))

    def parsed(self) -> tuple[Device, ...]:
        """Return the devices of the plan."""
        return parse_devices(self.devices, option="device_plan.devices")


@dataclass(frozen=True, kw_only=True)
class AllGpusConfig(DevicePlanConfig):
    """All GPUs that this process may use, with a worker each.

    Attributes:
        devices: empty; the GPUs are found automatically.
        options: options of every GPU, e.g. ``{features: host}``. None: the defaults.
    """

    devices: list[Any] = field(default_factory=list)
    options: dict[str, Any] | None = None

    finds_devices: ClassVar[str] = "cuda_all; device_plan.options apply to every GPU"

    def __post_init__(self) -> None:
        for option in ("kind", "index", "name"):
            if option in (self.options or {}):
                raise ConfigError(
                    f"device_plan.options.{option}: expected none for all GPUs; device_plan=cuda "
                    "with devices=[{kind: cuda, index: 0}, ...] lists single GPUs"
                )
        super().__post_init__()

    def parsed(self) -> tuple[Device, ...]:
        """Return a device for each GPU that this process may use."""
        entries = [
            {"kind": "cuda", **(self.options or {}), "index": index}
            for index in range(find_all_gpus())
        ]
        return parse_devices(entries, option="device_plan.options")


@dataclass(frozen=True, kw_only=True)
class CpuEachConfig(DevicePlanConfig):
    """One CPU worker per process of torchrun; a single worker without torchrun.

    Attributes:
        devices: empty; the number of processes determines the devices.
    """

    devices: list[Any] = field(default_factory=list)

    finds_devices: ClassVar[str] = (
        "cpu_each, which has one per process of torchrun; device_plan=cpu with devices=[cpu, ...] "
        "lists devices"
    )

    def parsed(self) -> tuple[Device, ...]:
        """Return a CPU device per process of torchrun."""
        num_processes = 1 if torchrun_rank() is None else int(os.environ["WORLD_SIZE"])
        return parse_devices(["cpu"] * num_processes, option="device_plan.devices")


def cap_split(split: Sequence[int], max_seeds: Sequence[int | None]) -> tuple[int, ...]:
    """Cap each part of ``split`` at its maximum, and add the excess in proportion to other parts.

    Raises ConfigError if the sum of ``max_seeds`` is smaller than that of ``split``.
    """
    total, parts, full = sum(split), list(split), dict[int, int]()
    while True:
        limits = ((i, m) for i, m in enumerate(max_seeds) if m is not None and i not in full)
        over = {i: limit for i, limit in limits if parts[i] > limit}
        if not over:
            return tuple(parts)
        full |= over
        weights = [0 if i in full else max(count, 1) for i, count in enumerate(split)]
        remaining = total - sum(full.values())
        if not any(weights):
            raise ConfigError(
                f"batch_size={total}: expected at most {sum(full.values())}, the seeds that fit "
                "into the devices' memory with these fan-outs; lower fan-outs fit more"
            )
        parts = [full.get(i, count) for i, count in enumerate(apportion(weights, remaining))]


def check_split(
    option: str, split: Sequence[int], num_devices: int, batch_size: int | None = None
) -> None:
    """Raise ConfigError unless ``split`` has ``num_devices`` counts that sum to ``batch_size``."""
    option = f"{option}={list(split)}"
    if len(split) != num_devices:
        raise ConfigError(f"{option}: expected a number for each of {num_devices} devices")
    if not all(0 <= count <= MAX_COUNT for count in split):
        raise ConfigError(f"{option}: expected numbers from 0 to {MAX_COUNT:,}")
    if batch_size is not None and sum(split) != batch_size:
        raise ConfigError(f"{option}: expected a sum of batch_size={batch_size}, got {sum(split)}")


def apportion(weights: Sequence[float], total: int) -> list[int]:
    """Divide ``total`` in proportion to ``weights`` by largest remainders; the sum is exact."""
    sum_of_weights = sum(weights)
    exact = [total * weight / sum_of_weights for weight in weights]
    parts = [int(value) for value in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: (parts[i] - exact[i], i))
    for i in by_remainder[: total - sum(parts)]:
        parts[i] += 1
    return parts
