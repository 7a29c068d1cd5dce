"""Repeatable training: equal instructions, operations, and options in all processes."""

import json
import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import deterministic

from gnnscale.core import ConfigError, brief
from gnnscale.core.config.typed import differences
from gnnscale.distributed.process_group import Group
from gnnscale.ops import supported_simd_level

log = logging.getLogger(__name__)

#: Variables that make torch, oneMKL and oneDNN compute with AVX2; each library reads its variable
#: at its first operation.
_AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
#: Options of torch's compiler, and the variable that it reads when it is imported.
_COMPILER, _COMPILER_VARIABLE = "torch._inductor.config", "TORCHINDUCTOR_DETERMINISTIC"


def fix_instruction_set() -> None:
    """Limit torch to AVX2 on processors with AVX-512, which sums in another order.

    Call it before torch's first operation; otherwise a warning is logged. Kernels of gnnscale give
    the same bits with every instruction set. A processor without AVX2 keeps its instruction set,
    and oneMKL multiplies differently on Intel and AMD processors.
    """
    if supported_simd_level() == "baseline":
        return
    os.environ.update(_AVX2)
    capability = torch.backends.cpu.get_cpu_capability()
    if capability != "AVX2":
        log.warning(
            f"runtime.deterministic=true: torch already computes with {capability}; weights repeat "
            f"only on processors with {capability}"
        )


@contextmanager
def repeatable_operations(enabled: bool) -> Iterator[None]:
    """Make torch's operations deterministic within the ``with`` block if ``enabled``.

    Without it, threads add up the gradient of an indexing operation in any order. An operation
    without a deterministic implementation raises RuntimeError.
    """
    if not enabled:
        yield
        return
    # cuBLAS reads it once; without it torch refuses deterministic matrix products.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # torch.use_deterministic_algorithms would import torch's compiler, which takes a second.
    previous = torch.get_deterministic_debug_mode()
    previous_fill = deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.set_deterministic_debug_mode("error")
    # Filling uninitialized memory costs time and helps only programs that read it.
    deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        with _deterministic_compiler():
            yield
    finally:
        torch.set_deterministic_debug_mode(previous)
        deterministic.fill_uninitialized_memory = previous_fill  # type: ignore[attr-defined]


@contextmanager
def _deterministic_compiler() -> Iterator[None]:
    """Make ``torch.compile`` deterministic within the ``with`` block, without its import."""
    imported: Any = sys.modules.get(_COMPILER)
    variable = os.environ.get(_COMPILER_VARIABLE)
    previous = variable == "1" if imported is None else imported.deterministic
    os.environ[_COMPILER_VARIABLE] = "1"
    if imported is not None:
        imported.deterministic = True
    try:
        yield
    finally:
        del os.environ[_COMPILER_VARIABLE]
        if variable is not None:
            os.environ[_COMPILER_VARIABLE] = variable
        imported = sys.modules.get(_COMPILER)
        if imported is not None:
            imported.deterministic = previous


def check_equal_values(
    group: Group, values: Mapping[str, Any], *, ignore: Sequence[str] = ()
) -> None:
    """Raise ConfigError in all processes if the ``values`` of any process differ from rank 0's.

    ``values`` are plain, by name, possibly nested; ``ignore`` has dotted names that may differ.
    """
    if group.size == 1:
        return
    messages = group.gather(json.dumps([socket.gethostname(), values], default=str).encode())
    problem = None
    if group.is_rank0:
        (host0, values0), *peers = map(json.loads, messages)
        for rank, (host, peer_values) in enumerate(peers, 1):
            for name, value, value0 in differences(peer_values, values0, ignore=ignore)[:1]:
                problem = problem or (
                    f"{name}={brief(value)} in process {rank} on {brief(host)}: expected "
                    f"{brief(value0)} as in process 0 on {brief(host0)}; start all processes of "
                    "torchrun with the same values"
                )
    problem = group.broadcast_object(problem)
    if problem is not None:
        raise ConfigError(problem)
