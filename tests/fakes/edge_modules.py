"""GINE with means as a user's module, in every form, over features of edges."""

from itertools import pairwise
from typing import Any

import torch
from torch import nn


class EdgeModule(nn.Module):
    """What the forms have in common."""

    def __init__(self, in_channels, hidden, out_channels, num_layers, edge_dim) -> None:
        super().__init__()
        widths = [in_channels, *[hidden] * (num_layers - 1), out_channels]
        self.edges = nn.ModuleList(nn.Linear(edge_dim, width) for width in widths[:-1])
        self.convs = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def conv(
        self, index: int, x: torch.Tensor, ends: Any, num_dst: int, attr: torch.Tensor
    ) -> torch.Tensor:
        src, dst = ends
        messages = (x[src] + self.edges[index](attr)).relu()
        sums = x.new_zeros(num_dst, x.shape[1]).index_add(0, dst, messages)
        counts = torch.bincount(dst, minlength=num_dst).clamp(min=1)[:, None]
        out = self.convs[index](x[:num_dst] + sums / counts)
        return out if index + 1 == len(self.convs) else out.relu()


class Bipartite(EdgeModule):
    def forward(self, x: torch.Tensor, adjs: list[Any], edge_attr: list[Any]) -> torch.Tensor:
        for index, (edge_index, _, (_, num_dst)) in enumerate(adjs):
            x = self.conv(index, x, edge_index, num_dst, edge_attr[index])
        return x

    def inference_per_layer(
        self, layer: int, x: torch.Tensor, edge_index: Any, batch_size: int, edge_attr: Any
    ) -> torch.Tensor:
        return self.conv(layer, x, edge_index, batch_size, edge_attr)


class Layers(EdgeModule):
    def forward(self, x: torch.Tensor, edge_indices: Any, edge_attrs: Any) -> torch.Tensor:
        for index, edge_index in enumerate(edge_indices):
            x = self.conv(index, x, edge_index, len(x), edge_attrs[index])
        return x

    # As of PyG's models, whose inference has no place for features of edges.
    def inference_per_layer(
        self, layer: int, x: torch.Tensor, edge_index: Any, batch_size: int
    ) -> torch.Tensor:
        raise NotImplementedError


class OneGraph(EdgeModule):
    def forward(
        self, x: torch.Tensor, edge_index: torch.Tensor, edge_attr: torch.Tensor
    ) -> torch.Tensor:
        for index in range(len(self.convs)):
            x = self.conv(index, x, edge_index, len(x), edge_attr)
        return x


class DGLBlocks(EdgeModule):
    def forward(self, blocks: list[Any], x: torch.Tensor) -> torch.Tensor:
        for index, block in enumerate(blocks):
            x = self.inference_per_layer(index, block, x)
        return x

    def inference_per_layer(self, layer: int, block: Any, x: torch.Tensor) -> torch.Tensor:
        return self.conv(layer, x, block.edges(), block.num_dst_nodes(), block.edata["feat"])


class OwnBlocks(EdgeModule):
    def forward(self, batch: Any, x: torch.Tensor) -> torch.Tensor:
        for index, block in enumerate(batch.blocks):
            x = self.inference_per_layer(index, block, x)
        return x

    def inference_per_layer(self, layer: int, block: Any, x: torch.Tensor) -> torch.Tensor:
        dst = torch.repeat_interleave(torch.from_numpy(block.indptr).diff())
        ends = torch.from_numpy(block.indices).long(), dst
        return self.conv(layer, x, ends, block.num_dst, torch.from_numpy(block.edge_attr))


class Ignores(OneGraph):
    """Takes features of edges, and forgets them."""

    def forward(self, x: torch.Tensor, edge_index: Any, edge_attr: Any = None) -> torch.Tensor:
        for linear in self.convs:
            x = linear(x)
        return x


class Forgets(Ignores):
    """Cannot be called without what it forgets."""

    def forward(self, x: torch.Tensor, edge_index: Any, edge_attr: Any) -> torch.Tensor:
        return super().forward(x + 0 * edge_attr.sum().detach(), edge_index)


FORMS = {
    "pyg_bipartite": Bipartite,
    "pyg": Layers,
    "pyg_trimmed": OneGraph,
    "dgl": DGLBlocks,
    "blocks": OwnBlocks,
}
