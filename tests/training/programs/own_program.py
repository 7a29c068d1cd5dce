"""A program that defines a layer of its own, as a user writes it, and trains it.

Usage: own_program.py FOLDER
"""

import sys

import torch
from torch import nn

from gnnscale import api


class Own(api.Layer):
    gather = "mean"

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_in, num_out)

    def scatter(self, source: torch.Tensor) -> torch.Tensor:
        return source

    def update(self, own: torch.Tensor, gathered: torch.Tensor) -> torch.Tensor:
        return self.linear(own + gathered)


def main() -> None:
    model = api.gnn_model(api.gnn_computation("customize", Own), api.gnn_parameters(2, 8))
    graph = api.load_input_graph(
        "planted_partition", num_vertices=600, num_edges=3000, num_features=8, num_classes=4
    )
    options = {"sampler.fanouts": [5, 3], "batch_size": 64, "num_threads": 2}
    training = api.start_training(
        model,
        graph,
        api.platform_metadata("cpu_x2"),
        epochs=1,
        options=options,
        directory=sys.argv[1],
    )
    print(f"trained {training.result.model} to {training.losses}")


if __name__ == "__main__":
    main()
