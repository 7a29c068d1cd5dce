from itertools import product

import numpy as np
import pytest

from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data import PlantedPartition, RMat
from gnnscale.data.structure_only import class_centroids, smooth_labels


@pytest.mark.long
def test_default_graph(adjacency):
    graph = PlantedPartition(name="default").open()
    assert graph.num_vertices == 100_000
    assert 1_900_000 < graph.num_edges <= 2_000_000
    assert (graph.num_classes, graph.num_features) == (16, 64)
    assert np.bincount(graph.labels).tolist() == [6250] * 16
    matrix = adjacency(graph)
    assert (matrix != matrix.T).nnz == 0
    assert matrix.diagonal().sum() == 0
    owner = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    same = (graph.labels[owner] == graph.labels[graph.indices]).mean()
    assert same == pytest.approx(0.5 + 0.5 / 16, abs=0.01)
    assert np.diff(graph.indptr).max() > 50 * np.diff(graph.indptr).mean()
    assert 0.96 < graph.attainable_accuracy < 0.985
    # Features alone: the nearest centroid, known exactly, is right for a minority.
    centroids = class_centroids(16, 64, signal=1.0, seed=0)
    score = graph.features[:9999] @ centroids.T - (centroids**2).sum(axis=1) / 2
    assert 0.3 < (score.argmax(axis=1) == graph.labels[:9999]).mean() < 0.45


def test_same_seed_same_graph(tmp_path):
    def build(place, **options):
        options = {"num_vertices": 500, "num_edges": 900, "num_classes": 4} | options
        return PlantedPartition(name="x", store=str(tmp_path / place), **options).open()

    one, two, other = build("one"), build("two"), build("other", seed=1)
    for array in ("indptr", "indices", "features", "labels", "train_idx"):
        np.testing.assert_array_equal(getattr(one, array), getattr(two, array))
    assert not np.array_equal(one.features, other.features)
    assert not np.array_equal(one.indices[:800], other.indices[:800])


def test_rmat(adjacency):
    graph = RMat(name="r", num_vertices=5000, num_edges=40_000, num_classes=5).open()
    assert graph.num_edges == 80_000
    matrix = adjacency(graph)
    assert (matrix != matrix.T).nnz == 0
    assert (matrix.diagonal().sum(), matrix.max()) == (0, 1)
    degrees = np.diff(graph.indptr)
    assert degrees.max() > 20 * 16
    assert np.bincount(graph.labels).tolist() == [1000] * 5
    # It trains on the vertices with most neighbours.
    assert (len(graph.train_idx), len(graph.valid_idx)) == (401, 80)
    assert degrees[graph.train_idx].min() >= degrees[graph.valid_idx].max()
    assert degrees[graph.valid_idx].min() >= degrees[graph.test_idx].max()


def test_rmat_has_the_split_of_ogbn_products():
    dataset = RMat(name="r")
    first, second = (
        round(dataset.num_vertices * share)
        for share in np.cumsum([dataset.train_fraction, dataset.valid_fraction])
    )
    sizes = (first, second - first, dataset.num_vertices - second)
    assert sizes == (196_615, 39_323, 2_213_091)


BAD = {
    RMat: {
        **{"num_edges": (0, 2**62), "num_vertices": (1, 2**31, 10**30), "num_features": (65_537,)},
        **{"num_classes": (2**21,), "a": (0.9, np.nan, np.inf), "signal": (np.nan, np.inf)},
        **{"seed": (-1, 2**63), "raw": ("my.npz",)},
    },
    PlantedPartition: {
        **{"num_edges": (0, 2**62), "num_vertices": (31, 2**31), "num_features": (-1, 65_537)},
        **{"num_classes": (1, 5000), "within": (np.nan, 1.5), "signal": (np.nan, np.inf, -1)},
        **{"exponent": (np.nan, np.inf, 2), "seed": (-1, 2**63), "raw": ("my.npz",)},
    },
}


@pytest.mark.parametrize("dataset", BAD)
def test_bad_options(dataset):
    for option, values in BAD[dataset].items():
        for value in values:
            with pytest.raises(ConfigError, match=f"^dataset.{option}="):
                dataset(name="x", **{option: value})


def test_bad_options_of_rmat():
    with pytest.raises(ConfigError, match=r"^dataset.num_edges="):
        RMat(name="x", num_edges=4951 // 2 + 1, num_vertices=100)
    message = r"dataset.a=0.57, b=.*, c=.*: expected probabilities"
    for name, value in product("bc", (np.nan, np.inf, -0.1)):
        with pytest.raises(ConfigError, match=message):
            RMat(name="r", **{name: value})


@pytest.mark.parametrize(
    ("dataset", "sizes"),
    [
        (PlantedPartition, {"num_edges": 2**40}),
        (PlantedPartition, {"num_features": 65_536}),
        (RMat, {"num_edges": 2**40, "num_features": 65_536}),
    ],
)
def test_sizes_that_do_not_fit(dataset, sizes, leftovers):
    message = (
        r"dataset.num_vertices=\d+, num_edges=\d+, num_features=\d+: preparing: needs [\d,.]+ GiB "
        r"of memory, and [\d,.]+ \wiB are available; [\d,.]+ GiB of disk, and [\d,.]+ \wiB are free"
    )
    made = dataset(name="p", num_vertices=2**31 - 1, **sizes)
    with pytest.raises(GraphError, match=message):
        made.open()
    assert leftovers(made.store_path()) == []


@pytest.mark.long
def test_many_classes_and_short_features():
    sizes = {"num_vertices": 4000, "num_edges": 9000, "num_classes": 2000, "num_features": 1}
    graph = PlantedPartition(name="p", **sizes).open()
    assert graph.num_classes == 2000
    assert 0 <= graph.attainable_accuracy <= 1


def test_labels_are_smooth_over_edges():
    """On a ring, neighbors share a class far more often than by chance; classes are balanced."""
    num_vertices = 10_000
    ring = np.arange(num_vertices)
    indices = np.stack([(ring - 1) % num_vertices, (ring + 1) % num_vertices], axis=1)
    indptr = np.arange(0, 2 * num_vertices + 1, 2)
    labels = smooth_labels(indptr, np.sort(indices, axis=1).ravel(), num_classes=4, seed=0)
    assert np.bincount(labels).tolist() == [2500] * 4
    assert (labels[indices[:, 1]] == labels).mean() > 0.45
