"""A PyG training loop with nothing but its loader replaced.

python examples/pyg_loop.py
"""

import numpy as np
import torch
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

from gnnscale import NeighborLoader  # instead of: from torch_geometric.loader import NeighborLoader
from gnnscale.data import PlantedPartition


def load_data() -> Data:
    """Stands for the reader of a user's own data."""
    graph = PlantedPartition(
        name="example", num_vertices=10_000, num_edges=100_000, num_classes=8
    ).open()
    vertices = np.arange(graph.num_vertices)
    dst = np.repeat(vertices, np.diff(graph.indptr))
    return Data(
        x=torch.tensor(graph.features),
        y=torch.tensor(graph.labels),
        edge_index=torch.from_numpy(np.stack([graph.indices, dst]).astype(np.int64)),
        train_mask=torch.from_numpy(np.isin(vertices, graph.train_idx)),
        test_mask=torch.from_numpy(np.isin(vertices, graph.test_idx)),
    )


def main(num_epochs: int = 5) -> float:
    torch.manual_seed(0)
    data = load_data()
    loaders = {
        mask: NeighborLoader(
            data,
            num_neighbors=[10, 10],
            input_nodes=data[mask],
            batch_size=256,
            shuffle=mask == "train_mask",
        )
        for mask in ("train_mask", "test_mask")
    }
    model = GraphSAGE(data.num_features, 64, num_layers=2, out_channels=int(data.y.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def predict(batch: Data) -> torch.Tensor:
        out = model(
            batch.x,
            batch.edge_index,
            num_sampled_nodes_per_hop=batch.num_sampled_nodes,
            num_sampled_edges_per_hop=batch.num_sampled_edges,
        )
        return out[: batch.batch_size]

    for epoch in range(num_epochs):
        model.train()
        for batch in loaders["train_mask"]:
            loss = functional.cross_entropy(predict(batch), batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}")

    model.eval()
    correct = 0
    with torch.no_grad():
        for batch in loaders["test_mask"]:
            predicted = predict(batch).argmax(dim=1)
            correct += int((predicted == batch.y[: batch.batch_size]).sum())
    accuracy = correct / int(data.test_mask.sum())
    print(f"test accuracy {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
