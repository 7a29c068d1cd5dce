"""HitGNN's Listing 1: a program that assigns a graph to four accelerators and trains GCN on them.

The paper's line 19 makes a hardware design of the model and the platform. There is none here: the
accelerators are emulated, at a pace that a small machine can keep.

python examples/hitgnn_listing1.py
"""

import tempfile
from pathlib import Path

import numpy as np

from gnnscale import Graph, api

#: Accelerators, and how many times slower than an Alveo U250 each of them is.
P, SLOWDOWN = 4, 300


def preprocess(graph: Graph, p: int) -> np.ndarray:
    """Stands for a graph preprocessing program of one's own: the accelerator of every vertex."""
    return np.arange(graph.num_vertices) * p // graph.num_vertices


def main(num_epochs: int = 5) -> float:
    # Design phase
    partition = api.graph_partition(preprocess)
    features = api.feature_storing("host")
    computation = api.gnn_computation("GCN")
    parameters = api.gnn_parameters(L=2, hidden=[256])
    model = api.gnn_model(computation, parameters)
    u250 = {
        "kind": "emulated",
        # Four super logic regions: 2,048 multiply-accumulates in all at 300 MHz, 19.25 GB/s each.
        "macs_per_s": 2048 * 300e6 / SLOWDOWN,
        "memory_bandwidth": 4 * 19.25e9 / SLOWDOWN,
        "memory_bytes": 64 << 30,
        "link_bandwidth": 16e9 / SLOWDOWN,
        "pipelined": True,
    }
    platform = api.platform_metadata([u250] * P)

    # Runtime phase
    graph = api.load_input_graph(
        "planted_partition", num_vertices=10_000, num_edges=100_000, num_classes=8
    )
    with tempfile.TemporaryDirectory() as folder:
        training = api.start_training(
            model,
            graph,
            platform,
            partition=partition,
            features=features,
            epochs=num_epochs,
            options={"batch_size": 256, "sampler.fanouts": [10, 10]},
            directory=folder,
        )
        api.save_model(training, Path(folder) / "gcn.safetensors")
    for epoch in training.result.history:
        seconds = f"{epoch.epoch_time_s:.2f} s {training.figures}"
        print(f"epoch {epoch.epoch}: loss {epoch.train_loss:.3f}, {seconds}")
    print(f"test accuracy {training.test_metric:.1%}")
    return training.test_metric


if __name__ == "__main__":
    main()
