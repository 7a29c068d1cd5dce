"""P3's exchange: every device aggregates its columns for the mini-batches of all devices."""

from __future__ import annotations

from dataclasses import replace

import torch

from gnnscale.backend.loading import FeatureLoader
from gnnscale.model import Inputs
from gnnscale.runtime.sync.group import Group
from gnnscale.runtime.sync.p3.blocks import InputBlock, pack, unpack
from gnnscale.runtime.sync.p3.split_model import PARTIAL_BYTES, SplitGNN
from gnnscale.sampler import MiniBatch
from gnnscale.stages import Access, Traffic

__all__ = ["ColumnExchange"]


class ColumnExchange:
    """Devices learn each other's input blocks, ahead of propagation (P3, section 3.2).

    What is aggregated depends on no weights. So blocks are traded, and columns read and aggregated,
    while earlier mini-batches are still being trained; only the products with the weights wait for
    those (see ``split_model``).
    """

    def __init__(self, group: Group, model: SplitGNN, loader: FeatureLoader) -> None:
        """Trade over ``group``.

        Args:
            group: all workers, over connections of its own.
            model: whose first layer is split.
            loader: reads this device's columns.
        """
        self._group = group
        self._model = model
        self._loader = loader

    def trade(self, batch: MiniBatch, inputs: Inputs) -> Inputs:
        """Return the rows of all devices' mini-batches over this device's columns.

        Args:
            batch: the device's mini-batch.
            inputs: what it has loaded: its own rows over its columns.
        """
        size, rank = self._group.size, self._group.rank
        mine = pack(batch)
        packed = self._group.trade([mine] * size)
        parts, received = [inputs.x] * size, 0
        traffic = inputs.traffic
        for peer in (each for each in range(size) if each != rank):
            found = unpack(packed[peer], batch.input_vertices.dtype)
            parts[peer], read = self._load(found)
            traffic += read
            received += packed[peer].nbytes
        traffic += Traffic(
            rows=Access(peer_bytes=self._partial_bytes(parts)), lists=Access(peer_bytes=received)
        )
        return replace(inputs, parts=tuple(parts), traffic=traffic)

    def _load(self, found: InputBlock) -> tuple[torch.Tensor, Traffic]:
        """Aggregate this device's columns for another device's mini-batch."""
        loader = self._loader
        return self._model.layer(0).load(
            loader.store,
            found.vertices,
            found.block,
            loader.degrees_of(found.vertices, found.block),
            dtype=loader.dtype,
            num_threads=loader.num_threads,
        )

    def _partial_bytes(self, parts: list[torch.Tensor]) -> int:
        """Bytes that this device will receive for these mini-batches.

        Every other device sends it a partial product of its own rows, and the gradients of that
        device's.
        """
        mine = len(parts[self._group.rank])
        others = sum(map(len, parts)) - mine
        rows = (self._group.size - 1) * mine + others
        return rows * self._model.widths[1] * PARTIAL_BYTES
