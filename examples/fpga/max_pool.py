"""Train a layer of one's own on an FPGA card in C simulation, and on a processor.

The card computes what max_pool.hpp says, the processor what the class says: the same.

python examples/fpga/max_pool.py
"""

import tempfile
from pathlib import Path

import torch
from torch import nn

from gnnscale import api


class MaxPool(api.Layer):
    """A vertex gathers, of each feature, the largest absolute value among its neighbors."""

    kernel_header = Path(__file__).with_name("max_pool.hpp")
    gather = "max"

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * num_in, num_out)

    def scatter(self, source: torch.Tensor) -> torch.Tensor:
        """Return the messages along edges, from the rows of their sources."""
        return source.abs()

    def update(self, own: torch.Tensor, gathered: torch.Tensor) -> torch.Tensor:
        """Return the new rows, by one product: the card has an engine for it."""
        return self.linear(torch.cat([own, gathered], dim=1))


def main(num_epochs: int = 5) -> float:
    computation = api.gnn_computation("customize", MaxPool)
    model = api.gnn_model(computation, api.gnn_parameters(L=2, hidden=32, dropout=0.2))
    graph = api.load_input_graph(
        "planted_partition",
        **{"num_vertices": 3000, "num_edges": 15_000, "num_classes": 4, "within": 0.8},
    )
    runs = {}
    for plan in ("fpga_csim", "cpu"):
        with tempfile.TemporaryDirectory() as folder:
            runs[plan] = api.start_training(
                model,
                graph,
                api.platform_metadata(plan),
                epochs=num_epochs,
                options={"batch_size": 100, "sampler.fanouts": [10, 5], "optimizer.lr": 0.01},
                directory=folder,
            )
    losses = zip(*(run.losses for run in runs.values()), strict=True)
    for epoch, (card, processor) in enumerate(losses, start=1):
        print(f"epoch {epoch}: loss {card:.6f} on the card, {processor:.6f} on the processor")
    print(f"test accuracy {runs['fpga_csim'].test_metric:.1%}")
    return runs["fpga_csim"].test_metric


if __name__ == "__main__":
    main()
