"""The stack of layers that every architecture shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from gnnscale.feature import FeatureStore
from gnnscale.model.activation import activation
from gnnscale.model.cost import LayerCost
from gnnscale.model.layer import Degrees, GraphLayer
from gnnscale.model.trainable import Inputs, TrainableModel
from gnnscale.sampler import Block, MiniBatch

__all__ = ["GNN", "Inputs", "TrainableModel", "make_norm"]

_NORMS: dict[str, Any] = {"none": nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


class GNN(TrainableModel):
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
    def infers_by_layer(self) -> bool:
        """Every layer can be computed for all vertices before the next one."""
        return True

    @property
    def layer_costs(self) -> tuple[LayerCost, ...]:
        """What each layer states of its cost, inputs first."""
        widths = zip(self.widths, self.widths[1:], strict=False)
        return tuple(self.layer(index).cost(*each) for index, each in enumerate(widths))

    @property
    def uses_degrees(self) -> bool:  # type: ignore[override]
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
