"""Modules of a user's own over graphs with types, as PyG's and DGL's documentation has them."""

from typing import Any

import torch
from torch import nn


def purchases() -> Any:
    """Users, and the items that they buy, as PyG's graph; user 0 buys nothing."""
    from torch_geometric.data import HeteroData

    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["user"].x = torch.randn(60, 4, generator=generator)
    data["user"].y = torch.randint(3, (60,), generator=generator)
    data["item"].x = torch.randn(40, 6, generator=generator)
    users = torch.randint(1, 60, (300,), generator=generator)
    ends = torch.stack([users, torch.randint(40, (300,), generator=generator)])
    data["user", "buys", "item"].edge_index = ends
    data["item", "bought_by", "user"].edge_index = ends.flip(0)
    return data


def sage(metadata: Any, hidden: int, num_classes: int, num_layers: int) -> nn.Module:
    """PyG's ``to_hetero``, of lazy layers."""
    from torch_geometric.nn import GraphSAGE, to_hetero

    return to_hetero(GraphSAGE((-1, -1), hidden, num_layers, num_classes), metadata)


class Convs(nn.Module):
    """PyG's ``HeteroConv``; returns the rows of one type."""

    def __init__(
        self,
        metadata: Any,
        hidden_channels: int,
        out_channels: int,
        num_layers: int,
        target: str = "user",
        dropout: float = 0.0,
    ) -> None:
        from torch_geometric.nn import HeteroConv, SAGEConv

        super().__init__()
        self.convs = nn.ModuleList(
            HeteroConv({triple: SAGEConv((-1, -1), hidden_channels) for triple in metadata[1]})
            for _ in range(num_layers)
        )
        self.last, self.target = nn.Linear(hidden_channels, out_channels), target
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> torch.Tensor:
        for conv in self.convs:
            x_dict = {name: x.relu() for name, x in conv(x_dict, edge_index_dict).items()}
        return self.last(self.dropout(x_dict[self.target]))


class DGLConvs(nn.Module):
    """DGL's ``HeteroGraphConv`` over blocks, with the features of each type at first encoded."""

    def __init__(self, in_feats: Any, n_hidden: int, n_classes: int, rel_names: Any) -> None:
        from dgl.nn.pytorch import HeteroGraphConv, SAGEConv

        super().__init__()
        self.encoders = nn.ModuleDict(
            {name: nn.Linear(width, n_hidden) for name, width in in_feats.items()}
        )
        self.layers = nn.ModuleList(
            HeteroGraphConv({name: SAGEConv(n_hidden, width, "mean") for name in rel_names})
            for width in (n_hidden, n_classes)
        )

    def forward(self, blocks: Any, x: Any) -> Any:
        x = {name: self.encoders[name](rows) for name, rows in x.items()}
        x = {name: rows.relu() for name, rows in self.layers[0](blocks[0], x).items()}
        return self.layers[1](blocks[1], x)


class Trimmed(Convs):
    """As PyG's example of hierarchical sampling: a layer computes rows that later ones read."""

    def forward(
        self,
        x_dict: Any,
        edge_index_dict: Any,
        num_sampled_nodes_dict: Any = None,
        num_sampled_edges_dict: Any = None,
    ) -> torch.Tensor:
        from torch_geometric.utils import trim_to_layer

        sizes = num_sampled_nodes_dict, num_sampled_edges_dict
        for layer, conv in enumerate(self.convs):
            if sizes[0] is not None:
                x_dict, edge_index_dict, _ = trim_to_layer(layer, *sizes, x_dict, edge_index_dict)
            x_dict = {name: x.relu() for name, x in conv(x_dict, edge_index_dict).items()}
        return self.last(x_dict[self.target])
