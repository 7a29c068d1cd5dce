"""Graph neural networks over mini-batch blocks. Modules that need torch are imported on use."""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names
from gnnscale.nn.model_config import ModelConfig
from gnnscale.nn.options import APPNP, GAT, GCN, GIN, SGC, CustomModel, GATv2, GraphSAGE
from gnnscale.nn.typed_options import HGT, RGAT, RGCN, RSAGE, TypedModel

if TYPE_CHECKING:
    from gnnscale.nn.base import Inputs, Objective, TrainableModel, objective_on
    from gnnscale.nn.device_block import Rule
    from gnnscale.nn.gnn import GNN, Connections
    from gnnscale.nn.learned_embeddings import LearnedEmbedding
    from gnnscale.nn.link_decoder import EdgeModel, LinkModel
    from gnnscale.nn.scatter_gather import Custom, CustomLayer, ScatterGatherUpdate
    from gnnscale.nn.transform_first import *  # noqa: F403
    from gnnscale.nn.typed.layer import TypedLayer
    from gnnscale.nn.typed.model import TypedGNN

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.nn.base": "Inputs Objective TrainableModel objective_on",
        "gnnscale.nn.device_block": "Rule",
        "gnnscale.nn.gnn": "Connections GNN",
        "gnnscale.nn.learned_embeddings": "LearnedEmbedding",
        "gnnscale.nn.link_decoder": "EdgeModel LinkModel",
        "gnnscale.nn.scatter_gather": "Custom CustomLayer ScatterGatherUpdate",
        "gnnscale.nn.transform_first": "ProjectedLayer TransformFirstLayer transform_first_layer",
        "gnnscale.nn.typed.layer": "TypedLayer",
        "gnnscale.nn.typed.model": "TypedGNN",
    },
)
