"""NVIDIA GPUs as devices of a plan."""

import os
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from gnnscale.core import ConfigError, check_choice, check_range, find_memory
from gnnscale.core import gpu as nvml
from gnnscale.planner.device_spec import MAX_DEVICES, Accelerator
from gnnscale.sampling import LayerSampling, NeighborSampling, SamplerConfig, WeightedSampling

#: Memory that a GPU's data may lie in.
PLACES = ("auto", "device", "host")
#: Part of the memory that data may take if nobody asked for it; mini-batches need the rest.
_PART = 0.6
#: The way on without a GPU.
OTHERWISE = "device_plan=cpu trains on the processor"


@dataclass(frozen=True, kw_only=True)
class Cuda(Accelerator):
    """An NVIDIA GPU, which samples, reads host memory and trains by itself (PyTorch-Direct).

    A plan for several devices begins with the rates here, by default those of an H100 with PCIe 5;
    rehearsals and resource management go by what they measure.

    Attributes:
        memory_bytes: of its memory that a run may take; None for what is free.
        index: number of the GPU among those that ``CUDA_VISIBLE_DEVICES`` leaves.
        features: memory of the feature rows: ``device``, ``host``, which kernels then read over the
            link, or ``auto`` for the device's if they fit and no cache is planned.
        topology: the same of adjacency lists.
        captures: whether steps are recorded, as CUDA graphs, and repeated as they were.
        tf32: whether products of float32 are taken with TF32's 10 bits of fraction.
        host_driven: whether the host stands for the GPU: all kernels and queues, slowly.
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
            check_choice(option, getattr(self, option), PLACES)
        if self.link_bandwidth is None:
            raise ConfigError("link_bandwidth=null: required, a GPU reads host memory over it")

    @property
    def figures(self) -> str:  # type: ignore[override]
        """``emulated`` if the host stands for it."""
        return "emulated" if self.host_driven else "measured"

    @property
    def computes_on_host(self) -> bool:  # type: ignore[override]
        """Whether the host stands for it."""
        return self.host_driven

    @property
    def collective(self) -> str | None:  # type: ignore[override]
        """NCCL among GPUs, gloo if the host stands for them."""
        return "cpu:gloo" if self.host_driven else "cuda:nccl"

    @property
    def trades_columns(self) -> bool:  # type: ignore[override]
        """Whether its columns may lie in its memory."""
        return self.features != "host"

    @property
    def place(self) -> int:
        """Its number."""
        return self.index

    @property
    def gpu(self) -> int | None:
        """Its number, unless the host stands for it."""
        return None if self.host_driven else self.index

    @property
    def holds_cache(self) -> bool:
        """Whether it reads rows in the host's memory, of which it may keep some."""
        return self.features != "device"

    @property
    def reads_lists(self) -> bool:
        """Whether it reads adjacency lists over its link, if it has a cache."""
        return self.topology != "device"

    def check(self) -> None:
        """Refuse a GPU that is not there, is taken, or has too little memory free."""
        if not self.host_driven:
            find_gpu(self.index, memory_bytes=self.memory_bytes)

    def keeps(self, *, topology: int, features: int, kept: int, budget: int) -> tuple[bool, bool]:
        """Return whether its memory holds the topology, and the feature rows.

        The topology comes first if it holds one of the two: reads of it are short, of which a link
        takes many more.

        Args:
            topology, features: their bytes.
            kept: bytes that other things take.
            budget: bytes that may be taken in all.
        """
        room, found = budget - kept, []
        for asked, num_bytes in ((self.topology, topology), (self.features, features)):
            fits = num_bytes <= room - (1 - _PART) * budget
            held = asked == "device" or (asked == "auto" and fits)
            room -= num_bytes if held else 0
            found.append(held)
        return found[0], found[1]

    def places(self, *, topology: int, features: int, kept: int) -> tuple[bool, bool]:
        """Return what ``keeps`` returns for the memory that a run may take."""
        budget = self.budget_bytes
        return self.keeps(topology=topology, features=features, kept=kept, budget=budget)

    @property
    def budget_bytes(self) -> int:
        """Bytes of its memory that a run may take; what is free, by NVML, if none are given.

        Those of the host if there is no such GPU: training on it is refused elsewhere.
        """
        if self.memory_bytes is not None:
            return self.memory_bytes
        return find_memory().available if self.host_driven else _free_bytes(self.index)


def find_all_gpus() -> int:
    """Return how many GPUs this process may use; nothing of CUDA is initialised.

    Raises:
        ConfigError: no GPU is there.
    """
    try:
        found = nvml.find_gpus().devices
    except nvml.NvmlError as error:
        raise ConfigError(f"device_plan: no GPU here: {error}; {OTHERWISE}") from None
    if not found:
        _gpu(found, 0)
    return len(found)


def _gpu(devices: tuple[nvml.Gpu, ...], index: int) -> nvml.Gpu:
    if 0 <= index < len(devices):
        return devices[index]
    if not devices and os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
        hidden = os.environ["CUDA_VISIBLE_DEVICES"]
        raise ConfigError(
            f"device_plan: no GPU here: CUDA_VISIBLE_DEVICES={hidden} leaves none; {OTHERWISE}"
        )
    if not devices:
        raise ConfigError(f"device_plan: no GPU here: the driver finds none; {OTHERWISE}")
    raise ConfigError(
        f"device_plan: there is no GPU {index}: this process may use {len(devices)}, numbered "
        f"from 0; {OTHERWISE}"
    )


def find_gpu(index: int, *, memory_bytes: int | None = None) -> tuple[nvml.Gpu, nvml.Gpus]:
    """Return a GPU that lets this process in, and all of them; nothing of CUDA is initialised.

    Args:
        index: among those that ``CUDA_VISIBLE_DEVICES`` leaves.
        memory_bytes: of its memory that are to be used; None for what is free.

    Raises:
        ConfigError: there is no such GPU, another process has it, or too much of its memory.
    """
    try:
        found = nvml.find_gpus()
    except nvml.NvmlError as error:
        raise ConfigError(f"device_plan: no GPU here: {error}; {OTHERWISE}") from None
    gpu = _gpu(found.devices, index)
    if gpu.taken:
        raise ConfigError(
            f"device_plan: GPU {index} ({gpu.name}) lets no further process in: another has it for "
            f"itself (`nvidia-smi` names it), or its compute mode forbids all; {OTHERWISE}"
        )
    if memory_bytes is not None and gpu.free is not None and memory_bytes > gpu.free:
        raise ConfigError(
            f"device_plan: memory_bytes={memory_bytes}: GPU {index} ({gpu.name}) has {gpu.free} "
            f"bytes free of {gpu.memory}; a smaller number, or null for what is free, fits; "
            f"{OTHERWISE}"
        )
    return gpu, found


@cache
def _free_bytes(index: int) -> int:
    """Return the bytes that a GPU has free; those that the first call found, before the run."""
    try:
        found = nvml.find_gpus().devices
    except nvml.NvmlError:
        found = ()
    free = found[index].free if index < len(found) else None
    return find_memory().available if free is None else free
