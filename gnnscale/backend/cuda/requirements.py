"""What training on a GPU takes, checked before any process initialises CUDA."""

from __future__ import annotations

import torch

from gnnscale.backend.cuda.compiled import load_core
from gnnscale.core import ConfigError, nvml
from gnnscale.plan.cuda import OTHERWISE, find_gpu


def check_gpu(index: int, *, memory_bytes: int | None = None) -> nvml.Gpu:
    """Return a GPU that can be trained on.

    Args:
        index: among those that ``CUDA_VISIBLE_DEVICES`` leaves.
        memory_bytes: of its memory that are to be used; None for what is free.

    Raises:
        ConfigError: there is no such GPU, another process has it, or too much of its memory; or the
            driver, torch, NVRTC or cuda-core is missing or too old.
    """
    gpu, found = find_gpu(index, memory_bytes=memory_bytes)
    _check_torch(found)
    load_core()
    return gpu


def _check_torch(found: nvml.Gpus) -> None:
    """Refuse a torch without CUDA, and one whose CUDA the driver is too old for.

    A driver runs all minor versions of its CUDA's major version.
    """
    built_for = torch.version.cuda
    if built_for is None:
        raise ConfigError(
            f"device_plan: torch {torch.__version__} is built without CUDA; https://pytorch.org "
            f"says how to install one with CUDA {found.cuda[0]}; {OTHERWISE}"
        )
    if int(built_for.partition(".")[0]) > found.cuda[0]:
        raise ConfigError(
            f"device_plan: the NVIDIA driver {found.driver} runs CUDA up to {found.cuda[0]}."
            f"{found.cuda[1]}, and torch is built for CUDA {built_for}; a newer driver or another "
            f"torch goes with it; {OTHERWISE}"
        )
