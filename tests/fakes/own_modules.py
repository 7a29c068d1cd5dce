"""GraphSAGE as a user's module, in every form, with the weights that ``model=sage`` begins with."""

from typing import Any

import torch
from torch import nn

from gnnscale.nn import GraphSAGE


def begun(in_channels: int, hidden: int, out_channels: int, num_layers: int) -> list[nn.Linear]:
    """The products of the built-in model, drawn as it draws them."""
    config = GraphSAGE(hidden=hidden, num_layers=num_layers, dropout=0.0)
    model = config.build(num_features=in_channels, num_classes=out_channels)
    return [model.layer(index).linear for index in range(num_layers)]


class OwnSAGE(nn.Module):
    """What the forms have in common."""

    def __init__(self, in_channels, hidden, out_channels, num_layers, dropout=0.0) -> None:
        super().__init__()
        linears = begun(in_channels, hidden, out_channels, num_layers)
        self.convs = nn.ModuleList(self.conv(each) for each in linears)
        self.dropout = dropout

    def conv(self, linear: nn.Linear) -> nn.Module:
        raise NotImplementedError

    def between(self, index: int, x: torch.Tensor) -> torch.Tensor:
        if index + 1 == len(self.convs):
            return x
        return nn.functional.dropout(x.relu(), self.dropout, self.training)


class PyGBipartite(OwnSAGE):
    def conv(self, linear: nn.Linear) -> nn.Module:
        from torch_geometric.nn import SAGEConv

        width = linear.in_features // 2
        conv = SAGEConv(width, linear.out_features)
        with torch.no_grad():
            conv.lin_r.weight.copy_(linear.weight[:, :width])
            conv.lin_l.weight.copy_(linear.weight[:, width:])
            conv.lin_l.bias.copy_(linear.bias)
        return conv

    def forward(self, x: torch.Tensor, adjs: list[Any]) -> torch.Tensor:
        for index, (edge_index, _, (_, num_dst)) in enumerate(adjs):
            x = self.between(index, self.convs[index]((x, x[:num_dst]), edge_index))
        return x

    def inference_per_layer(
        self, layer: int, x: torch.Tensor, edge_index: torch.Tensor, batch_size: int
    ) -> torch.Tensor:
        return self.between(layer, self.convs[layer]((x, x[:batch_size]), edge_index))


class PyGLayers(PyGBipartite):
    def forward(self, x: torch.Tensor, edge_indices: list[torch.Tensor]) -> torch.Tensor:
        for index, edge_index in enumerate(edge_indices):
            x = self.between(index, self.convs[index](x, edge_index))
        return x


class PyGOneGraph(PyGBipartite):
    """As written for a whole graph, or for PyG's NeighborLoader."""

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        for index, conv in enumerate(self.convs):
            x = self.between(index, conv(x, edge_index))
        return x


class DGLBlocks(OwnSAGE):
    def conv(self, linear: nn.Linear) -> nn.Module:
        from dgl.nn import SAGEConv

        width = linear.in_features // 2
        conv = SAGEConv(width, linear.out_features, "mean")
        with torch.no_grad():
            conv.fc_self.weight.copy_(linear.weight[:, :width])
            conv.fc_self.bias.copy_(linear.bias)
            conv.fc_neigh.weight.copy_(linear.weight[:, width:])
        return conv

    def forward(self, blocks: list[Any], x: torch.Tensor) -> torch.Tensor:
        for index, block in enumerate(blocks):
            x = self.between(index, self.convs[index](block, x))
        return x

    def inference_per_layer(self, layer: int, block: Any, x: torch.Tensor) -> torch.Tensor:
        return self.between(layer, self.convs[layer](block, x))


class OwnBlocks(OwnSAGE):
    def conv(self, linear: nn.Linear) -> nn.Module:
        return linear

    def forward(self, batch: Any, x: torch.Tensor) -> torch.Tensor:
        for index, block in enumerate(batch.blocks):
            x = self.inference_per_layer(index, block, x)
        return x

    def inference_per_layer(self, layer: int, block: Any, x: torch.Tensor) -> torch.Tensor:
        # Arrays of the host, or tensors of the device that trains.
        counts = torch.as_tensor(block.indptr).diff()
        dst = torch.repeat_interleave(counts)
        src = torch.as_tensor(block.indices).long()
        sums = x.new_zeros(block.num_dst, x.shape[1]).index_add(0, dst, x[src])
        mean = sums / counts.clamp(min=1)[:, None]
        rows = torch.cat([x[: block.num_dst], mean], dim=1)
        return self.between(layer, self.convs[layer](rows))


class WithoutInference(OwnBlocks):
    inference_per_layer = None

    def forward(self, batch: Any, x: torch.Tensor) -> torch.Tensor:
        for index, block in enumerate(batch.blocks):
            x = OwnBlocks.inference_per_layer(self, index, block, x)
        return x


ALL = (PyGBipartite, PyGLayers, PyGOneGraph, DGLBlocks, OwnBlocks)
