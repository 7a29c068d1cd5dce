"""HitGNN's Listing 1: FPGAs are described, a design is generated, and GCN trains on it.

The cards are simulated in C, and so are the times. `directory` is for Vitis.

python examples/hitgnn_listing1.py
"""

import tempfile
from pathlib import Path

import numpy as np

from gnnscale import Graph, api

P = 2  # FPGAs; each is simulated


def preprocess(graph: Graph, p: int) -> np.ndarray:
    """Stands for a graph preprocessing program: the FPGA of every vertex."""
    return np.arange(graph.num_vertices) * p // graph.num_vertices


def main(num_epochs: int = 5) -> float:
    # Design phase
    partition = api.graph_partition(preprocess)
    features = api.feature_storing("host")
    sampler = {"fanouts": [10, 5]}
    computation = api.gnn_computation("GCN")
    parameters = api.gnn_parameters(L=2, hidden=[64])
    model = api.gnn_model(computation, parameters)
    fpgas = [api.fpga_metadata(SLR=4, DSP=3072, LUT=423_000, URAM=320, BW=19.25)] * P
    platform = api.platform_metadata(BW=205, FPGA=fpgas, FPGA_connect=16)

    with tempfile.TemporaryDirectory() as folder:
        bitstream, runtime = api.generate_design(
            model, sampler, platform, batch_size=128, directory=Path(folder) / "design"
        )
        n, m = runtime.generated.exploration.best.card
        print(f"design: ({n}, {m}), fullest: {runtime.generated.exploration.best.limit}")

        # Runtime phase
        graph = api.load_input_graph(
            "planted_partition", num_vertices=2000, num_edges=20_000, num_classes=4
        )
        api.init(bitstream)
        training = api.start_training(
            runtime,
            graph,
            partition=partition,
            features=features,
            epochs=num_epochs,
            directory=Path(folder) / "run",
        )
        api.save_model(training, Path(folder) / "gcn.safetensors")
    for epoch in training.result.history:
        print(f"epoch {epoch.epoch}: loss {epoch.train_loss:.3f}, {training.figures}")
    print(f"test accuracy {training.test_metric:.1%}")
    return training.test_metric


if __name__ == "__main__":
    main()
