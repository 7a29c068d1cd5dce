"""Platforms: measured or published rates of a machine, for the performance model."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import OmegaConf

from gnnscale.core import ConfigError, check_range, find_machine, home, installed, write_atomically
from gnnscale.core.config import check_references, names, read_yaml
from gnnscale.core.config.typed import typed
from gnnscale.planner import registry
from gnnscale.planner.cuda_spec import Cuda, find_gpu, read_rates
from gnnscale.planner.device_spec import MAX_DEVICES, Accelerator, Cpu, Device, Efficiency
from gnnscale.planner.processor import Processor, check_amounts

log = logging.getLogger(__name__)

_MEASURE = "run gnnscale doctor calibrate=true"
#: Names of platforms without calibration: nominal rates of a host, and rates of a quick estimate.
NOMINAL, ESTIMATED = "a nominal machine", "this machine, estimated"
#: Rates of propagation on an accelerator, eq. 11 and 12.
_ACCELERATOR_RATES = ("macs_per_s", "memory_bandwidth")


@dataclass(frozen=True, kw_only=True)
class MachineIdentity:
    """Identity of a machine; rates measured on one machine do not apply to another.

    Attributes:
        processor: model name of the processor.
        cores: number of cores that a run may use.
        memory_gib: main memory in whole GiB.
        torch: version of PyTorch.
    """

    processor: str = field(metadata=names("text"))
    cores: int
    memory_gib: int
    torch: str = field(metadata=names("text"))

    @classmethod
    def current(cls) -> MachineIdentity:
        """Return the identity of this machine, without importing torch."""
        machine = find_machine()
        return cls(
            processor=machine.processor,
            cores=machine.cores,
            memory_gib=round(machine.memory.installed / 2**30),
            torch=installed("torch") or "none",
        )


@dataclass(frozen=True, kw_only=True)
class PlatformConfig(ABC):
    """Base of the configuration group ``platform``."""

    @abstractmethod
    def open(self) -> Platform:
        """Return the platform with all its rates."""


@dataclass(frozen=True, kw_only=True)
class Platform(PlatformConfig):
    """Machine with a processor and accelerators of one kind.

    Attributes:
        name: name in reports.
        processor: the host.
        accelerator: options of an accelerator as in a device plan. None: the machine has none.
        num_accelerators: number of accelerators.
        measured_on: the machine that the rates were measured on. None: rates from another source.
        memory_bandwidth: bytes per second of host memory by the data sheet, for bandwidth
            efficiency (HitGNN, section VII-D). None: the rate in ``processor.rates``.
        efficiency: reached fractions of the rates. None: the rates are effective already.
    """

    name: str = field(metadata=names("text"))
    processor: Processor
    accelerator: dict[str, Any] | None = field(
        default=None, metadata=names("text", entries=lambda value: registry.device_options([value]))
    )
    num_accelerators: int = 0
    measured_on: MachineIdentity | None = None
    memory_bandwidth: float | None = None
    efficiency: Efficiency | None = None

    def __post_init__(self) -> None:
        if self.memory_bandwidth is not None:
            check_amounts("platform.memory_bandwidth", self.memory_bandwidth)
        check_range("platform.num_accelerators", self.num_accelerators, 0, MAX_DEVICES)
        if self.accelerator is None and self.num_accelerators:
            raise ConfigError(
                f"platform.num_accelerators={self.num_accelerators}: expected 0 without accelerator"
            )
        # Invalid options of the accelerator fail here, before a simulation starts.
        if self.accelerator is not None:
            self._accelerators([MAX_DEVICES - 1])
        self.effective()

    def devices(self, num_accelerators: int) -> tuple[Device, ...]:
        """Return the processor as a device, followed by ``num_accelerators`` accelerators."""
        return (Cpu(name="cpu"), *self._accelerators(range(num_accelerators)))

    def _accelerators(self, numbers: Sequence[int]) -> tuple[Device, ...]:
        """Return an accelerator named after each of ``numbers``, such as ``accelerator:0``."""
        entries = [dict(self.accelerator or {}) for _ in numbers]
        for number, entry in zip(numbers, entries, strict=True):
            entry["name"] = f"{entry.get('name') or 'accelerator'}:{number}"
        option = "platform.accelerator"
        devices = registry.parse_devices(entries, option=option) if entries else ()
        if not all(isinstance(device, Accelerator) for device in devices):
            kind = (self.accelerator or {})["kind"]
            raise ConfigError(f"{option}.kind={kind}: expected a kind of accelerator")
        return devices

    def open(self) -> Platform:
        """Return the platform itself."""
        return self

    def effective(self) -> Platform:
        """Return this platform with peak rates times ``efficiency`` as its rates."""
        if self.efficiency is None:
            return self
        accelerator = self.accelerator
        if accelerator is not None:
            scales = dict.fromkeys(_ACCELERATOR_RATES, self.efficiency.accelerator)
            scales["link_bandwidth"] = self.efficiency.link
            # The parsed device has numbers where a file may have quoted strings.
            values = vars(self.devices(1)[1])
            accelerator = accelerator | {
                name: part * values[name]
                for name, part in scales.items()
                if accelerator.get(name) is not None
            }
        return replace(
            self,
            processor=replace(self.processor, rates=self.processor.rates.scaled(self.efficiency)),
            accelerator=accelerator,
            efficiency=None,
        )

    @property
    def listed_bandwidth(self) -> float:
        """Bytes per second of host memory by the data sheet, or else by ``processor.rates``."""
        return self.memory_bandwidth or self.processor.rates.memory_bandwidth[-1]

    @property
    def change(self) -> str | None:
        """Differences of this machine from ``measured_on``. None: equal, or not measured."""
        if self.measured_on is None:
            return None
        then, now = asdict(self.measured_on), asdict(MachineIdentity.current())
        changed = (f"{key} {then[key]}, here {now[key]}" for key in then if then[key] != now[key])
        return "; ".join(changed) or None

    def write(self, file: Path) -> None:
        """Write the platform to ``file``, atomically."""
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, yaml.safe_dump(asdict(self), sort_keys=False), shared=True)


def platform_file() -> Path:
    """Return the file of this machine's measured rates, ``${GNNSCALE_HOME}/platform.yaml``."""
    return home() / "platform.yaml"


def estimate_file() -> Path:
    """Return the file of this machine's quickly estimated rates, in ``GNNSCALE_HOME``."""
    return home() / "platform.estimated.yaml"


def read_platform(file: Path) -> Platform:
    """Return a platform stored by ``write``; ConfigError: invalid; FileNotFoundError: no file."""
    content = read_yaml(file)
    check_references(file, content, allowed=False)
    try:
        return typed(OmegaConf.create(content), Platform)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}; {_MEASURE} again") from None


@dataclass(frozen=True, kw_only=True)
class ThisMachine(PlatformConfig):
    """This machine, as measured by ``gnnscale doctor calibrate=true``.

    Attributes:
        file: file of the rates, possibly of another machine. None: ``platform.yaml`` in
            ``GNNSCALE_HOME``.
    """

    file: Path | None = None

    def open(self) -> Platform:
        """Return the stored platform; ConfigError: none or, without ``file``, another machine's."""
        file = self.file or platform_file()
        try:
            platform = read_platform(file)
        except FileNotFoundError:
            raise ConfigError(f"{file}: no rates of this machine; {_MEASURE}") from None
        if platform.change is not None:
            message = f"{file}: rates of another machine ({platform.change})"
            if self.file is None:
                raise ConfigError(f"{message}; {_MEASURE} again")
            log.warning(message)
        return platform


@dataclass(frozen=True, kw_only=True)
class ThisGpu(PlatformConfig):
    """This machine's processor and one of its GPUs, with measured rates.

    Attributes:
        index: number of the GPU among the GPUs visible through ``CUDA_VISIBLE_DEVICES``.
        row_bytes: bytes of a feature row that the GPU reads in host memory, for the link's rate.
    """

    index: int = 0
    row_bytes: int = 512

    def __post_init__(self) -> None:
        check_range("platform.index", self.index, 0, MAX_DEVICES)
        check_range("platform.row_bytes", self.row_bytes, 1)

    def open(self) -> Platform:
        """Return the platform of processor and GPU by stored rates; ConfigError: no such rates."""
        gpu, gpus = find_gpu(self.index)
        rates = read_rates(gpu.uuid, gpus.driver)
        if rates is None:
            raise ConfigError(
                f"platform: GPU {self.index} ({gpu.name}): no rates for driver {gpus.driver}; "
                "a run with device_plan=cuda measures them"
            )
        platform = ThisMachine().open()
        card = rates.of(Cuda(index=self.index), row_bytes=self.row_bytes)
        measured = {option.name: getattr(card, option.name) for option in fields(card)}
        return replace(
            platform,
            name=f"{platform.name} + {gpu.name}",
            accelerator={"kind": Cuda.kind, **measured, "name": "gpu"},
            num_accelerators=1,
        )


def published_platforms() -> tuple[str, ...]:
    """Return the names of the published platforms that ship."""
    files = (resources.files("gnnscale.configs") / "platform").iterdir()
    names = (f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml"))
    return tuple(sorted(name for name in names if not name.startswith("this_")))


def published_platform(name: str) -> Platform:
    """Return a published platform; ``name`` is one of ``published_platforms``."""
    file = resources.files("gnnscale.configs") / "platform" / f"{name}.yaml"
    return typed(OmegaConf.create(file.read_text()), Platform)
