"""Which models kernels compute over rows that are padded, and which need a sample's exact sizes."""

from __future__ import annotations

from torch import nn

from gnnscale.model import GNN, TrainableModel
from gnnscale.model.custom import CustomLayer


def needs_sizes(model: TrainableModel) -> str | None:
    """Return why ``model`` cannot compute over rows that are padded with zeros; None if it can.

    Models of the package can, and so can layers of a user's that gather by name.
    """
    if not isinstance(model, GNN):
        return f"{type(model).__name__} computes in its own way"
    if any(isinstance(norm, nn.BatchNorm1d) for norm in model.norms):
        return "statistics of batch normalisation count all rows"
    for index in range(len(model.layers)):
        layer = model.layer(index)
        if isinstance(layer, CustomLayer) and not isinstance(layer.functions.gather, str):
            return f"{type(layer.functions).__name__}.gather sees all messages"
    return None
