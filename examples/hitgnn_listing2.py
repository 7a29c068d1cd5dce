"""HitGNN's Listing 2: three training algorithms that differ in how they assign graph and features.

DistDGL gives each device a part of the vertices, by a minimum edge cut with several constraints;
PaGraph gives each some training vertices and all that these reach; P3 gives each the whole
topology, and a part of the columns of the features. The devices are emulated.

python examples/hitgnn_listing2.py
"""

import tempfile

from gnnscale import api

ALGORITHMS = {"DistDGL": "distdgl", "PaGraph": "pagraph", "P3": "p3"}


def main(num_epochs: int = 5) -> float:
    computation = api.gnn_computation("GraphSAGE")
    parameters = api.gnn_parameters(L=2, hidden=[128])
    model = api.gnn_model(computation, parameters)
    graph = api.load_input_graph(
        "planted_partition", num_vertices=10_000, num_edges=100_000, num_classes=8
    )
    accuracies = []
    for name, partitioner in ALGORITHMS.items():
        with tempfile.TemporaryDirectory() as folder:
            training = api.start_training(
                model,
                graph,
                api.platform_metadata("emulated_x4"),
                partition=api.graph_partition(partitioner),
                epochs=num_epochs,
                options={"batch_size": 256, "sampler.fanouts": [10, 10]},
                directory=folder,
            )
        seconds = min(epoch.epoch_time_s for epoch in training.result.history)
        print(f"{name}: an epoch takes {seconds:.2f} s ({training.figures})")
        accuracies.append(training.test_metric)
        print(f"{name}: test accuracy {training.test_metric:.1%}")
    return min(accuracies)


if __name__ == "__main__":
    main()
