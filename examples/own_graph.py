"""Train on arrays of your own: written once to a file, then a graph like any other.

python examples/own_graph.py
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np


def load_arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stands for the reader of a user's own data: edges, features, classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(10_000) % 8
    src = rng.integers(10_000, size=100_000)
    # Nine edges in ten stay within a class.
    dst = np.where(
        rng.random(len(src)) < 0.9,
        src % 8 + 8 * rng.integers(1250, size=len(src)),
        rng.integers(10_000, size=len(src)),
    )
    features = 3 * rng.normal(size=(10_000, 16)) + rng.normal(size=(8, 16))[labels]
    return np.stack([src, dst]), features.astype(np.float32), labels


def write(file: Path) -> None:
    """Write the arrays as ``dataset=arrays`` reads them."""
    edges, features, labels = load_arrays()
    np.savez(file, edge_index=edges, features=features, labels=labels)


def main(num_epochs: int = 5) -> float:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mine.npz"
        write(file)
        options = ["dataset=arrays", f"dataset.raw={file}", "dataset.split=random"]
        options += [f"dataset.store={folder}/store", f"epochs={num_epochs}", "batch_size=256"]
        command = [
            sys.executable,
            "-m",
            "gnnscale",
            "train",
            *options,
            f"hydra.run.dir={folder}/run",
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        summary = json.loads((Path(folder) / "run" / "summary.json").read_text())
    accuracy = summary["test_metric"]
    print(f"test accuracy {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
