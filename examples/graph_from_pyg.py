"""Turn a graph of PyG into a store that ``gnnscale train`` trains on.

python examples/graph_from_pyg.py
"""

import sys

import torch
from torch_geometric.data import Data

from gnnscale.data import from_pyg


def make_data(num_vertices: int = 2000, num_edges: int = 20_000) -> Data:
    """Stands for a user's own data: classes, noisy features of them, edges within them."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(num_vertices) % 4
    x = torch.eye(4)[y] + torch.randn(num_vertices, 4, generator=generator)
    src = torch.randint(num_vertices, (num_edges,), generator=generator)
    step = torch.randint(num_vertices // 4, (num_edges,), generator=generator)
    dst = (src + 4 * step) % num_vertices
    order = torch.randperm(num_vertices, generator=generator)
    part = torch.empty_like(order)
    part[order] = torch.arange(num_vertices) * 10 // num_vertices
    return Data(
        x=x,
        y=y,
        edge_index=torch.stack([src, dst]),
        edge_weight=torch.rand(num_edges, generator=generator),
        train_mask=part < 6,
        val_mask=(part >= 6) & (part < 8),
        test_mask=part >= 8,
    )


def main(store: str = "graph_from_pyg") -> None:
    graph = from_pyg(make_data(), name="from-pyg")
    graph.save(store)
    print(f"{graph.num_vertices} vertices, {graph.num_edges} edges with weights")
    print(f"gnnscale train dataset=store dataset.store={store}")


if __name__ == "__main__":
    main(*sys.argv[1:])
