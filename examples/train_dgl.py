"""Train a DGL graph, and look at the run again later.

python examples/train_dgl.py
"""

import dgl
import torch
from train_arrays import load_arrays

import gnnscale


def load_graph() -> dgl.DGLGraph:
    """Stands for a data set of DGL."""
    edges, features, labels = load_arrays()
    graph = dgl.graph((torch.from_numpy(edges[0]), torch.from_numpy(edges[1])))
    graph.ndata["feat"], graph.ndata["label"] = torch.from_numpy(features), torch.from_numpy(labels)
    part = torch.randint(5, (len(labels),))
    graph.ndata["train_mask"], graph.ndata["val_mask"] = part > 1, part == 1
    graph.ndata["test_mask"] = part == 0
    return graph


def main(epochs: int = 5) -> float:
    torch.manual_seed(0)
    graph = load_graph()
    directory = gnnscale.train(
        graph, "gcn", epochs=epochs, hidden=64, fanouts=[10, 10], batch_size=256, lr=0.01
    ).directory

    # In another program, on another day:
    result = gnnscale.load(directory)
    graph.ndata["class"] = torch.from_numpy(result.predict())
    right = (graph.ndata["class"] == graph.ndata["label"])[graph.ndata["test_mask"]]
    print(f"test accuracy {right.float().mean():.1%}, by the run itself {result.test_metric:.1%}")
    return result.test_metric


if __name__ == "__main__":
    main()
