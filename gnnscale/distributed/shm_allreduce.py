"""All-reduce between the processes of one machine, in shared memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnscale.core import Int64Array, SharedMemory, UInt8Array, has_ended, own_process
from gnnscale.ops import SharedSum

if TYPE_CHECKING:
    import torch

#: Numbers that identify a process: its id and start time.
_IDENTITY_NUMBERS = 2


class SharedSums:
    """All-reduce sum in shared memory; values are added in rank order, bitwise equal everywhere.

    The memory is anonymous: the system frees it with the last process that maps it.
    """

    def __init__(self, memory: SharedMemory, rank: int, size: int) -> None:
        """Join as ``rank``; ``memory``, shared by all processes, is zeros before the first joins.

        All ``size`` processes join before any sum.
        """
        self._rank = rank
        num_bytes = SharedSum.num_bytes(size)
        area: UInt8Array = memory.array((self.num_bytes(size),), np.dtype(np.uint8))
        self._sum = SharedSum(area[:num_bytes], rank=rank, size=size)
        self._processes: Int64Array = (
            area[num_bytes:].view(np.int64).reshape(size, _IDENTITY_NUMBERS)
        )
        self._processes[rank] = own_process()

    @classmethod
    def num_bytes(cls, size: int) -> int:
        """Return the bytes of shared memory for ``size`` processes."""
        return SharedSum.num_bytes(size) + size * _IDENTITY_NUMBERS * 8

    @classmethod
    def open(
        cls, rank: int, size: int, *, broadcast: Callable[[Any], Any], agree: Callable[[bool], bool]
    ) -> SharedSums | None:
        """Return this process's ``SharedSums``, over memory that rank 0 creates; a collective call.

        ``broadcast`` returns the plain value that rank 0 passes, ``agree`` whether all processes
        pass True. All get None if one may not map the memory.
        """
        memory = SharedMemory.empty(cls.num_bytes(size)) if rank == 0 else None
        path = broadcast(None if memory is None else str(memory.path))
        try:
            sums = cls(memory or SharedMemory.open(Path(path)), rank, size)
        except OSError:
            sums = None
        # agree also keeps rank 0's descriptor open until every process has opened it.
        return sums if agree(sums is not None) else None

    @classmethod
    def can_sum(cls, values: torch.Tensor) -> bool:
        """Whether ``values`` are contiguous float32, float64 or int64 in host memory."""
        return (
            values.device.type == "cpu"
            and values.is_contiguous()
            and str(values.dtype) in ("torch.float32", "torch.float64", "torch.int64")
        )

    def sum(self, values: torch.Tensor) -> None:
        """Replace ``values`` by their sum over all processes.

        RuntimeError: another process has ended or left, or passes another number or type of values.
        """
        self._sum.add(values.detach().view(-1).numpy(), self._check_processes)

    def leave(self) -> None:
        """Make current and future sums fail, also in other processes and threads."""
        self._sum.leave()

    def _check_processes(self) -> None:
        """Raise RuntimeError if another process has ended."""
        for rank, (number, start) in enumerate(self._processes.tolist()):
            if rank != self._rank and has_ended(number, start):
                raise RuntimeError(f"process {number} of rank {rank} has ended")
