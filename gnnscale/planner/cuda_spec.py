"""NVIDIA GPUs as devices of a plan, and their measured rates (HyScale-GNN, eq. 7 to 12)."""

import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from json import dumps
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from gnnscale.core import (
    ConfigError,
    check_choice,
    check_range,
    decode,
    home,
    read_memory,
    write_atomically,
)
from gnnscale.core import gpu as nvml
from gnnscale.planner.device_spec import MAX_DEVICES, Accelerator
from gnnscale.sampling import LayerSampling, NeighborSampling, SamplerConfig, WeightedSampling

#: Memories that may store features and topology of a GPU.
MEMORIES = ("auto", "device", "host")
#: Part of the memory that ``auto`` fills with data; mini-batches need the remainder.
_PART = 0.6
#: Hint of errors about missing GPUs.
CPU_HINT = "device_plan=cpu trains on the processor"


@dataclass(frozen=True, kw_only=True)
class Cuda(Accelerator):
    """NVIDIA GPU that samples, reads host memory and trains by itself (PyTorch-Direct).

    The default rates are those of an H100 with PCIe 5. They determine the first plan for several
    devices; profiling runs and resource management use measured times.

    Attributes:
        memory_bytes: bytes of GPU memory that a run may use. None: all free memory.
        index: number of the GPU among the GPUs visible through ``CUDA_VISIBLE_DEVICES``.
        features: memory of the feature rows: ``device``; ``host``, which kernels read over the
            link; or ``auto``: ``device`` if the rows fit and no cache is planned.
        topology: memory of the adjacency lists, with the values of ``features``.
        captures: whether steps are captured as CUDA graphs and replayed.
        tf32: whether float32 products use TF32 with its 10-bit mantissa.
        host_driven: whether the host emulates the GPU: all kernels and queues, slowly.
    """

    kind: ClassVar[str] = "cuda"
    samples: ClassVar[bool] = True
    takes_samples: ClassVar[bool] = True
    samplers: ClassVar[tuple[type[SamplerConfig], ...]] = (
        *(NeighborSampling, WeightedSampling, LayerSampling),
    )
    loads: ClassVar[bool] = True
    owns_step: ClassVar[bool] = True
    infers: ClassVar[bool] = True
    holds_rows: ClassVar[bool] = True
    takes_links: ClassVar[bool] = True

    macs_per_s: float = 2.5e13
    memory_bandwidth: float = 2e12
    memory_bytes: int | None = None  # type: ignore[assignment]
    link_bandwidth: float | None = 5e10
    link_request_bytes: int = 128
    peer_bandwidth: float | None = 4.5e11
    sampled_edges_per_s: float | None = 2e9
    host_aggregates: bool = False
    index: int = 0
    features: str = "auto"
    topology: str = "auto"
    captures: bool = True
    tf32: bool = False
    host_driven: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("index", self.index, 0, MAX_DEVICES)
        for option in ("features", "topology"):
            check_choice(option, getattr(self, option), MEMORIES)
        if self.link_bandwidth is None:
            raise ConfigError("link_bandwidth=null: expected a rate; a GPU reads host memory")

    @property
    def figures(self) -> str:  # type: ignore[override]
        """Origin of times: ``emulated`` if the host emulates the GPU, else ``measured``."""
        return "emulated" if self.host_driven else "measured"

    @property
    def computes_on_host(self) -> bool:  # type: ignore[override]
        """Whether the host emulates the GPU."""
        return self.host_driven

    @property
    def collective(self) -> str | None:  # type: ignore[override]
        """NCCL for GPUs, gloo for emulated GPUs."""
        return "cpu:gloo" if self.host_driven else "cuda:nccl"

    @property
    def trades_columns(self) -> bool:  # type: ignore[override]
        """Whether GPUs may exchange feature columns (P3): not if host memory stores the rows."""
        return self.features != "host"

    @property
    def card_index(self) -> int:
        """Index of the GPU among the visible GPUs, even if the host emulates it."""
        return self.index

    @property
    def gpu(self) -> int | None:
        """Index of the GPU among the visible GPUs. None: the host emulates the GPU."""
        return None if self.host_driven else self.index

    @property
    def holds_cache(self) -> bool:
        """Whether the GPU may read rows in host memory, and so benefit from a cache."""
        return self.features != "device"

    @property
    def reads_lists(self) -> bool:
        """Whether the GPU may read adjacency lists over its link."""
        return self.topology != "device"

    def check(self) -> None:
        """Raise ConfigError if a real GPU is missing, taken, or has less than ``memory_bytes``."""
        if not self.host_driven:
            find_gpu(self.index, memory_bytes=self.memory_bytes)

    def stores(
        self, *, topology: int, features: int, reserved: int, budget: int | None = None
    ) -> tuple[bool, bool]:
        """Return whether GPU memory is to store the full topology, and all feature rows.

        Arguments are bytes, ``reserved`` of other data, ``budget`` of all memory that a run may use
        (None: ``budget_bytes``). ``auto`` keeps 40 % of ``budget`` free. Topology has priority:
        links read short lists badly.
        """
        budget = self.budget_bytes if budget is None else budget
        free, stored = budget - reserved, []
        for memory, num_bytes in ((self.topology, topology), (self.features, features)):
            fits = num_bytes <= free - (1 - _PART) * budget
            stored.append(memory == "device" or (memory == "auto" and fits))
            free -= num_bytes if stored[-1] else 0
        return stored[0], stored[1]

    @property
    def budget_bytes(self) -> int:
        """Bytes that a run may use: ``memory_bytes``, or all free bytes (emulated: the host's)."""
        if self.memory_bytes is not None:
            return self.memory_bytes
        return read_memory().available if self.host_driven else _free_bytes(self.index)


def _find_gpus() -> nvml.Gpus:
    try:
        return nvml.find_gpus()
    except nvml.NvmlError as error:
        raise ConfigError(f"device_plan: no GPU here: {error}; {CPU_HINT}") from None


def find_all_gpus() -> int:
    """Return how many GPUs this process may use, by NVML, without CUDA; ConfigError: none."""
    gpus = _find_gpus().devices
    _gpu(gpus, 0)
    return len(gpus)


def _gpu(devices: tuple[nvml.Gpu, ...], index: int) -> nvml.Gpu:
    if 0 <= index < len(devices):
        return devices[index]
    if not devices and os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
        hidden = os.environ["CUDA_VISIBLE_DEVICES"]
        raise ConfigError(
            f"device_plan: no GPU here: CUDA_VISIBLE_DEVICES={hidden} leaves none; {CPU_HINT}"
        )
    if not devices:
        raise ConfigError(f"device_plan: no GPU here: the driver finds none; {CPU_HINT}")
    raise ConfigError(
        f"device_plan: GPU {index}: expected 0 to {len(devices) - 1}, the GPUs of this process; "
        f"{CPU_HINT}"
    )


def find_gpu(index: int, *, memory_bytes: int | None = None) -> tuple[nvml.Gpu, nvml.Gpus]:
    """Return an available GPU, and the driver with all visible GPUs, without initializing CUDA.

    ``index`` counts the GPUs of ``CUDA_VISIBLE_DEVICES``. The run needs ``memory_bytes``. None:
    whatever is free. Raises ConfigError if there is no such GPU, it is exclusively used, or its
    free memory is too small.
    """
    gpus = _find_gpus()
    gpu = _gpu(gpus.devices, index)
    if gpu.is_busy:
        raise ConfigError(
            f"device_plan: GPU {index} ({gpu.name}) accepts no further process: `nvidia-smi` shows "
            f"whether another process or the compute mode blocks it; {CPU_HINT}"
        )
    if memory_bytes is not None and gpu.free is not None and memory_bytes > gpu.free:
        raise ConfigError(
            f"device_plan: memory_bytes={memory_bytes}: expected at most {gpu.free}, the free "
            f"bytes of GPU {index} ({gpu.name}) with {gpu.memory}, or null for all free bytes; "
            f"{CPU_HINT}"
        )
    return gpu, gpus


@cache
def _free_bytes(index: int) -> int:
    """Return a GPU's free bytes, read once; those of the host if NVML has no number."""
    try:
        gpus = nvml.find_gpus().devices
    except nvml.NvmlError:
        gpus = ()
    free = gpus[index].free if index < len(gpus) else None
    return read_memory().available if free is None else free


Rate = Annotated[float, Meta(gt=0, le=1e18)]
#: Size limit of a file of rates.
_MAX_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class CardRates:
    """Rates of one GPU, and the time of its kernel launches in a step."""

    macs_per_s: Rate  #: float32 multiply-accumulates per second
    memory_bandwidth: Rate  #: bytes per second of random rows, aggregated as they are read
    copy_bandwidth: Rate  #: bytes per second of a copy from pinned host memory
    #: pairs of a row's bytes and the bytes per second of random reads of such rows in host memory
    link: tuple[tuple[Rate, Rate], ...]
    sampled_edges_per_s: Rate  #: edges sampled and relabeled per second, topology on the GPU
    launch_s: Annotated[float, Meta(ge=0, le=1)]  #: seconds of a captured step without work

    def __post_init__(self) -> None:
        if not self.link:
            raise ValueError("link: expected at least one row width")

    def link_bandwidth(self, row_bytes: int) -> float:
        """Return the bytes per second of link reads of ``row_bytes``, interpolated by width."""
        widths, rates = zip(*sorted(self.link), strict=True)
        return float(np.interp(np.log(max(row_bytes, 1)), np.log(widths), rates))

    def of(self, device: Cuda, *, row_bytes: int) -> Cuda:
        """Return ``device`` with rates left at their defaults replaced by these.

        ``row_bytes`` are the bytes of a feature row, for the link's rate.
        """
        rates = {
            "macs_per_s": self.macs_per_s,
            "memory_bandwidth": self.memory_bandwidth,
            "link_bandwidth": self.link_bandwidth(row_bytes),
            "sampled_edges_per_s": self.sampled_edges_per_s,
            "launch_s": self.launch_s,
        }
        default = Cuda()
        measured: dict[str, Any] = {
            name: rate
            for name, rate in rates.items()
            if getattr(device, name) == getattr(default, name)
        }
        return replace(device, **measured)


def load_or_measure_rates(uuid: str, driver: str, measure: Callable[[], CardRates]) -> CardRates:
    """Return the stored rates of a GPU, or call ``measure`` and store its result.

    ``${GNNSCALE_HOME:-~/.cache/gnnscale}/cuda`` has a file per GPU (``uuid``) and version of the
    driver. A damaged file is replaced.
    """
    rates = read_rates(uuid, driver)
    if rates is None:
        rates = measure()
        file = _file(uuid, driver)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, dumps(asdict(rates)) + "\n", shared=True)
    return rates


def _file(uuid: str, driver: str) -> Path:
    name = re.sub(r"[^A-Za-z0-9.-]", "_", f"rates-{uuid}-{driver}")
    return home() / "cuda" / f"{name}.json"


def read_rates(uuid: str, driver: str) -> CardRates | None:
    """Return the stored rates of a GPU. None: the file is missing or damaged."""
    file = _file(uuid, driver)
    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_BYTES)
        return decode(CardRates, content, source=str(file))
    except (OSError, ConfigError, ValueError):
        return None
