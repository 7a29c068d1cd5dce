"""Sums over the processes of one machine, through memory that they share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnscale.core.process import has_ended, own_process
from gnnscale.core.shared_memory import SharedMemory
from gnnscale.core.types import Int64Array, UInt8Array
from gnnscale.ops import SharedSum

if TYPE_CHECKING:
    import torch

#: Numbers by which the others recognise a process: its id, and when it started.
_OF_PROCESS = 2


class SharedSums:
    """This process's part in the sums of several: the same bits in each, added in rank order.

    The memory has no name, and is freed with the last process that maps it, however that ends.
    """

    def __init__(self, memory: SharedMemory, rank: int, size: int) -> None:
        """Take part as ``rank`` of ``size``; the others do so before the first sum.

        Args:
            memory: ``num_bytes(size)`` bytes, which every process maps; zeros at first.
        """
        self._rank = rank
        num_bytes = SharedSum.num_bytes(size)
        area: UInt8Array = memory.array((self.num_bytes(size),), np.dtype(np.uint8))
        self._sum = SharedSum(area[:num_bytes], rank=rank, size=size)
        self._processes: Int64Array = area[num_bytes:].view(np.int64).reshape(size, _OF_PROCESS)
        self._processes[rank] = own_process()

    @classmethod
    def num_bytes(cls, size: int) -> int:
        """Return the bytes of shared memory of ``size`` processes."""
        return SharedSum.num_bytes(size) + size * _OF_PROCESS * 8

    @classmethod
    def open(
        cls,
        rank: int,
        size: int,
        *,
        broadcast: Callable[[Any], Any],
        agree: Callable[[bool], bool],
    ) -> SharedSums | None:
        """Let the processes of one machine share memory; each calls this.

        Args:
            broadcast: returns the plain value that rank 0 passes.
            agree: returns whether all processes pass True, once all have called it.

        Returns:
            None in every process if one of them may not map the memory of rank 0.
        """
        memory = SharedMemory.empty(cls.num_bytes(size)) if rank == 0 else None
        path = broadcast(None if memory is None else str(memory.path))
        try:
            sums = cls(memory or SharedMemory.open(Path(path)), rank, size)
        except OSError:
            sums = None
        # Rank 0 keeps its descriptor, which the others open, until then.
        return sums if agree(sums is not None) else None

    @classmethod
    def can_sum(cls, values: torch.Tensor) -> bool:
        """Whether they are of a type that is summed, in host memory, without gaps."""
        return (
            values.device.type == "cpu"
            and values.is_contiguous()
            and str(values.dtype) in ("torch.float32", "torch.float64", "torch.int64")
        )

    def sum(self, values: torch.Tensor) -> None:
        """Replace ``values`` by their sum over all processes.

        Raises:
            RuntimeError: another process has ended or left, or passes another number or type of
                values.
        """
        self._sum.add(values.detach().view(-1).numpy(), self._look)

    def leave(self) -> None:
        """Let all sums fail from now on, which others wait for, or another thread."""
        self._sum.leave()

    def _look(self) -> None:
        """Raise an error if a process that may be waited for has ended."""
        for rank, (number, start) in enumerate(self._processes.tolist()):
            if rank != self._rank and has_ended(number, start):
                raise RuntimeError(f"process {number} of rank {rank} has ended")
