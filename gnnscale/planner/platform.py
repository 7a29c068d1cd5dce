"""Platforms: measured or published rates of a machine, for the performance model."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from statistics import NormalDist
from typing import Any, ClassVar

import yaml  # type: ignore[import-untyped]
from omegaconf import OmegaConf

from gnnscale.core import ConfigError, check_range, find_machine, home, installed, write_atomically
from gnnscale.core.config.typed import typed
from gnnscale.core.config.untrusted import names
from gnnscale.core.config.yaml_file import check_references, read_yaml
from gnnscale.planner import device_plan, registry
from gnnscale.planner.cuda_spec import Cuda, find_gpu
from gnnscale.planner.device_spec import MAX_DEVICES, Accelerator, Cpu, Device, Efficiency
from gnnscale.planner.gpu_rates import read_rates

log = logging.getLogger(__name__)

_MEASURE = "run gnnscale doctor calibrate=true"
#: Names of platforms without calibration: nominal rates of a host, and rates of a quick estimate.
NOMINAL, ESTIMATED = "a nominal machine", "this machine, estimated"
#: Rates that are bound by memory rather than arithmetic.
_MEMORY_RATES = (
    "memory_bandwidth",
    "cache_bandwidth",
    "rows_per_s",
    "memory_rows_per_s",
    "widened_per_s",
    "write_bandwidth",
)
#: Bounds of seconds and rates, so that sums and quotients stay finite.
_MAX_SECONDS, _MIN_RATE = 1e9, 1e-9
#: Rates of propagation on the host's cores and on an accelerator, eq. 11 and 12.
_TRAINER_RATES = (
    "aggregate_bandwidth",
    "stream_bandwidth",
    "operand_bandwidth",
    "macs_per_s",
    "bfloat16_macs_per_s",
    "attention_per_s",
)
_ACCELERATOR_RATES = ("macs_per_s", "memory_bandwidth")

#: Checked fields of a processor.
_PROCESSOR_FIELDS = (
    *("cores", "cache_bytes", "layer_s"),
    *("load_s", "lookups_per_s", "update_s", "update_bandwidth"),
)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Rates of a processor's threads together while nothing else runs.

    Every list has an entry per entry of ``Processor.threads``. Bandwidths are effective, as in
    section V of HyScale-GNN: reached by feature rows, below the peak of the memory.

    Attributes:
        memory_bandwidth: bytes per second of random feature rows in memory, eq. 7.
        cache_bandwidth: bytes per second of feature rows in the last-level cache.
        rows_per_s: rows per second, however short.
        memory_rows_per_s: random rows in memory per second, however short.
        widened_per_s: values per second converted to float32 from a narrower stored type. None: no
            extra time.
        write_bandwidth: bytes per second of writing loaded rows. None: no extra time.
        aggregate_bandwidth: bytes per second of hidden rows in aggregation, eq. 11.
        stream_bandwidth: bytes per second of sequentially written activations.
        operand_bandwidth: bytes per second of operands of products, read forward during
            multiplication. None: ``stream_bandwidth``, read after multiplication.
        macs_per_s: multiply-accumulates per second, N·freq of eq. 12.
        bfloat16_macs_per_s: multiply-accumulates per second in bfloat16. None: too slow to be used.
        attention_per_s: edges and vertices of attention, times heads, per second.
        sampled_edges_per_s: edges per second of neighbor sampling, for graphs without data.
    """

    #: An infinite rate stands for work that takes no time.
    allows_infinite: ClassVar[bool] = True

    memory_bandwidth: list[float]
    cache_bandwidth: list[float]
    rows_per_s: list[float]
    memory_rows_per_s: list[float]
    aggregate_bandwidth: list[float]
    stream_bandwidth: list[float]
    macs_per_s: list[float]
    attention_per_s: list[float]
    sampled_edges_per_s: list[float]
    operand_bandwidth: list[float] | None = None
    bfloat16_macs_per_s: list[float] | None = None
    widened_per_s: list[float] | None = None
    write_bandwidth: list[float] | None = None

    def __post_init__(self) -> None:
        for name, values in vars(self).items():
            _check_amounts(f"processor.rates.{name}", values)

    def scaled(self, efficiency: Efficiency) -> Rates:
        """Return the effective rates of these peak rates."""
        parts = dict.fromkeys(_TRAINER_RATES, efficiency.processor)
        parts |= dict.fromkeys(_MEMORY_RATES, efficiency.memory)
        rates: dict[str, Any] = {
            name: [part * rate for rate in getattr(self, name)]
            for name, part in parts.items()
            if getattr(self, name) is not None
        }
        return replace(self, **rates)

    def values(self, name: str) -> list[float] | None:
        """Return the rates called ``name``; bfloat16 products default to the float32 rate."""
        rates: list[float] | None = getattr(self, name)
        if rates is None and name == "bfloat16_macs_per_s":
            return self.macs_per_s
        return rates


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """Contention between workers on one processor, and the cost of synchronization.

    Attributes:
        compute_contention: slowdown of propagation while all other cores are busy. Infinite: only
            the rates of all threads together are known.
        memory_contention: slowdown of sampling and loading while all other cores are busy.
        sync_latency_s: minimum seconds of an all-reduce of gradients.
        sync_bandwidth: bytes of gradients per second that workers sum in shared memory.
        straggler_wait: mean fraction of a step that one of two equal workers waits for the other.
        message_latency_s: seconds of a message between workers, such as rows of P3. None:
            ``sync_latency_s``.
        message_bandwidth: bytes per second of messages. None: ``sync_bandwidth``.
    """

    #: See ``Rates``.
    allows_infinite: ClassVar[bool] = True

    compute_contention: float
    memory_contention: float
    sync_latency_s: float
    sync_bandwidth: float
    straggler_wait: float = 0.0
    message_latency_s: float | None = None
    message_bandwidth: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            _check_amounts(f"processor.sharing.{name}", value)

    def contention(self, name: str) -> float:
        """Return the slowdown for work with the rate ``name``."""
        return self.memory_contention if name in _MEMORY_RATES else self.compute_contention

    def sync_seconds(self, num_bytes: float, num_workers: int) -> float:
        """Return the seconds of an all-reduce of ``num_bytes``, eq. 13 for workers.

        The bytes per worker do not depend on the number of workers, each of which has a core.
        """
        if num_workers < 2:
            return 0.0
        return self.sync_latency_s + num_bytes / self.sync_bandwidth

    @property
    def messages(self) -> tuple[float, float]:
        """Seconds of a message, and bytes per second of messages."""
        latency_s = self.message_latency_s
        return (
            self.sync_latency_s if latency_s is None else latency_s,
            self.message_bandwidth or self.sync_bandwidth,
        )

    def straggler_seconds(self, step_s: float, num_workers: int) -> float:
        """Return the mean seconds that a worker waits for the slowest of ``num_workers``.

        Step times are modeled as normal variables, whose expected maximum grows with the number of
        workers (Blom, Statistical Estimates and Transformed Beta-Variables, 1958).
        """
        if num_workers < 2:
            return 0.0
        latest, of_two = (
            NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) for count in (num_workers, 2)
        )
        return step_s * self.straggler_wait * latest / of_two


@dataclass(frozen=True, kw_only=True)
class Processor:
    """Cores and memory of the host.

    Attributes:
        name: name in reports.
        cores: number of cores that a run may use.
        cache_bytes: bytes of the last-level cache.
        threads: ascending numbers of threads with measured rates; the last is ``cores``.
        rates: rates for each entry of ``threads``.
        layer_s: minimum seconds of a layer's propagation, for each entry of ``threads``.
        load_s: minimum seconds of loading a mini-batch.
        lookups_per_s: coefficients per second that one thread looks up for a mini-batch.
        update_s: minimum seconds of gathering gradients and of the optimizer's step.
        update_bandwidth: bytes of weights per second of gathering and optimizer together.
        sharing: contention between workers.
    """

    #: See ``Rates``.
    allows_infinite: ClassVar[bool] = True

    name: str = field(metadata=names("text"))
    cores: int
    cache_bytes: int
    threads: list[int]
    rates: Rates
    layer_s: list[float]
    load_s: float
    lookups_per_s: float
    update_s: float
    update_bandwidth: float
    sharing: Sharing

    def __post_init__(self) -> None:
        threads = self.threads
        if not threads or threads[0] < 1 or sorted(set(threads)) != threads:
            raise ConfigError(f"processor.threads={threads}: expected ascending numbers from 1 on")
        check_range("processor.cores", self.cores, 1, device_plan.MAX_THREADS)
        if threads[-1] != self.cores:
            raise ConfigError(
                f"processor.threads={threads}: expected cores={self.cores} at the end"
            )
        listed = {f"rates.{name}": values for name, values in vars(self.rates).items()}
        for name, values in (listed | {"layer_s": self.layer_s}).items():
            if values is not None and len(values) != len(threads):
                raise ConfigError(
                    f"processor.{name}={values}: expected a value for each of threads={threads}"
                )
        for name in _PROCESSOR_FIELDS:
            _check_amounts(f"processor.{name}", getattr(self, name))

    def rate(self, name: str, threads: int, active: float) -> float:
        """Return the rate ``name`` of ``threads`` threads while ``active`` threads work in total.

        Threads share cores and memory: t of T threads get at least rate(T)·t/T. Threads of
        different workers do not wait for each other. They lose at most the contention measured
        between processes.
        """
        rates = self.rates.values(name)
        if rates is None:
            return math.inf
        unshared = shared_rate(self.threads, rates, threads, threads)
        if active <= threads or math.isinf(unshared):
            return unshared
        busy_share = min(1.0, (active - threads) / max(self.cores - threads, 1))
        contention = self.sharing.contention(name)
        slower = (1 + (contention - 1) * busy_share) * max(1.0, active / max(self.cores, threads))
        return max(shared_rate(self.threads, rates, threads, active), unshared / slower)

    def layer_seconds(self, threads: int, active: float) -> float:
        """Return the minimum seconds of a layer; more threads than cores take turns."""
        position = min(max(bisect_left(self.threads, threads), 0), len(self.threads) - 1)
        return self.layer_s[position] * max(1.0, active / self.cores)


def _check_amounts(option: str, amounts: float | Sequence[float] | None) -> None:
    """Check that seconds are 0 to 1e9, and that rates and bytes are at least 1e-9."""
    name = option.rpartition(".")[2]
    seconds = name == "straggler_wait" or (name.endswith("_s") and not name.endswith("_per_s"))
    for value in (amounts,) if isinstance(amounts, (int, float)) else amounts or ():
        if seconds and not 0 <= value <= _MAX_SECONDS:
            raise ConfigError(f"{option}={amounts}: expected seconds from 0 to {_MAX_SECONDS:g}")
        if not seconds and not value >= _MIN_RATE:
            raise ConfigError(f"{option}={amounts}: expected numbers from {_MIN_RATE:g} on")


def shared_rate(
    numbers: Sequence[int], rates: Sequence[float], threads: int, active: float
) -> float:
    """Return the rate of ``threads`` (t) of ``active`` (T) threads: rate(T)·t/T.

    ``rates`` of ascending ``numbers`` of threads are interpolated linearly from 0 on; more threads
    get the last rate.
    """
    active = max(active, threads)
    count = min(active, numbers[-1])
    position = bisect_left(numbers, count)
    low, low_rate = (numbers[position - 1], rates[position - 1]) if position else (0, 0.0)
    high, high_rate = numbers[position], rates[position]
    if math.isinf(high_rate):
        return math.inf
    if math.isinf(low_rate):
        low_rate = high_rate
    total = low_rate + (high_rate - low_rate) * (count - low) / (high - low)
    # Interpolation between very different rates cancels below both of them.
    return max(total, min(low_rate, high_rate)) * threads / active


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
    def here(cls) -> MachineIdentity:
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
            _check_amounts("platform.memory_bandwidth", self.memory_bandwidth)
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
        """Return the accelerators with these numbers in their names."""
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
        """Return this platform with effective rates in place of peak rates."""
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
        """Bytes per second of host memory by the data sheet."""
        return self.memory_bandwidth or self.processor.rates.memory_bandwidth[-1]

    @property
    def change(self) -> str | None:
        """Differences between this machine and ``measured_on``. None: no difference."""
        if self.measured_on is None:
            return None
        then, now = asdict(self.measured_on), asdict(MachineIdentity.here())
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
    """Return the file of this machine's estimated rates, for runs before calibration."""
    return home() / "platform.estimated.yaml"


def read_platform(file: Path) -> Platform:
    """Read a platform that ``Platform.write`` has written; FileNotFoundError, or ConfigError."""
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
        """Read the measured rates; ConfigError: there are none of this machine."""
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
        """Read the rates of processor and GPU; ConfigError: one is missing, or was not measured."""
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
