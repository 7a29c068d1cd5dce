"""GCN, GraphSAGE, GAT and GIN over mini-batch blocks."""

from gnnscale.model.gat import GAT
from gnnscale.model.gcn import GCN
from gnnscale.model.gin import GIN
from gnnscale.model.gnn import GNN, Inputs, ModelConfig
from gnnscale.model.sage import GraphSAGE

__all__ = ["GAT", "GCN", "GIN", "GNN", "GraphSAGE", "Inputs", "ModelConfig"]
