"""Graph neural networks over mini-batch blocks. Modules that need torch are imported on use."""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names
from gnnscale.nn.model_config import ModelConfig
from gnnscale.nn.options import APPNP, GAT, GCN, GIN, SGC, CustomModel, GATv2, GraphSAGE

if TYPE_CHECKING:
    from gnnscale.nn.base import Inputs, TrainableModel
    from gnnscale.nn.gnn import GNN

__getattr__ = lazy_names(
    __name__, {"gnnscale.nn.gnn": "GNN", "gnnscale.nn.base": "Inputs TrainableModel"}
)
