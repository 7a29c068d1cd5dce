"""Graphs without structure: whatever trains predicts their held-out edges and labels by chance.

Edges join random vertices, in random directions, and features are noise. So no option that trains
can be better than chance, unless a held-out edge or its label reaches the model in some way: as a
message, by a row that is made of the structure, by a copy or by the reverse of an edge.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.data import Arrays

pytestmark = pytest.mark.integration

NUM_VERTICES, NUM_PAIRS, NUM_FEATURES, CANDIDATES = 2000, 4000, 8, 50

#: The levels of each factor, with the options that choose them.
FEATURES = {
    "own": (),
    "degrees": ("features=degrees",),
    "projections": ("features=projections", "features.dim=16"),
    "learned": ("features=learned", "features.dim=16"),
    "disk": ("features=disk", "features.memory_bytes=4000000"),
}
MODELS = {
    "sage": ("model=sage",),
    "pool": ("model=sage", "model.aggregator=pool"),
    "gcn": ("model=gcn",),
    "gat": ("model=gat",),
    "gatv2": ("model=gatv2",),
    "gin": ("model=gin",),
    "sgc": ("model=sgc",),
    "appnp": ("model=appnp",),
}
SAMPLERS = {
    "neighbor": ("sampler=neighbor", "sampler.fanouts=[5,5]"),
    "replace": ("sampler=neighbor", "sampler.fanouts=[5,5]", "sampler.replace=true"),
    "labor": ("sampler=labor", "sampler.fanouts=[5,5]"),
    "dependent labor": ("sampler=labor", "sampler.fanouts=[5,5]", "sampler.layer_dependency=true"),
    "weighted": ("sampler=weighted", "sampler.fanouts=[5,5]"),
    "full": ("sampler=full",),
    "layerwise": ("sampler=layerwise", "sampler.layer_sizes=[800,800]"),
}
GRAPHS = ("directed", "mutual", "all but one mutual", "half mutual", "copies", "mutual copies")
TASKS = ("links", "edges")
#: Rows that are aggregated before training: for labels of edges, over all neighbors.
PREAGGREGATED = [
    ("preaggregated", model, "full", graph, "edges")
    for model, graph in zip(("sage", "gcn", "gin", "sgc"), GRAPHS[1:5], strict=True)
]
#: Every level of each factor, in pairs that differ; each graph, which decides what is held out,
#: with both tasks.
ROWS = [
    (
        *([*FEATURES][each % 5], [*MODELS][each % 8], [*SAMPLERS][each % 7]),
        *(GRAPHS[each % 6], TASKS[(each + each // 6) % 2]),
    )
    for each in range(18)
]


def edges_of(kind: str, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return random edges ``[2, n]`` whose directions say nothing of their ends."""
    pairs = np.sort(generator.integers(NUM_VERTICES, size=(2, NUM_PAIRS)), axis=0)
    pairs = np.unique(pairs[:, pairs[0] < pairs[1]], axis=1)
    turned = generator.random(pairs.shape[1]) < 0.5
    pairs[:, turned] = pairs[::-1, turned]
    half = generator.random(pairs.shape[1]) < 0.5
    more = {
        "directed": [],
        "mutual": [pairs[::-1]],
        "all but one mutual": [pairs[::-1, 1:]],
        "half mutual": [pairs[::-1, half]],
        "copies": [pairs[:, half], pairs[:, half]],
        "mutual copies": [pairs[::-1], pairs[:, half]],
    }[kind]
    return np.concatenate([pairs, *more], axis=1)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The store of each graph. Copies and reverses of an edge have its label."""
    found = {}
    for kind in GRAPHS:
        folder = tmp_path_factory.mktemp("noise")
        generator = np.random.default_rng(len(kind))
        edges = edges_of(kind, generator)
        _, pair_of = np.unique(np.sort(edges, axis=0), axis=1, return_inverse=True)
        labels = generator.integers(2, size=pair_of.max() + 1)[pair_of.reshape(-1)]
        np.save(folder / "edge_index.npy", np.ascontiguousarray(edges))
        np.save(folder / "edge_labels.npy", labels)
        np.save(folder / "edge_weights.npy", np.ones(edges.shape[1], np.float32))
        rows = generator.normal(size=(NUM_VERTICES, NUM_FEATURES)).astype(np.float32)
        np.save(folder / "features.npy", rows)
        shares = {"train_fraction": 0.6, "valid_fraction": 0.05}
        options = {"split": "random", "drop_duplicates": False, **shares}
        store = folder / "store"
        Arrays(name="noise", raw=str(folder), store=str(store), **options).prepare()
        found[kind] = store
    return found


@pytest.mark.parametrize("row", ROWS + PREAGGREGATED, ids="-".join)
def test_noise_is_predicted_by_chance(run, tmp_path, graphs, row) -> None:
    features, model, sampler, graph, task = row
    links = ("task.valid_fraction=0.05", "task.test_fraction=0.35")
    result = run(
        tmp_path,
        *(f"task={task}", "dataset=store", f"dataset.store={graphs[graph]}"),
        *FEATURES.get(features, (f"features={features}",)),
        *(*MODELS[model], *SAMPLERS[sampler], "model.num_layers=2", "model.hidden=16"),
        *("optimizer.lr=0.02", "batch_size=512", "epochs=4", "runtime.prefetch=none"),
        *((*links, f"task.num_candidates={CANDIDATES}") if task == "links" else ()),
    )
    # Copies and reverses of an edge are no further evidence.
    num_tested = 0.35 * 0.99 * NUM_PAIRS
    if task == "edges":
        assert abs(result.test_metric - 0.5) < 3 * 0.5 / np.sqrt(num_tested)
        return
    reciprocal = 1 / np.arange(1, CANDIDATES + 2)
    error = reciprocal.std() / np.sqrt(num_tested)
    # Equal rows share their ranks, which is worse than chance.
    assert reciprocal.mean() / 2 < result.test_metric < reciprocal.mean() + 3 * error
