"""Train a PyG ``Data``, and hand the weights back to a model of PyG's own.

python examples/train_pyg.py
"""

import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch_geometric.data import Data
from torch_geometric.nn.models import GAT
from train_arrays import load_arrays

import gnnscale


def load_data() -> Data:
    """Stands for a data set of PyG."""
    edges, features, labels = load_arrays()
    data = Data(
        x=torch.from_numpy(features), edge_index=torch.from_numpy(edges), y=torch.from_numpy(labels)
    )
    part = torch.randint(5, (len(labels),))
    data.train_mask, data.val_mask, data.test_mask = part > 1, part == 1, part == 0
    return data


def main(epochs: int = 5) -> float:
    torch.manual_seed(0)
    data = load_data()
    result = gnnscale.train(
        data, "gat", epochs=epochs, hidden=64, fanouts=[10, 10], batch_size=256, lr=0.01
    )

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "weights.safetensors"
        result.export(file, format="pyg")
        model = GAT(16, 64, 2, 8, heads=8)
        model.load_state_dict(load_file(file))
    with torch.no_grad():
        predicted = model.eval()(data.x, data.edge_index).argmax(dim=1)
    accuracy = (predicted == data.y)[data.test_mask].float().mean().item()
    print(f"test accuracy {result.test_metric:.1%} here, {accuracy:.1%} of PyG's own model")
    return accuracy


if __name__ == "__main__":
    main()
