"""Train an unchanged PyG module over gnnscale's mini-batches.

python examples/pyg_module.py
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.nn import SAGEConv

from gnnscale import NeighborSampler, PyGModel
from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.data import PlantedPartition
from gnnscale.sampling import ShuffledOrder


class SAGE(nn.Module):
    """A user's module, as written for PyG's NeighborSampler: bipartite layers."""

    def __init__(self, num_in: int, hidden: int, num_out: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(num_in, hidden), SAGEConv(hidden, num_out)])

    def forward(self, x: torch.Tensor, adjs: list) -> torch.Tensor:
        """Return the rows of the last layer's destinations."""
        for index, (edge_index, _, (_, num_dst)) in enumerate(adjs):
            x = self.convs[index]((x, x[:num_dst]), edge_index)
            if index + 1 < len(self.convs):
                x = functional.relu(x)
        return x


def main(num_epochs: int = 5) -> float:
    torch.manual_seed(0)
    graph = PlantedPartition(
        name="example", num_vertices=10_000, num_edges=100_000, num_classes=8
    ).open()
    model = PyGModel(SAGE(graph.num_features, 64, graph.num_classes), bipartite=True)
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
