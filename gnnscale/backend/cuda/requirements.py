"""What training on a GPU takes, checked before any process initialises CUDA."""

from __future__ import annotations

import os

import torch

from gnnscale.backend.cuda.compiled import load_core
from gnnscale.core import ConfigError, nvml

_OTHERWISE = "device_plan=cpu trains on the processor"


def check_gpu(index: int, *, memory_bytes: int | None = None) -> nvml.Gpu:
    """Return a GPU that can be trained on.

    Args:
        index: among those that ``CUDA_VISIBLE_DEVICES`` leaves.
        memory_bytes: of its memory that are to be used; None for what is free.

    Raises:
        ConfigError: there is no such GPU, another process has it, or too much of its memory; or the
            driver, torch, NVRTC or cuda-core is missing or too old.
    """
    try:
        found = nvml.find_gpus()
    except nvml.NvmlError as error:
        raise ConfigError(f"device_plan: no GPU here: {error}; {_OTHERWISE}") from None
    gpu = _gpu(found.devices, index)
    _check_torch(found)
    load_core()
    if gpu.taken:
        raise ConfigError(
            f"device_plan: GPU {index} ({gpu.name}) lets no further process in: another has it for "
            f"itself (`nvidia-smi` names it), or its compute mode forbids all; {_OTHERWISE}"
        )
    if memory_bytes is not None and gpu.free is not None and memory_bytes > gpu.free:
        raise ConfigError(
            f"device_plan: memory_bytes={memory_bytes}: GPU {index} ({gpu.name}) has {gpu.free} "
            f"bytes free of {gpu.memory}; a smaller number, or null for what is free, fits; "
            f"{_OTHERWISE}"
        )
    return gpu


def _gpu(devices: tuple[nvml.Gpu, ...], index: int) -> nvml.Gpu:
    if 0 <= index < len(devices):
        return devices[index]
    if not devices and os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
        hidden = os.environ["CUDA_VISIBLE_DEVICES"]
        raise ConfigError(
            f"device_plan: no GPU here: CUDA_VISIBLE_DEVICES={hidden} leaves none; {_OTHERWISE}"
        )
    if not devices:
        raise ConfigError(f"device_plan: no GPU here: the driver finds none; {_OTHERWISE}")
    raise ConfigError(
        f"device_plan: there is no GPU {index}: this process may use {len(devices)}, numbered "
        f"from 0; {_OTHERWISE}"
    )


def _check_torch(found: nvml.Gpus) -> None:
    """Refuse a torch without CUDA, and one whose CUDA the driver is too old for.

    A driver runs all minor versions of its CUDA's major version.
    """
    built_for = torch.version.cuda
    if built_for is None:
        raise ConfigError(
            f"device_plan: torch {torch.__version__} is built without CUDA; https://pytorch.org "
            f"says how to install one with CUDA {found.cuda[0]}; {_OTHERWISE}"
        )
    if int(built_for.partition(".")[0]) > found.cuda[0]:
        raise ConfigError(
            f"device_plan: the NVIDIA driver {found.driver} runs CUDA up to {found.cuda[0]}."
            f"{found.cuda[1]}, and torch is built for CUDA {built_for}; a newer driver or another "
            f"torch goes with it; {_OTHERWISE}"
        )
