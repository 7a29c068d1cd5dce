"""The stack of layers that every architecture shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gnnscale import ops
from gnnscale.model.activation import activation
from gnnscale.model.layer import Degrees, GraphLayer
from gnnscale.sampler import Block, MiniBatch

__all__ = ["GNN", "Inputs", "make_norm"]

_NORMS: dict[str, Any] = {"none": nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the loader hands to the model for one mini-batch.

    Attributes:
        x: the first layer's ``load`` result, or the input rows ``[num_input_vertices, f]``.
        aggregated: whether ``x`` is that result.
        degrees: ``[num_input_vertices]`` float32 in-degrees in the whole graph, where needed.
    """

    x: torch.Tensor
    aggregated: bool
    degrees: NDArray[np.float32] | None = None


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
    def uses_degrees(self) -> bool:
        """Whether ``Inputs.degrees`` is needed for batches of a neighbour sampler."""
        return any(self.layer(index).uses_degrees for index in range(len(self.layers)))

    def load(
        self,
        features: ops.Rows,
        batch: MiniBatch,
        degrees: Degrees,
        *,
        fused: bool,
        dtype: torch.dtype,
        num_threads: int,
    ) -> Inputs:
        """Read the first layer's input from feature storage, aggregated on the way if ``fused``."""
        layer, block = self.layer(0), batch.blocks[0]
        if fused:
            x = layer.load(
                features, batch.input_vertices, block, degrees, dtype=dtype, num_threads=num_threads
            )
        else:
            width = (features if isinstance(features, torch.Tensor) else features[0]).shape[1]
            x = ops.empty((len(batch.input_vertices), width), dtype)
            ops.gather(features, batch.input_vertices, out=x, num_threads=num_threads)
        return Inputs(x=x, aggregated=fused, degrees=degrees)

    def forward(self, batch: MiniBatch, inputs: Inputs) -> torch.Tensor:
        """Return the seeds' logits ``[num_seeds, num_classes]`` float32."""
        h = inputs.x
        act = None
        for index, block in enumerate(batch.blocks):
            layer = self.layer(index)
            if index > 0 or not inputs.aggregated:
                h = layer.prepare(h, block, inputs.degrees, act)
            h = layer.update(h, block)
            if index + 1 < len(self.layers):
                h = self.normalise(index, h)
                act = activation(self.dropout if self.training else 0.0, batch, index)
        return h.float()

    def normalise(self, index: int, h: torch.Tensor) -> torch.Tensor:
        """Apply the normalisation between layers ``index`` and ``index + 1``."""
        norm = self.norms[index]
        out: torch.Tensor = h if isinstance(norm, nn.Identity) else norm(h.float()).to(h.dtype)
        return out

    def infer(self, index: int, x: torch.Tensor, block: Block) -> torch.Tensor:
        """Return what layer ``index + 1``, or the user, sees of layer ``index`` on loaded ``x``."""
        h = self.layer(index).update(x, block)
        return h if index + 1 == len(self.layers) else self.normalise(index, h).relu_()


def make_norm(kind: str, width: int) -> nn.Module:
    """Build the normalisation ``kind``, one of ``NORMS``, of ``width`` features."""
    norm: nn.Module = _NORMS[kind](width)
    return norm
