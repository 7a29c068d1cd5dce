"""Train on arrays of one's own: written once to a file, then a graph like any other.

python examples/own_graph.py
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse


def load_arrays() -> tuple[scipy.sparse.csr_matrix, scipy.sparse.csr_matrix, np.ndarray]:
    """Stands for the reader of a user's own data: adjacency, features, classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(10_000) % 8
    src = rng.integers(10_000, size=100_000)
    # Nine edges in ten stay within a class.
    dst = np.where(
        rng.random(len(src)) < 0.9,
        src % 8 + 8 * rng.integers(1250, size=len(src)),
        rng.integers(10_000, size=len(src)),
    )
    adj = scipy.sparse.csr_matrix((np.ones(len(src), np.float32), (src, dst)), (10_000, 10_000))
    noise = 3 * rng.normal(size=(10_000, 16))
    features = noise + rng.normal(size=(8, 16))[labels]
    return adj, scipy.sparse.csr_matrix(features.astype(np.float32)), labels


def write(file: Path) -> None:
    """Write the arrays in the layout that ``dataset=gnn_benchmark`` reads."""
    adj, attr, labels = load_arrays()
    np.savez(
        file,
        **{f"adj_{part}": getattr(adj, part) for part in ("data", "indices", "indptr", "shape")},
        **{f"attr_{part}": getattr(attr, part) for part in ("data", "indices", "indptr", "shape")},
        labels=labels,
    )


def main(num_epochs: int = 5) -> float:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mine.npz"
        write(file)
        options = ["dataset=gnn_benchmark", "dataset.name=mine", f"dataset.raw={file}"]
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
