"""Turn a graph of DGL into a store that ``gnnscale train`` trains on.

python examples/graph_from_dgl.py
"""

import sys

import dgl
import torch

from gnnscale.data import from_dgl


def make_graph(num_vertices: int = 2000, num_edges: int = 20_000) -> dgl.DGLGraph:
    """Stands for a user's own graph: classes, noisy features of them, edges within them."""
    generator = torch.Generator().manual_seed(0)
    label = torch.arange(num_vertices) % 4
    src = torch.randint(num_vertices, (num_edges,), generator=generator)
    step = torch.randint(num_vertices // 4, (num_edges,), generator=generator)
    graph = dgl.graph((src, (src + 4 * step) % num_vertices), num_nodes=num_vertices)
    graph.ndata["feat"] = torch.eye(4)[label] + torch.randn(num_vertices, 4, generator=generator)
    graph.ndata["label"] = label
    graph.edata["w"] = torch.rand(num_edges, generator=generator)
    part = torch.rand(num_vertices, generator=generator)
    graph.ndata["train_mask"] = part < 0.6
    graph.ndata["val_mask"] = (part >= 0.6) & (part < 0.8)
    graph.ndata["test_mask"] = part >= 0.8
    return graph


def main(store: str = "graph_from_dgl") -> None:
    graph = from_dgl(make_graph(), edge_weight="w", name="from-dgl")
    graph.save(store)
    print(f"{graph.num_vertices} vertices, {graph.num_edges} edges with weights")
    print(f"gnnscale train dataset=store dataset.store={store}")


if __name__ == "__main__":
    main(*sys.argv[1:])
