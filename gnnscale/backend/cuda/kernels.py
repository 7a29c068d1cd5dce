"""Kernels by their names, wherever they run: on a GPU, or on the host in place of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch

from gnnscale.backend import compiling

#: A tensor stands for its address; a scalar of NumPy has the size that the kernel takes.
Argument: TypeAlias = "torch.Tensor | np.generic[Any]"

NULL = np.uint64(0)  #: the address of nothing
#: Threads of a block, of every kernel (``cuda/include/gnnscale_cuda/device.hpp``).
BLOCK = 256


class Kernels(Protocol):
    """What launches the kernels of ``cuda/kernels``."""

    #: of the GPU, or threads of the host; grids are multiples of it
    num_multiprocessors: int
    #: on which tensors lie
    device: torch.device

    def launch(
        self,
        name: str,
        *arguments: Argument,
        grid: int,
        block: int = BLOCK,
        stream: Any | None = None,
    ) -> None:
        """Launch a kernel, which may run after this returns.

        Args:
            name: of the kernel.
            arguments: in the order of its parameters. Tensors must live until it is done.
            grid: blocks.
            block: threads of a block.
            stream: that queues it; None for the current one.

        Raises:
            DeviceError: there is no such kernel, or it takes other arguments.
        """
        ...


def sources() -> Path:
    """Return the folder of the kernels' sources: the checkout's, or as installed.

    Raises:
        ConfigError: it is missing.
    """
    return compiling.find_sources("cuda", Path("include/gnnscale_cuda/device.hpp"), "CUDA")


#: Native headers that kernels include; the installed package has these alone.
_NATIVE_HEADERS = ("random.hpp", "weighted_lists.hpp")


def native_headers(root: Path) -> Path:
    """Return the folder of the native headers that kernels include (``gnnscale/random.hpp``)."""
    installed = root / "native"
    return installed if installed.is_dir() else root.parent / "native" / "include"


def native_sources(root: Path) -> list[bytes]:
    """Return the content of these headers, by which compiled kernels are recognised."""
    headers = native_headers(root) / "gnnscale"
    return [(headers / name).read_bytes() for name in _NATIVE_HEADERS]


def kernel_files(root: Path) -> tuple[Path, ...]:
    """Return the files of kernels, each of which is compiled by itself."""
    return tuple(sorted((root / "kernels").glob("*.cu")))


def or_null(tensor: torch.Tensor | None) -> Argument:
    """Return a tensor as an argument of a kernel, a null pointer for None."""
    return NULL if tensor is None else tensor
