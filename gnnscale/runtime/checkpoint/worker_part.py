"""What only the worker of one device knows inside an epoch, as a checkpoint keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gnnscale.core.errors import shown
from gnnscale.runtime.checkpoint.tensor_file import pack, unpack

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
    rows: dict[int, int]
    counters: dict[str, float]

    def packed(self) -> bytes:
        """Return it as bytes, for ``of`` once they are unpacked."""
        return pack(vars(self))

    @staticmethod
    def unpacked(content: bytes) -> dict[str, Any]:
        """Return the plain values of ``packed``."""
        values: dict[str, Any] = unpack(content)
        return values

    @classmethod
    def of(cls, values: Any) -> WorkerPart:
        """Rebuild a part from its plain values.

        Raises:
            ValueError: they are something else.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"workers: {shown(values)} is no record")
        found = {name: values.get(name) for name in ("buffers", "rows", "counters")}
        if not all(isinstance(each, dict) for each in found.values()):
            raise ValueError("workers: no buffers, rows and counters")
        part = cls(**found)  # type: ignore[arg-type]
        if not all(isinstance(each, Tensor) for each in part.buffers.values()):
            raise ValueError("workers: something else in place of a tensor")
        rows = [*part.rows, *part.rows.values()]
        if not all(type(each) is int and 0 <= each < 2**63 for each in rows):
            raise ValueError("workers: rows are no counts")
        if not all(isinstance(each, str) for each in part.counters) or not all(
            type(each) in (int, float) for each in part.counters.values()
        ):
            raise ValueError("workers: counters are no numbers")
        return part

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
