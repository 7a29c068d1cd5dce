"""Train an unchanged DGL module over gnnscale's mini-batches.

python examples/dgl_module.py
"""

import dgl
import numpy as np
import torch
from dgl.nn import SAGEConv
from torch import nn
from torch.nn import functional

from gnnscale import DGLModel, NeighborSampler
from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.data import PlantedPartition
from gnnscale.sampling import ShuffledOrder


class SAGE(nn.Module):
    """A user's module, as written for DGL: a block per layer."""

    def __init__(self, num_in: int, hidden: int, num_out: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [SAGEConv(num_in, hidden, "mean"), SAGEConv(hidden, num_out, "mean")]
        )

    def forward(self, blocks: list[dgl.DGLGraph], x: torch.Tensor) -> torch.Tensor:
        """Return the rows of the last block's destinations."""
        h = functional.relu(self.layers[0](blocks[0], x))
        return self.layers[1](blocks[1], h)


def main(num_epochs: int = 5) -> float:
    torch.manual_seed(0)
    graph = PlantedPartition(
        name="example", num_vertices=10_000, num_edges=100_000, num_classes=8
    ).open()
    model = DGLModel(SAGE(graph.num_features, 64, graph.num_classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sampler = NeighborSampler(graph, fanouts=[10, 10], seed=0, num_threads=2)
    loader = FeatureLoader(graph, model, num_threads=2)
    order = ShuffledOrder(graph.train_idx, batch_size=256, seed=0)

    step = 0
    for epoch in range(num_epochs):
        for seeds in (each.seeds for each in order.epoch(epoch)):
            batch = sampler.sample(seeds, step)
            logits = model(batch, loader.load(batch))
            loss = functional.cross_entropy(logits, torch.from_numpy(graph.labels[seeds]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}")

    model.eval()
    with torch.no_grad():
        batch = sampler.sample(graph.test_idx, step)
        predicted = model(batch, loader.load(batch)).argmax(dim=1).numpy()
    accuracy = float(np.mean(predicted == graph.labels[graph.test_idx]))
    print(f"test accuracy {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
