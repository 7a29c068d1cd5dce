"""GCN, GraphSAGE, GAT and GIN over mini-batch blocks. What needs torch is imported when used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnnscale.model.options import GAT, GCN, GIN, CustomModel, GraphSAGE, ModelConfig

if TYPE_CHECKING:
    from gnnscale.model.gnn import GNN
    from gnnscale.model.trainable import Inputs, TrainableModel


def __getattr__(name: str) -> Any:
    if name not in ("GNN", "Inputs", "TrainableModel"):
        raise AttributeError(f"module 'gnnscale.model' has no attribute {name!r}")
    from gnnscale.model import gnn, trainable

    value = gnn.GNN if name == "GNN" else getattr(trainable, name)
    globals()[name] = value
    return value
