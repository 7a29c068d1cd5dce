"""Operations of torch that give the same bits every time, and on every processor with AVX2."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils import deterministic

from gnnscale.ops import supported_simd_level

log = logging.getLogger(__name__)

#: What makes torch, and the libraries of its products, compute with AVX2. Each is read once, by
#: the first operation.
_AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}


def fix_instruction_set() -> None:
    """Let torch compute with AVX2 where the processor has more: AVX-512 sums in another order.

    It must come before torch's first operation, and a line says so where it does not. Kernels of
    gnnscale give the same bits with every instruction set. A processor without AVX2 is left as it
    is, and MKL has other products on Intel's processors than on AMD's.
    """
    if supported_simd_level() == "baseline":
        return
    os.environ.update(_AVX2)
    used = torch.backends.cpu.get_cpu_capability()
    if used != "AVX2":
        log.warning(
            f"runtime.deterministic=true: torch has begun to compute with {used} before; weights "
            "are the same on processors of this kind"
        )


@contextmanager
def repeatable_operations(wanted: bool) -> Iterator[None]:
    """Let torch repeat the bits of what it computes on so many threads, where that is ``wanted``.

    Several threads add up the gradient of an indexing otherwise, in whatever order they come. An
    operation that has no fixed order raises a RuntimeError that says so.
    """
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    fills = deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True)
    # Filling is for programs that read what they have not written, and takes time.
    deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]
