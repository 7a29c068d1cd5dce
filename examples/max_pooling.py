"""Train a layer of one's own, GraphSAGE with max pooling, on two processors.

python examples/max_pooling.py
"""

import tempfile

import torch
from torch import nn

from gnnscale import api


class MaxPooling(api.Layer):
    """A vertex gathers the largest of what its neighbors make of themselves."""

    gather = "max"

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        self.pool = nn.Linear(num_in, num_in)
        self.linear = nn.Linear(2 * num_in, num_out)

    def scatter(self, source: torch.Tensor) -> torch.Tensor:
        """Return the messages along edges, from the rows of their sources."""
        return self.pool(source).relu()

    def update(self, own: torch.Tensor, gathered: torch.Tensor) -> torch.Tensor:
        """Return the new rows."""
        return self.linear(torch.cat([own, gathered], dim=1))


def main(num_epochs: int = 8) -> float:
    computation = api.gnn_computation("customize", MaxPooling)
    model = api.gnn_model(computation, api.gnn_parameters(L=2, hidden=64, dropout=0.2))
    graph = api.load_input_graph(
        "planted_partition", num_vertices=10_000, num_edges=100_000, num_classes=8
    )
    with tempfile.TemporaryDirectory() as folder:
        training = api.start_training(
            model,
            graph,
            api.platform_metadata("cpu_x2"),
            epochs=num_epochs,
            options={"batch_size": 256, "sampler.fanouts": [10, 10]},
            directory=folder,
        )
    for epoch, loss in enumerate(training.losses, start=1):
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"test accuracy {training.test_metric:.1%}")
    return training.test_metric


if __name__ == "__main__":
    main()
