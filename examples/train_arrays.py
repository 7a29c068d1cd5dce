"""Train on arrays in one call, and take classes and embeddings home.

python examples/train_arrays.py
"""

import numpy as np

import gnnscale


def load_arrays(num_vertices: int = 4000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stands for the reader of a user's own data: edges, features, classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(num_vertices) % 8
    src = rng.integers(num_vertices, size=10 * num_vertices)
    # Nine edges in ten stay within a class.
    same = src % 8 + 8 * rng.integers(num_vertices // 8, size=len(src))
    dst = np.where(rng.random(len(src)) < 0.9, same, rng.integers(num_vertices, size=len(src)))
    features = rng.normal(size=(8, 16))[labels] + 2 * rng.normal(size=(num_vertices, 16))
    return np.stack([src, dst])[:, src != dst], features.astype(np.float32), labels


def main(epochs: int = 5) -> float:
    edges, features, labels = load_arrays()
    order = np.random.default_rng(1).permutation(len(labels))
    train_idx, valid_idx, test_idx = np.split(order, [2400, 3200])
    graph = gnnscale.from_arrays(
        (edges[0], edges[1]),
        features,
        labels,
        train_idx=train_idx,
        valid_idx=valid_idx,
        test_idx=test_idx,
    )

    result = gnnscale.train(
        graph, "sage", epochs=epochs, hidden=64, fanouts=[10, 10], batch_size=256, lr=0.01
    )

    for epoch in result.history:
        print(f"epoch {epoch.epoch}: loss {epoch.train_loss:.3f}, {epoch.valid_metric:.1%} valid")
    print(f"test accuracy {result.test_metric:.1%}")
    classes = result.predict(test_idx)
    print(f"right: {np.count_nonzero(classes == labels[test_idx])} of {len(test_idx)}")
    print(f"embeddings: {result.embeddings([0, 1, 2]).shape}")
    return result.test_metric


if __name__ == "__main__":
    main()
