"""Devices that a plan can name, with the metadata that the performance model needs of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from omegaconf import DictConfig, OmegaConf

from gnnscale.config import MAX_COUNT, ConfigError, check_choice, check_range, typed
from gnnscale.errors import shown

__all__ = [
    "KINDS",
    "MAX_DEVICES",
    "Cpu",
    "Device",
    "DevicePlanConfig",
    "Emulated",
    "parse_devices",
]

#: Devices of a plan or a platform.
MAX_DEVICES = 1024
#: Files are called after devices, so that a name holds no folder.
_NAME = re.compile(r"[\w.:+()-][\w.:+() -]{0,62}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Device:
    """A trainer: one worker process of a run.

    Attributes:
        name: what reports call it; None for its kind and number, as in ``emulated:1``.
    """

    #: What the option ``kind`` says.
    kind: ClassVar[str]
    #: Whether it computes where the features lie: it has no link, and nothing is transferred.
    on_host: ClassVar[bool] = False
    #: Whether it samples its own mini-batches; the host does otherwise.
    samples_on_device: ClassVar[bool] = False

    name: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None and (not _NAME.fullmatch(self.name) or set(self.name) == {"."}):
            raise ConfigError(
                f"name={shown(self.name)}: must be at most 63 letters, digits, spaces and .:+()-_"
            )


@dataclass(frozen=True, kw_only=True)
class Cpu(Device):
    """Cores of this machine."""

    kind: ClassVar[str] = "cpu"
    on_host: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Emulated(Device):
    """A device that computes with torch on the host, and takes the time that its metadata say.

    Stages last as long as the performance model says (HyScale-GNN eq. 7, 8, 10 to 13), or as long
    as the host really needs, whichever is longer; reports tell how often the host was too slow.

    Attributes:
        macs_per_s: multiply-accumulates per second, N·freq of eq. 12.
        memory_bandwidth: bytes per second of the device's own memory, eq. 11.
        memory_bytes: the device's memory; weights and batches in flight must fit.
        link_bandwidth: bytes per second between host and device, eq. 8 and 13; None for an emulated
            processor, which computes where the features lie.
        link_latency_s: seconds that every transfer takes beside its bytes.
        host_bandwidth: bytes per second at which the host's memory feeds this device's loader,
            eq. 7; None loads as fast as this machine does.
        launch_s: seconds that every propagation takes beside its work.
        pipelined: whether aggregation and update overlap, eq. 10: maximum instead of sum.
    """

    kind: ClassVar[str] = "emulated"

    macs_per_s: float
    memory_bandwidth: float
    memory_bytes: int
    link_bandwidth: float | None = None
    link_latency_s: float = 0.0
    host_bandwidth: float | None = None
    launch_s: float = 0.0
    pipelined: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("macs_per_s", "memory_bandwidth", "memory_bytes"):
            if not getattr(self, option) > 0:
                raise ConfigError(f"{option}={getattr(self, option)}: must be above 0")
        for option in ("link_bandwidth", "host_bandwidth"):
            value = getattr(self, option)
            if value is not None and not value > 0:
                raise ConfigError(f"{option}={value}: must be above 0, or null")
        for option in ("link_latency_s", "launch_s"):
            if not getattr(self, option) >= 0:
                raise ConfigError(f"{option}={getattr(self, option)}: must be at least 0")

    @property
    def on_host(self) -> bool:  # type: ignore[override]
        """Whether it is an emulated processor."""
        return self.link_bandwidth is None


KINDS: dict[str, type[Device]] = {cls.kind: cls for cls in (Cpu, Emulated)}


def parse_devices(entries: Sequence[Any], *, option: str) -> tuple[Device, ...]:
    """Build the devices that a list of options names.

    Args:
        entries: each a kind (``cpu``), or a mapping with ``kind`` and that kind's own options.
        option: where the list stands, for errors.

    Returns:
        The devices; those without a name are called by kind and position.

    Raises:
        ConfigError: no device, an unknown kind, or an option that its kind refuses.
    """
    if not entries:
        raise ConfigError(f"{option}=[]: at least one device is needed")
    check_range(f"number of {option}", len(entries), 1, MAX_DEVICES)
    return tuple(_parse(entry, f"{option}.{i}", i) for i, entry in enumerate(entries))


def _parse(entry: Any, option: str, position: int) -> Device:
    options = {"kind": entry} if isinstance(entry, str) else entry
    if not isinstance(options, dict) or "kind" not in options:
        raise ConfigError(f"{option}={shown(entry)}: a kind of device, or options with a kind")
    kind = str(options["kind"])
    check_choice(f"{option}.kind", kind, KINDS)
    rest = {key: value for key, value in options.items() if key != "kind"}
    rest["name"] = rest.get("name") or f"{kind}:{position}"
    node = OmegaConf.create(rest)
    assert isinstance(node, DictConfig)
    try:
        return typed(node, KINDS[kind], group=option)
    except ConfigError as error:
        text = str(error)
        raise ConfigError(text if text.startswith(option) else f"{option}.{text}") from None


@dataclass(frozen=True, kw_only=True)
class DevicePlanConfig:
    """Configuration group ``device_plan``.

    Attributes:
        devices: each a kind (``cpu``), or a mapping with ``kind`` and its options.
        split: seeds of each device in a full mini-batch; None lets the performance model choose.
    """

    devices: list[Any]
    split: list[int] | None = None

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
