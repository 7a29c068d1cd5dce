"""The stack of layers that every architecture shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gnnscale.feature import FeatureStore
from gnnscale.model.activation import activation
from gnnscale.model.layer import Degrees, GraphLayer
from gnnscale.sampler import Block, MiniBatch
from gnnscale.stages import Traffic

__all__ = ["GNN", "Inputs", "make_norm"]

_NORMS: dict[str, Any] = {"none": nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the loader hands to the model for one mini-batch.

    Attributes:
        x: the input rows ``[num_input_vertices, f]``, or the first layer's ``load`` result.
        aggregated: whether ``x`` is that result, so that only rows of destinations are left.
        degrees: ``[num_input_vertices]`` float32 in-degrees in the whole graph, where needed.
        traffic: what reading ``x`` moved.
        parts: the first layer's ``load`` results of every device's mini-batch, ``x`` among them,
            over this device's columns of the features; None unless the layer is split (P3).
    """

    x: torch.Tensor
    aggregated: bool
    degrees: NDArray[np.float32] | None = None
    traffic: Traffic = field(default_factory=Traffic)
    parts: tuple[torch.Tensor, ...] | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of all rows."""
        return sum(rows.nbytes for rows in self.parts or (self.x,))


class GNN(nn.Module):
    """Layers with ReLU, dropout and optional normalisation in between."""

    def __init__(
        self,
        layers: Sequence[GraphLayer],
        norms: Sequence[nn.Module],
        dropout: float,
        widths: Sequence[int],
    ) -> None:
        """Stack ``layers``; ``norms`` has one module fewer, ``widths`` one entry more."""
        super().__init__()
        #: f^0 .. f^L, features of each layer's rows, inputs first.
        self.widths = tuple(widths)
        self.layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(norms)
        self.dropout = dropout

    def layer(self, index: int) -> GraphLayer:
        """Return layer ``index``, inputs first."""
        layer = self.layers[index]
        assert isinstance(layer, GraphLayer)
        return layer

    @property
    def shared_parameters(self) -> list[nn.Parameter]:
        """The parameters of which every device has all, in the order of ``parameters``."""
        return list(self.parameters())

    @property
    def uses_degrees(self) -> bool:
        """Whether ``Inputs.degrees`` is needed for batches of a neighbour sampler."""
        return any(self.layer(index).uses_degrees for index in range(len(self.layers)))

    def load(
        self,
        store: FeatureStore,
        batch: MiniBatch,
        degrees: Degrees,
        *,
        aggregates: bool,
        dtype: torch.dtype,
        num_threads: int,
    ) -> Inputs:
        """Read the first layer's input from ``store``.

        Args:
            store: the features of the graph.
            batch: the mini-batch.
            degrees: ``[num_input_vertices]`` float32 in-degrees, where the model uses them.
            aggregates: whether to aggregate while reading, where the first layer allows it. The
                values are the same.
            dtype: float32 or bfloat16.
            num_threads: threads to use.
        """
        layer, vertices = self.layer(0), batch.input_vertices
        aggregated = aggregates and layer.aggregates_on_load
        if aggregated:
            x, traffic = layer.load(
                store, vertices, batch.blocks[0], degrees, dtype=dtype, num_threads=num_threads
            )
        else:
            x, traffic = store.gather(vertices, dtype=dtype, num_threads=num_threads)
        return Inputs(x=x, aggregated=aggregated, degrees=degrees, traffic=traffic)

    def forward(self, batch: MiniBatch, inputs: Inputs) -> torch.Tensor:
        """Return the seeds' logits ``[num_seeds, num_classes]`` float32."""
        h = self.first(batch.blocks[0], inputs)
        for index in range(1, len(self.layers)):
            h = self.normalise(index - 1, h)
            act = activation(self.dropout if self.training else 0.0, batch, index - 1)
            layer, block = self.layer(index), batch.blocks[index]
            x = layer.prepare(h, block, inputs.degrees, act)
            h = layer.update(x, block, inputs.degrees)
        return h.float()

    def first(self, block: Block, inputs: Inputs) -> torch.Tensor:
        """Return the first layer's output rows ``[num_dst, f^1]``."""
        layer, x = self.layer(0), inputs.x
        if not inputs.aggregated:
            x = layer.prepare(x, block, inputs.degrees, None)
        return layer.update(x, block, inputs.degrees)

    def take_waited_s(self) -> float:
        """Return the seconds since the last call in which propagation waited for other devices.

        A model that is all here never does.
        """
        return 0.0

    def normalise(self, index: int, h: torch.Tensor) -> torch.Tensor:
        """Apply the normalisation between layers ``index`` and ``index + 1``."""
        norm = self.norms[index]
        # A slice without seeds has no rows, of which there are no statistics.
        unchanged = isinstance(norm, nn.Identity) or not len(h)
        out: torch.Tensor = h if unchanged else norm(h.float()).to(h.dtype)
        return out

    def infer(
        self, index: int, x: torch.Tensor, block: Block, layer: GraphLayer | None = None
    ) -> torch.Tensor:
        """Return what layer ``index + 1``, or the user, sees of layer ``index`` on loaded ``x``.

        Args:
            index: of the layer.
            x: what its ``load`` returned.
            block: all neighbours of its destinations.
            layer: that ``x`` was loaded for, in place of layer ``index`` and with its output.
        """
        h = (layer or self.layer(index)).update(x, block)
        return h if index + 1 == len(self.layers) else self.normalise(index, h).relu()


def make_norm(kind: str, width: int) -> nn.Module:
    """Build the normalisation ``kind``, one of ``NORMS``, of ``width`` features."""
    norm: nn.Module = _NORMS[kind](width)
    return norm
