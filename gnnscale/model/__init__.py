"""Graph neural networks over mini-batch blocks. What needs torch is imported when used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names
from gnnscale.model.options import (
    APPNP,
    GAT,
    GCN,
    GIN,
    SGC,
    CustomModel,
    GATv2,
    GraphSAGE,
    ModelConfig,
)

if TYPE_CHECKING:
    from gnnscale.model.gnn import GNN
    from gnnscale.model.trainable import Inputs, TrainableModel

__getattr__ = lazy_names(
    __name__, {"gnnscale.model.gnn": "GNN", "gnnscale.model.trainable": "Inputs TrainableModel"}
)
