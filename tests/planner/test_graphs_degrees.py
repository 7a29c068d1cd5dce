from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.data import from_arrays
from gnnscale.graph import Graph
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.graphs import Degrees, expected_size, share_of_hottest
from gnnscale.sampling import NeighborSampler


def regular(num_vertices: float, degree: float) -> Degrees:
    every = np.array([degree])
    return Degrees(counts=np.array([float(num_vertices)]), inward=every, outward=every)


def test_degrees_of_arrays_and_files(tmp_path: Path) -> None:
    found = Degrees.from_arrays(np.array([2, 0, 2, 2]), np.array([1, 3, 1, 0]))
    classes = zip(found.counts, found.inward, found.outward, strict=True)
    assert sorted(classes) == [(1, 0, 3), (1, 2, 0), (2, 2, 1)]
    assert found.num_vertices == 4
    file = tmp_path / "degrees.npy"
    np.save(file, np.array([3, 1, 3, 0]))
    found = Degrees.from_npy(file, 4)
    assert found.counts.tolist() == [1, 1, 2]
    assert (found.inward == found.outward).all()
    np.save(file, np.array([[3, 1, 3, 0], [0, 5, 0, 2]], np.int32))
    found = Degrees.from_npy(file, 4)
    classes = sorted(zip(found.counts, found.inward, found.outward, strict=True))
    assert classes == [(1, 0, 2), (1, 1, 5), (2, 3, 0)]


@settings(max_examples=20)
@given(mean=st.floats(0.1, 500), skew=st.floats(0, 3), directed=st.booleans())
def test_lognormal_degrees_have_their_mean(mean: float, skew: float, directed: bool) -> None:
    found = Degrees.lognormal(1000, mean, skew, directed=directed)
    assert found.num_vertices == pytest.approx(1000)
    for degrees in (found.inward, found.outward):
        assert found.counts @ degrees / 1000 == pytest.approx(mean)


def test_mini_batches_by_hand() -> None:
    # Two of four neighbours are kept, and no vertex is met twice.
    size, met = expected_size(regular(10**12, 4), [2, 2], 100)
    assert size.vertices == pytest.approx((900, 300, 100), rel=1e-6)
    assert size.edges == pytest.approx((600, 200), rel=1e-6)
    assert met == pytest.approx(900 / 10**12)
    size, _ = expected_size(regular(10**12, 4), [-1], 100)
    assert size.edges == pytest.approx((400,), rel=1e-6)
    # A fan-out above the degree keeps all.
    assert expected_size(regular(10**12, 4), [9], 100)[0].edges == pytest.approx((400,), rel=1e-6)
    size, _ = expected_size(regular(10, 9), [9, 9], 5)
    # 45 draws among ten vertices leave e^-4.5 of those that were not seeds.
    assert size.vertices[1] == pytest.approx(10 - 5 * np.exp(-4.5))
    assert size.vertices[0] <= 10
    size, met = expected_size(regular(10, 0), [5, 5], 4)
    assert (size.vertices, size.edges) == ((4, 4, 4), (0, 0))
    assert share_of_hottest(regular(10, 0), met, 0.5) == pytest.approx(0.5)
    size, _ = expected_size(regular(10, 3), [2], 99)
    assert size.vertices == (10, 10)
    two = Degrees(
        counts=np.array([90.0, 10.0]), inward=np.array([1.0, 1.0]), outward=np.array([1.0, 11.0])
    )
    met = np.array([0.1, 0.9])
    # Nine inputs are of the ten hot vertices, and nine of the others.
    assert share_of_hottest(two, met, 0.1) == pytest.approx(0.5)
    assert share_of_hottest(two, met, 0.05) == pytest.approx(0.25)
    assert share_of_hottest(two, met, 0.55) == pytest.approx(0.75)
    assert share_of_hottest(two, met, 0) == 0
    assert share_of_hottest(two, met, 1) == pytest.approx(1)


def tolokers(data: Path) -> Graph:
    with np.load(data / "heterophilous" / "tolokers.npz") as file:
        ends = file["edges"].astype(np.int64)
    both = np.concatenate([ends, ends[:, ::-1]])
    return _graph(both[:, 0], both[:, 1])


def cnr_2000(data: Path) -> Graph:
    with np.load(data / "webgraph" / "cnr-2000_csr.npz") as file:
        sources = np.repeat(np.arange(len(file["indptr"]) - 1), np.diff(file["indptr"]))
        return _graph(sources, file["indices"].astype(np.int64))


def _graph(sources, targets) -> Graph:
    count = int(max(sources.max(), targets.max())) + 1
    rows, labels = np.zeros((count, 1), np.float32), np.zeros(count, np.int64)
    return from_arrays(
        (sources, targets), rows, labels, train_idx=np.arange(count), num_classes=2, name="real"
    )


def test_sizes_beside_those_of_sampling(test_data) -> None:
    for opened, num_seeds, inputs, others in (
        (tolokers, 1024, (0.99, 1.02), 0.03),
        (tolokers, 256, (1.0, 1.03), 0.05),
        # Pages of a site share most of their links: half as many are met.
        (cnr_2000, 1024, (1.85, 2.0), 0.11),
    ):
        graph = opened(test_data)
        outward = np.bincount(graph.indices, minlength=graph.num_vertices)
        degrees = Degrees.from_arrays(np.diff(graph.indptr), outward)
        expected, _ = expected_size(degrees, [25, 10], num_seeds)
        sampler = NeighborSampler(graph, fanouts=[25, 10], seed=3)
        random = np.random.default_rng(0)
        batches = [
            sampler.sample(random.choice(graph.num_vertices, num_seeds, replace=False), step)
            for step in range(8)
        ]
        sampled = [BatchSize.of(batch) for batch in batches]
        edges = np.mean([each.edges for each in sampled], axis=0)
        vertices = np.mean([each.vertices for each in sampled], axis=0)
        assert expected.edges == pytest.approx(edges, rel=others)
        assert expected.vertices[1:] == pytest.approx(vertices[1:], rel=others)
        low, high = inputs
        assert low < expected.vertices[0] / vertices[0] < high
