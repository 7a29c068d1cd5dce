"""Device plans: how a mini-batch and the host's threads are shared out among devices."""

from __future__ import annotations

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

#: How far stages run ahead: not at all; as one stage before propagation; load and transfer
#: separately (two-stage feature prefetching, HyScale-GNN section IV-B).
PREFETCH = ("none", "one_stage", "two_stage")
#: The device that owns its steps overlaps them; the host prepares nothing.
BY_DEVICE = "device"
#: Mini-batches in a row, of which the host samples some for a device that samples by itself.
SAMPLED_IN_TURN = 8
#: Threads beyond which no machine has cores.
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
    """What one device of a plan gets.

    Attributes:
        device: the device.
        num_seeds: its slice of every full mini-batch; may be 0.
        threads: host threads of its stages.
        prefetch: one of ``PREFETCH``, or ``BY_DEVICE``.
        max_seeds: as many as fit into the device's memory, None if that is no matter.
        machine: which machine its worker runs on; threads are shared out within one.
        depth: mini-batches that it may prepare ahead, as its memory has room; None for as many as
            the run allows.
        host_samples: of ``SAMPLED_IN_TURN`` mini-batches of a device that samples by itself, how
            many the host samples for it (HyScale-GNN, section IV-A: sampling moves between the
            two).
    """

    device: Device
    num_seeds: int
    threads: Threads
    prefetch: str
    max_seeds: int | None = None
    machine: int = 0
    depth: int | None = None
    host_samples: int = 0

    def __post_init__(self) -> None:
        check_range("host_samples", self.host_samples, 0, SAMPLED_IN_TURN)
        check_choice("prefetch", self.prefetch, (*PREFETCH, BY_DEVICE))
        check_range("num_seeds", self.num_seeds, 0)
        check_range("machine", self.machine, 0, MAX_DEVICES)
        if self.depth is not None:
            check_range("depth", self.depth, 1)

    def host_samples_at(self, step: int) -> bool:
        """Whether the host samples the mini-batch of ``step`` for a device that samples by itself.

        What the host samples is spread evenly over the steps.
        """
        if not self.host_samples:
            return False
        place = step % SAMPLED_IN_TURN
        before, after = (each * self.host_samples // SAMPLED_IN_TURN for each in (place, place + 1))
        return after > before

    @property
    def host_threads(self) -> int:
        """Host threads that can compute at once: stages that take turns share theirs."""
        threads = self.threads
        if self.prefetch == BY_DEVICE:
            return 1  # that starts its steps
        if self.prefetch == "none":
            return max(threads.sample, threads.load, threads.propagate)
        if self.prefetch == "one_stage":
            return max(threads.sample, threads.load) + threads.propagate
        return threads.sample + threads.load + threads.propagate


@dataclass(frozen=True, kw_only=True)
class _ShareValues(DeviceShare):
    """A share as plain values, which leave out its device."""

    device: Any = None


@dataclass(frozen=True, kw_only=True)
class DevicePlan:
    """The share of every device; position is the worker's rank."""

    shares: tuple[DeviceShare, ...]

    def __post_init__(self) -> None:
        if not owns_steps([share.device for share in self.shares]):
            for share in self.shares:
                check_choice("prefetch", share.prefetch, PREFETCH)

    @cached_property
    def batch_size(self) -> int:
        """Seeds of a full mini-batch, over all devices."""
        return sum(share.num_seeds for share in self.shares)

    @cached_property
    def split(self) -> tuple[int, ...]:
        """Seeds of each device in a full mini-batch."""
        return tuple(share.num_seeds for share in self.shares)

    @property
    def host_threads(self) -> int:
        """Host threads of all workers that can compute at once."""
        return sum(share.host_threads for share in self.shares)

    def counts(self, num_seeds: int) -> tuple[int, ...]:
        """Return each device's seeds in a mini-batch of ``num_seeds``, full or not."""
        if num_seeds == self.batch_size:
            return self.split
        return tuple(apportion(self.split, num_seeds))

    def within_memory(self, split: Sequence[int]) -> tuple[int, ...]:
        """Return the split nearest to ``split`` whose parts fit into their devices' memory.

        What does not fit goes to the others in proportion to what they have.

        Raises:
            ConfigError: all devices together cannot hold the mini-batch.
        """
        return cap_split(split, [share.max_seeds for share in self.shares])

    def with_split(self, split: Sequence[int]) -> DevicePlan:
        """Return this plan with another split of the same mini-batch.

        Raises:
            ConfigError: the parts do not sum to the batch, or are not one for each device.
        """
        if len(split) != len(self.shares):
            raise ConfigError(f"split={list(split)}: {len(self.shares)} devices need a part each")
        if sum(split) != self.batch_size:
            raise ConfigError(
                f"split={list(split)}: sums to {sum(split)}, not to batch_size={self.batch_size}"
            )
        shares = zip(self.shares, split, strict=True)
        return DevicePlan(shares=tuple(replace(s, num_seeds=n) for s, n in shares))

    def to_values(self) -> list[dict[str, Any]]:
        """Return plain values; the devices themselves are in the run's options."""
        values = [asdict(share) for share in self.shares]
        for each in values:
            del each["device"]
        return values

    @classmethod
    def from_values(cls, devices: Sequence[Device], values: Any) -> DevicePlan:
        """Rebuild a plan from ``to_values``.

        Raises:
            ValueError: the values are not those of a plan for ``devices``.
        """
        found = decode(list[_ShareValues], values, source="plan")
        if len(found) != len(devices):
            raise ValueError(f"a plan for {len(found)} devices, there are {len(devices)}")
        pairs = zip(devices, found, strict=True)
        return cls(shares=tuple(DeviceShare(**{**vars(s), "device": d}) for d, s in pairs))


@dataclass(frozen=True, kw_only=True)
class DevicePlanConfig:
    """Configuration group ``device_plan``.

    Attributes:
        devices: each a kind (``cpu``), or a mapping with ``kind`` and its options.
        split: seeds of each device in a full mini-batch; None lets the performance model choose.
    """

    devices: list[Any] = field(metadata=names("text", entries=device_options))
    split: list[int] | None = None

    #: Whether it has the devices of this machine, and not those of ``devices``.
    finds_devices: ClassVar[bool] = False

    def __post_init__(self) -> None:
        devices = self.parsed()
        names = [device.name for device in devices]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"device_plan.devices: two are called {name}")
        if self.split is None:
            return
        if len(self.split) != len(devices):
            raise ConfigError(
                f"device_plan.split={list(self.split)}: one number for each of "
                f"{len(devices)} devices is needed"
            )
        if not all(0 <= count <= MAX_COUNT for count in self.split):
            raise ConfigError(
                f"device_plan.split={list(self.split)}: none may be below 0 or above {MAX_COUNT:,}"
            )

    def parsed(self) -> tuple[Device, ...]:
        """Return the devices."""
        return parse_devices(self.devices, option="device_plan.devices")


@dataclass(frozen=True, kw_only=True)
class AllGpusConfig(DevicePlanConfig):
    """Every GPU that this process may use, a worker for each.

    Attributes:
        devices: those that were found: nothing to give.
        options: of each GPU, e.g. ``{features: host}``; None for the usual ones.
    """

    devices: list[Any] = field(default_factory=list)
    options: dict[str, Any] | None = None

    finds_devices: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.devices:
            raise ConfigError(
                "device_plan.devices: cuda_all finds them; device_plan.options are those of each"
            )
        for option in ("kind", "index", "name"):
            if option in (self.options or {}):
                raise ConfigError(
                    f"device_plan.options.{option}: cannot be given for all GPUs; device_plan=cuda "
                    "with devices=[{kind: cuda, index: 0}, ...] names each"
                )
        super().__post_init__()

    def parsed(self) -> tuple[Device, ...]:
        """Return the GPUs.

        Raises:
            ConfigError: no GPU is there.
        """
        entries = [
            {"kind": "cuda", **(self.options or {}), "index": index}
            for index in range(find_all_gpus())
        ]
        return parse_devices(entries, option="device_plan.options")


@dataclass(frozen=True, kw_only=True)
class CpuEachConfig(DevicePlanConfig):
    """A CPU worker for each process that torchrun started, however many; one without torchrun.

    Attributes:
        devices: as many as there are processes: nothing to give.
    """

    devices: list[Any] = field(default_factory=list)

    finds_devices: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.devices:
            raise ConfigError(
                "device_plan.devices: cpu_each has one for each process of torchrun; "
                "device_plan=cpu with devices=[cpu, ...] names each"
            )
        super().__post_init__()

    def parsed(self) -> tuple[Device, ...]:
        """Return a device for each process of torchrun."""
        num_processes = 1 if torchrun_rank() is None else int(os.environ["WORLD_SIZE"])
        return parse_devices(["cpu"] * num_processes, option="device_plan.devices")


def cap_split(split: Sequence[int], max_seeds: Sequence[int | None]) -> tuple[int, ...]:
    """Return the split nearest to ``split`` with no part above its maximum, of the same sum.

    Raises:
        ConfigError: there is none.
    """
    total, parts, full = sum(split), list(split), dict[int, int]()
    while True:
        limits = ((i, m) for i, m in enumerate(max_seeds) if m is not None and i not in full)
        over = {i: limit for i, limit in limits if parts[i] > limit}
        if not over:
            return tuple(parts)
        full |= over
        rest = [0 if i in full else max(count, 1) for i, count in enumerate(split)]
        left = total - sum(full.values())
        if not any(rest):
            raise ConfigError(
                f"batch_size={total}: the devices' memory holds {sum(full.values())} seeds with "
                "these neighbours; a smaller batch or fewer neighbours fit"
            )
        parts = [full.get(i, count) for i, count in enumerate(apportion(rest, left))]


def apportion(weights: Sequence[float], total: int) -> list[int]:
    """Split ``total`` in proportion to ``weights``, by largest remainders; the sum is exact."""
    whole = sum(weights)
    exact = [total * weight / whole for weight in weights]
    parts = [int(value) for value in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: (parts[i] - exact[i], i))
    for i in by_remainder[: total - sum(parts)]:
        parts[i] += 1
    return parts
