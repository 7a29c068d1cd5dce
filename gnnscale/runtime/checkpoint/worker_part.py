"""What only the worker of one device knows inside an epoch, as a checkpoint keeps it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gnnscale.core.records import Count
from gnnscale.runtime.checkpoint.tensor_file import pack

__all__ = ["WorkerPart"]


@dataclass(frozen=True, kw_only=True)
class WorkerPart:
    """One worker's part of a checkpoint inside an epoch.

    Statistics of normalisations are each device's own until the epoch ends, and so are the counts
    that they are then combined by.

    Attributes:
        buffers: of the model that the device trains, by name.
        rows: rows that each layer wrote in the epoch.
        counters: figures that its kind of device has, of the epoch.
    """

    buffers: dict[str, Tensor]
    rows: dict[Count, Count]
    counters: dict[str, int | float]

    def packed(self) -> bytes:
        """Return it as bytes, for ``unpack``."""
        return pack(vars(self))

    @torch.no_grad()
    def restore_buffers(self, model: nn.Module) -> None:
        """Give ``model`` the buffers that it had.

        Raises:
            ValueError: they are another model's; nothing is changed then.
        """
        own = dict(model.named_buffers())
        if own.keys() != self.buffers.keys():
            raise ValueError("workers: buffers of another model")
        for name, buffer in own.items():
            kept = self.buffers[name]
            if (kept.shape, kept.dtype) != (buffer.shape, buffer.dtype):
                raise ValueError(f"workers: {name} is {list(kept.shape)}")
        for name, buffer in own.items():
            buffer.copy_(self.buffers[name])
