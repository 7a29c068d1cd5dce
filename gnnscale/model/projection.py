"""Layers whose product is taken before their aggregation, where rows are narrower after it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from gnnscale.feature import Aggregation
from gnnscale.model.cost import LayerCost
from gnnscale.model.layer import Degrees, GraphLayer, LinearAggregationLayer
from gnnscale.sampler import Block

__all__ = ["ProjectedLayer"]

#: Projected rows are filled up to a multiple of so many columns: products and sums of vectors'
#: widths are the fastest.
_COLUMNS = 16


class ProjectedLayer(LinearAggregationLayer):
    """A layer without its product, for rows that were multiplied before they are aggregated.

    The aggregation and the product are linear, so that their order does not matter:
    ``W sum_u c_u h_u = sum_u c_u (W h_u)``. Where a vertex's own row is concatenated, the product
    with ``W = W_own ‖ W_neighbours`` falls apart: ``W_own h_v + sum_u c_u (W_neighbours h_u)``.
    Weights are read at each call.

    Attributes:
        width: columns of a row that is aggregated, the layer's outputs filled up with zeros.
        num_parts: 2 where a vertex has a row of its own beside the one that is aggregated.
    """

    def __init__(self, layer: LinearAggregationLayer, width_in: int) -> None:
        """Take the product of ``layer`` apart.

        Args:
            layer: with ``splits_columns``.
            width_in: features of a row before the product.
        """
        super().__init__()
        linear = layer.linear
        assert isinstance(linear, nn.Linear)
        # In a tuple: a module that is an attribute would be a part of this one.
        self._whole = (layer, linear)
        self.uses_degrees = layer.uses_degrees
        self.num_parts = linear.in_features // width_in
        self.width = -(-linear.out_features // _COLUMNS) * _COLUMNS

    @classmethod
    def of(cls, layer: GraphLayer, width_in: int) -> ProjectedLayer | None:
        """Return ``layer`` so, or None where it cannot be, or rows would be no narrower."""
        if not (layer.splits_columns and isinstance(layer, LinearAggregationLayer)):
            return None
        projected = cls(layer, width_in)
        return projected if projected.num_parts * projected.width < width_in else None

    @torch.no_grad()
    def project(self, h: torch.Tensor) -> torch.Tensor:
        """Multiply rows ``h`` ``[n, width_in]``.

        Returns:
            ``[n, num_parts * width]``: rows to be aggregated, and beside them the vertices' own.
        """
        _, linear = self._whole
        width_out, width_in = linear.out_features, h.shape[1]
        weights = linear.weight.new_zeros(self.num_parts, self.width, width_in)
        # The layer's columns begin with those of a vertex's own row.
        for part in range(self.num_parts):
            begin = (self.num_parts - 1 - part) * width_in
            weights[part, :width_out] = linear.weight[:, begin : begin + width_in]
        return nn.functional.linear(h, weights.flatten(0, 1))

    def aggregation(self, block: Block, degrees: Degrees) -> Aggregation:
        """Return the whole layer's coefficients; a vertex's own row is added in any case."""
        return replace(self._whole[0].aggregation(block, degrees), self_term="add")

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Add the bias."""
        _, linear = self._whole
        return x[:, : linear.out_features] + linear.bias

    def cost(self, width_in: int, width_out: int) -> LayerCost:
        """Return the whole layer's."""
        return self._whole[0].cost(width_in, width_out)
