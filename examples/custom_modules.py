"""GraphSAGE in each form of ``model.form``; ``gnnscale train`` imports it by name.

gnnscale train model=custom model.module=examples/custom_modules.py:Bipartite model.hidden=64
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional


# model.form=pyg_bipartite
class Bipartite(nn.Module):
    """As for PyG's NeighborSampler: a layer computes the rows that the next one reads."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int, dropout: float = 0.5):
        from torch_geometric.nn import SAGEConv

        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(in_channels, hidden), SAGEConv(hidden, out_channels)])
        self.dropout = dropout

    def forward(self, x: torch.Tensor, adjs: list) -> torch.Tensor:
        """Return the logits of the seeds."""
        for layer, (edge_index, _, (_, num_dst)) in enumerate(adjs):
            x = self.inference_per_layer(layer, x, edge_index, num_dst)
            if layer + 1 < len(self.convs):
                x = functional.dropout(x, self.dropout, self.training)
        return x

    def inference_per_layer(
        self, layer: int, x: torch.Tensor, edge_index: torch.Tensor, batch_size: int
    ) -> torch.Tensor:
        """Return what the next layer reads, for exact inference."""
        x = self.convs[layer]((x, x[:batch_size]), edge_index)
        return x.relu() if layer + 1 < len(self.convs) else x


# model.form=pyg
class Layers(Bipartite):
    """With an edge_index for each layer."""

    def forward(self, x: torch.Tensor, edge_indices: list[torch.Tensor]) -> torch.Tensor:
        """Return the logits of the seeds."""
        x = self.convs[0](x, edge_indices[0]).relu()
        x = functional.dropout(x, self.dropout, self.training)
        return self.convs[1](x, edge_indices[1])


# model.form=pyg_trimmed
class OneGraph(Bipartite):
    """As for a whole graph, or for PyG's NeighborLoader."""

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Return the logits of the seeds."""
        x = self.convs[0](x, edge_index).relu()
        x = functional.dropout(x, self.dropout, self.training)
        return self.convs[1](x, edge_index)


# model.form=pyg_hetero
def hetero(metadata: tuple, hidden: int, num_classes: int, num_layers: int) -> nn.Module:
    """For graphs with types: PyG's transformation of lazy layers."""
    from torch_geometric.nn import GraphSAGE, to_hetero

    return to_hetero(GraphSAGE((-1, -1), hidden, num_layers, num_classes), metadata)


# model.form=dgl
class Blocks(nn.Module):
    """Over DGL's blocks."""

    def __init__(self, in_feats: int, n_hidden: int, n_classes: int, dropout: float = 0.5):
        from dgl.nn import SAGEConv

        super().__init__()
        self.layers = nn.ModuleList(
            [SAGEConv(in_feats, n_hidden, "mean"), SAGEConv(n_hidden, n_classes, "mean")]
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, blocks: list, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of the seeds."""
        x = self.dropout(self.inference_per_layer(0, blocks[0], x))
        return self.inference_per_layer(1, blocks[1], x)

    def inference_per_layer(self, layer: int, block, x: torch.Tensor) -> torch.Tensor:
        """Return what the next layer reads, for exact inference."""
        x = self.layers[layer](block, x)
        return x.relu() if layer == 0 else x


# model.form=blocks
class Plain(nn.Module):
    """Over this project's mini-batches, with torch alone."""

    def __init__(self, num_features: int, hidden: int, num_classes: int, num_layers: int):
        super().__init__()
        widths = [num_features, *[hidden] * (num_layers - 1), num_classes]
        self.linears = nn.ModuleList(
            nn.Linear(2 * widths[layer], widths[layer + 1]) for layer in range(num_layers)
        )

    def forward(self, batch, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of the seeds."""
        for layer, block in enumerate(batch.blocks):
            x = self.inference_per_layer(layer, block, x)
        return x

    def inference_per_layer(self, layer: int, block, x: torch.Tensor) -> torch.Tensor:
        """Return what the next layer reads, for exact inference."""
        counts = np.diff(block.indptr)
        targets = torch.from_numpy(np.repeat(np.arange(block.num_dst), counts))
        sources = torch.from_numpy(block.indices).long()
        sums = x.new_zeros(block.num_dst, x.shape[1]).index_add(0, targets, x[sources])
        mean = sums / torch.from_numpy(counts).clamp(min=1)[:, None]
        x = self.linears[layer](torch.cat([x[: block.num_dst], mean], dim=1))
        return x.relu() if layer + 1 < len(self.linears) else x
