"""Platforms: what the performance model knows of a machine, measured or published."""

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
from gnnscale.planner.gpu_rates import known_rates

log = logging.getLogger(__name__)

_MEASURE = "run gnnscale doctor calibrate=true"
#: Names of platforms whose rates come from no calibration: default ones of a host, and those of a
#: quick estimate.
NOMINAL, ESTIMATED = "a nominal machine", "this machine, estimated"
#: Those that memory decides more than arithmetic.
_OF_MEMORY = (
    "memory_bandwidth",
    "cache_bandwidth",
    "rows_per_s",
    "memory_rows_per_s",
    "widened_per_s",
    "write_bandwidth",
)
#: Figures beyond these are no machine's, and sums and quotients of them no numbers.
_MAX_SECONDS, _MIN_RATE = 1e9, 1e-9
#: Those of the trainer on the host's cores, and of an accelerator's: eq. 11 and 12.
_OF_TRAINER = (
    "aggregate_bandwidth",
    "stream_bandwidth",
    "operand_bandwidth",
    "macs_per_s",
    "bfloat16_macs_per_s",
    "attention_per_s",
)
_OF_ACCELERATOR = ("macs_per_s", "memory_bandwidth")

#: Figures of a processor itself.
_OF_PROCESSOR = (
    *("cores", "cache_bytes", "layer_s"),
    *("load_s", "lookups_per_s", "update_s", "update_bandwidth"),
)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What threads of a processor do together while nothing else runs.

    Lists have a figure for each entry of ``Processor.threads``. Bandwidths are effective ones, as
    in section V of HyScale-GNN: what rows of features get, not what the memory could do.

    Attributes:
        memory_bandwidth: bytes per second of feature rows at random places in memory, eq. 7.
        cache_bandwidth: bytes per second of rows that lie in the cache.
        rows_per_s: rows per second, however short.
        memory_rows_per_s: rows per second at random places in memory, however short.
        widened_per_s: values per second that become float32 while rows of a narrower type are read;
            None if that takes no extra time.
        write_bandwidth: bytes per second of loaded rows as they are written; None as well.
        aggregate_bandwidth: bytes per second of hidden rows while they are aggregated, eq. 11.
        stream_bandwidth: bytes per second of activations that are written in order.
        operand_bandwidth: bytes per second of rows that products read, forward while they multiply;
            None for those of ``stream_bandwidth``, after they multiply.
        macs_per_s: multiply-accumulates per second, N·freq of eq. 12.
        bfloat16_macs_per_s: the same of bfloat16; None if its products are not fast enough to be
            used.
        attention_per_s: edges and vertices of attention, times heads, per second.
        sampled_edges_per_s: edges per second of neighbour sampling, for graphs that are not here.
    """

    #: What the equations leave out takes no time, at an infinite rate.
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
            _check_figures(f"processor.rates.{name}", values)

    def scaled(self, efficiency: Efficiency) -> Rates:
        """Return the effective rates, if these are peaks."""
        parts = dict.fromkeys(_OF_TRAINER, efficiency.processor)
        parts |= dict.fromkeys(_OF_MEMORY, efficiency.memory)
        rates: dict[str, Any] = {
            name: [part * rate for rate in getattr(self, name)]
            for name, part in parts.items()
            if getattr(self, name) is not None
        }
        return replace(self, **rates)

    def of(self, name: str) -> list[float] | None:
        """Return the rate ``name``; that of float32 products if bfloat16 has none of its own."""
        rates: list[float] | None = getattr(self, name)
        if rates is None and name == "bfloat16_macs_per_s":
            return self.macs_per_s
        return rates


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """What workers on one processor take from each other, and what their synchronisation takes.

    Attributes:
        compute_contention: how many times as long propagation takes on its threads while all other
            cores are busy; infinite if only the rates of all threads together are known.
        memory_contention: the same of sampling and loading.
        sync_latency_s: seconds of an all-reduce of gradients, at least.
        sync_bandwidth: bytes of gradients per second that workers sum in memory that they share.
        straggler_wait: part of a step that a worker of two equal ones waits for the other on
            average, since none takes the same time in every step.
        message_latency_s: seconds of a message from one worker to another, such as rows of P3; None
            for those of an all-reduce.
        message_bandwidth: bytes per second of messages; None for those of an all-reduce.
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
            _check_figures(f"processor.sharing.{name}", value)

    def contention(self, name: str) -> float:
        """Return that of the work which has the rate ``name``."""
        return self.memory_contention if name in _OF_MEMORY else self.compute_contention

    def sync_seconds(self, num_bytes: float, num_workers: int) -> float:
        """Return the seconds of an all-reduce of ``num_bytes``, eq. 13 for workers.

        A worker writes all of its gradients, sums one slice of all workers', and reads the sums:
        as many bytes however many workers there are, each of which has a core.
        """
        if num_workers < 2:
            return 0.0
        return self.sync_latency_s + num_bytes / self.sync_bandwidth

    @property
    def messages(self) -> tuple[float, float]:
        """The seconds of a message, and the bytes per second of messages."""
        latency_s = self.message_latency_s
        return (
            self.sync_latency_s if latency_s is None else latency_s,
            self.message_bandwidth or self.sync_bandwidth,
        )

    def straggler_seconds(self, step_s: float, num_workers: int) -> float:
        """Return the seconds that a worker waits for the latest of ``num_workers`` equal ones.

        Of steps that vary as normal variables do, the latest of more is later (Blom, Statistical
        Estimates and Transformed Beta-Variables, 1958).
        """
        if num_workers < 2:
            return 0.0
        latest, of_two = (
            NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) for count in (num_workers, 2)
        )
        return step_s * self.straggler_wait * latest / of_two


@dataclass(frozen=True, kw_only=True)
class Processor:
    """The host's cores and memory.

    Attributes:
        name: what reports call it.
        cores: cores that a run may use.
        cache_bytes: last-level cache; features beyond it come from memory.
        threads: numbers of threads, ascending, the last one ``cores``.
        rates: what so many threads together do.
        layer_s: seconds that forward and backward propagation of a layer take at least, for each
            entry of ``threads``.
        load_s: seconds that loading a mini-batch takes at least.
        lookups_per_s: coefficients per second that are looked up for a mini-batch, by one thread.
        update_s: seconds of gathering gradients and of the optimizer's step, at least.
        update_bandwidth: bytes of weights per second of both.
        sharing: what workers take from each other.
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
            raise ConfigError(f"processor.threads={threads}: must be ascending numbers from 1 on")
        check_range("processor.cores", self.cores, 1, device_plan.MAX_THREADS)
        if threads[-1] != self.cores:
            raise ConfigError(f"processor.threads={threads}: must end with cores={self.cores}")
        listed = {f"rates.{name}": values for name, values in vars(self.rates).items()}
        for name, values in (listed | {"layer_s": self.layer_s}).items():
            if values is not None and len(values) != len(threads):
                raise ConfigError(f"processor.{name}={values}: threads={threads} need one each")
        for name in _OF_PROCESSOR:
            _check_figures(f"processor.{name}", getattr(self, name))

    def rate(self, name: str, threads: int, active: float) -> float:
        """Return the rate ``name`` of ``threads`` threads while ``active`` ones work in all.

        Threads that work at once share cores and memory: t of T threads get rate(T)·t/T at least.
        Those of different workers do not wait for each other, and lose no more than the contention
        that was measured between processes.
        """
        rates = self.rates.of(name)
        if rates is None:
            return math.inf
        alone = shared_rate(self.threads, rates, threads, threads)
        if active <= threads or math.isinf(alone):
            return alone
        others = min(1.0, (active - threads) / max(self.cores - threads, 1))
        contention = self.sharing.contention(name)
        slower = (1 + (contention - 1) * others) * max(1.0, active / max(self.cores, threads))
        return max(shared_rate(self.threads, rates, threads, active), alone / slower)

    def layer_seconds(self, threads: int, active: float) -> float:
        """Return the minimal seconds of a layer; more threads than cores take turns."""
        position = min(max(bisect_left(self.threads, threads), 0), len(self.threads) - 1)
        return self.layer_s[position] * max(1.0, active / self.cores)


def _check_figures(option: str, figures: float | Sequence[float] | None) -> None:
    """Refuse figures that no machine has: seconds, or rates and bytes, all above 0."""
    name = option.rpartition(".")[2]
    seconds = name == "straggler_wait" or (name.endswith("_s") and not name.endswith("_per_s"))
    for value in (figures,) if isinstance(figures, (int, float)) else figures or ():
        if not (value > 0 or (value == 0 and seconds)):
            raise ConfigError(f"{option}={figures}: must be above 0")
        if seconds and value > _MAX_SECONDS:
            raise ConfigError(f"{option}={figures}: must be at most {_MAX_SECONDS:g}")
        if not seconds and value < _MIN_RATE:
            raise ConfigError(f"{option}={figures}: must be at least {_MIN_RATE:g}")


def shared_rate(known: Sequence[int], rates: Sequence[float], threads: int, active: float) -> float:
    """Return what ``threads`` of ``active`` threads get: rate(T)·t/T.

    Args:
        known: numbers of threads with a rate, ascending; more threads get no more than the last.
        rates: the rate of so many threads together; between them, and from 0, it is linear.
        active: T, all that work at the same time; at least ``threads``.
    """
    active = max(active, threads)
    at = min(active, known[-1])
    position = bisect_left(known, at)
    low, low_rate = (known[position - 1], rates[position - 1]) if position else (0, 0.0)
    high, high_rate = known[position], rates[position]
    if math.isinf(high_rate):
        return math.inf
    if math.isinf(low_rate):
        low_rate = high_rate
    whole = low_rate + (high_rate - low_rate) * (at - low) / (high - low)
    # Rates of very different sizes cancel to less than either of them.
    return max(whole, min(low_rate, high_rate)) * threads / active


@dataclass(frozen=True, kw_only=True)
class MachineIdentity:
    """What identifies a machine: figures measured on one do not apply to another.

    Attributes:
        processor: its model name.
        cores: cores that a run may use.
        memory_gib: main memory, in whole GiB.
        torch: the version that did the work.
    """

    processor: str = field(metadata=names("text"))
    cores: int
    memory_gib: int
    torch: str = field(metadata=names("text"))

    @classmethod
    def here(cls) -> MachineIdentity:
        """Return that of this machine; torch is not imported."""
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
        """Return the platform that is meant."""


@dataclass(frozen=True, kw_only=True)
class Platform(PlatformConfig):
    """A machine: a processor, and accelerators of one kind.

    Attributes:
        name: what reports call it.
        processor: the host.
        accelerator: options of a device, as in a device plan; None for a machine without one.
        num_accelerators: how many it has.
        measured_on: the machine that measured the figures; None if they come from elsewhere.
        memory_bandwidth: bytes per second of the host's memory as papers list it, which bandwidth
            efficiency divides by (HitGNN, section VII-D); None for that of ``processor.rates``.
        efficiency: the part of its rates that training reaches, if they are peaks; None if
            they are effective as they stand.
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
            _check_figures("platform.memory_bandwidth", self.memory_bandwidth)
        check_range("platform.num_accelerators", self.num_accelerators, 0, MAX_DEVICES)
        if self.accelerator is None and self.num_accelerators:
            raise ConfigError("platform.accelerator=null: num_accelerators is above 0")
        # Whatever a simulation asks for later, an error of the file is found while it is read.
        if self.accelerator is not None:
            self._accelerators([MAX_DEVICES - 1])
        self.effective()

    def devices(self, num_accelerators: int) -> tuple[Device, ...]:
        """Return the processor as a device, and so many accelerators."""
        return (Cpu(name="cpu"), *self._accelerators(range(num_accelerators)))

    def _accelerators(self, numbers: Sequence[int]) -> tuple[Device, ...]:
        """Return the accelerators with these numbers."""
        entries = [dict(self.accelerator or {}) for _ in numbers]
        for number, entry in zip(numbers, entries, strict=True):
            entry["name"] = f"{entry.get('name') or 'accelerator'}:{number}"
        option = "platform.accelerator"
        found = registry.parse_devices(entries, option=option) if entries else ()
        if not all(isinstance(device, Accelerator) for device in found):
            raise ConfigError(f"{option}.kind={(self.accelerator or {})['kind']}: has no metadata")
        return found

    def open(self) -> Platform:
        """Return it: it is all here."""
        return self

    def effective(self) -> Platform:
        """Return this platform with the rates that its ``efficiency`` leaves of the peaks."""
        if self.efficiency is None:
            return self
        accelerator = self.accelerator
        if accelerator is not None:
            scales = dict.fromkeys(_OF_ACCELERATOR, self.efficiency.accelerator)
            scales["link_bandwidth"] = self.efficiency.link
            # The device's own figures: those of a file may be numbers in quotes.
            known = vars(self.devices(1)[1])
            accelerator = accelerator | {
                name: part * known[name]
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
        """Bytes per second of the host's memory as papers list it."""
        return self.memory_bandwidth or self.processor.rates.memory_bandwidth[-1]

    @property
    def change(self) -> str | None:
        """What this machine has other than the one that measured the figures; None for nothing."""
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
    """Return where the figures of this machine are kept, ``${GNNSCALE_HOME}/platform.yaml``."""
    return home() / "platform.yaml"


def estimate_file() -> Path:
    """Return where an estimate of this machine's figures is kept, for runs before calibration."""
    return home() / "platform.estimated.yaml"


def read_platform(file: Path) -> Platform:
    """Return the figures that ``Platform.write`` has written.

    Raises:
        FileNotFoundError: there is no such file.
        ConfigError: it cannot be used.
    """
    content = read_yaml(file)
    check_references(file, content, allowed=False)
    try:
        return typed(OmegaConf.create(content), Platform)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}; {_MEASURE} again") from None


@dataclass(frozen=True, kw_only=True)
class ThisMachine(PlatformConfig):
    """This machine, as ``gnnscale doctor calibrate=true`` measured it.

    Attributes:
        file: where the figures are, perhaps of another machine; None for ``platform.yaml``
            in ``GNNSCALE_HOME``.
    """

    file: Path | None = None

    def open(self) -> Platform:
        """Read the figures.

        Raises:
            ConfigError: there are none of this machine, or the file cannot be used.
        """
        file = self.file or platform_file()
        try:
            platform = read_platform(file)
        except FileNotFoundError:
            raise ConfigError(f"{file}: no figures of this machine; {_MEASURE}") from None
        if platform.change is not None:
            message = f"{file}: figures of another machine ({platform.change})"
            if self.file is None:
                raise ConfigError(f"{message}; {_MEASURE} again")
            log.warning(message)
        return platform


@dataclass(frozen=True, kw_only=True)
class ThisGpu(PlatformConfig):
    """This machine's processor and a GPU of it, as they were measured.

    Attributes:
        index: number of the GPU among those that ``CUDA_VISIBLE_DEVICES`` leaves.
        row_bytes: of the rows that it reads in the host's memory, for the link's rate.
    """

    index: int = 0
    row_bytes: int = 512

    def __post_init__(self) -> None:
        check_range("platform.index", self.index, 0, MAX_DEVICES)
        check_range("platform.row_bytes", self.row_bytes, 1)

    def open(self) -> Platform:
        """Read the figures of both.

        Raises:
            ConfigError: there is no such GPU, or one of the two was not measured.
        """
        gpu, gpus = find_gpu(self.index)
        rates = known_rates(gpu.uuid, gpus.driver)
        if rates is None:
            raise ConfigError(
                f"platform: GPU {self.index} ({gpu.name}) was not measured with driver "
                f"{gpus.driver}; a run with device_plan=cuda does that once"
            )
        platform = ThisMachine().open()
        card = rates.of(Cuda(index=self.index), row_bytes=self.row_bytes)
        measured = {each.name: getattr(card, each.name) for each in fields(card)}
        return replace(
            platform,
            name=f"{platform.name} + {gpu.name}",
            accelerator={"kind": Cuda.kind, **measured, "name": "gpu"},
            num_accelerators=1,
        )


def published_platforms() -> tuple[str, ...]:
    """Return the names of the published machines."""
    files = (resources.files("gnnscale.configs") / "platform").iterdir()
    found = (each.name.removesuffix(".yaml") for each in files if each.name.endswith(".yaml"))
    return tuple(sorted(name for name in found if not name.startswith("this_")))


def published_platform(name: str) -> Platform:
    """Return a published machine.

    Args:
        name: one of ``published_platforms``.
    """
    file = resources.files("gnnscale.configs") / "platform" / f"{name}.yaml"
    return typed(OmegaConf.create(file.read_text()), Platform)
