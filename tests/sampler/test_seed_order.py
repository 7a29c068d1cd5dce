from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.graph import Graph, GraphError
from gnnscale.sampler.seed_order import labelled, num_batches, seed_batches


@given(st.integers(1, 200), st.integers(1, 70), st.integers(0, 2**63 - 1), st.integers(0, 1000))
def test_every_vertex_is_a_seed_once_in_every_epoch(
    size: int, batch_size: int, seed: int, epoch: int
) -> None:
    vertices = np.arange(size, dtype=np.int32) * 3
    batches = list(seed_batches(vertices, batch_size, seed=seed, epoch=epoch))
    assert len(batches) == num_batches(size, batch_size)
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert np.array_equal(np.sort(np.concatenate(batches)), vertices)
    again = seed_batches(vertices, batch_size, seed=seed, epoch=epoch)
    assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))


def test_the_order_differs_between_epochs_and_seeds() -> None:
    vertices = np.arange(100)

    def order(seed: int, epoch: int) -> list[int]:
        return np.concatenate(list(seed_batches(vertices, 7, seed=seed, epoch=epoch))).tolist()

    orders = {tuple(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}
    assert len(orders) == 4


def test_the_order_is_fixed_for_good() -> None:
    batches = seed_batches(np.arange(8), 3, seed=5, epoch=2)
    assert [batch.tolist() for batch in batches] == [[5, 2, 3], [0, 7, 4], [1, 6]]


def graph(labels: list[int]) -> Graph:
    return Graph(
        name="tiny",
        indptr=np.zeros(len(labels) + 1, np.int64),
        indices=np.zeros(0, np.int32),
        features=np.zeros((len(labels), 1), np.float32),
        feature_dtype="float32",
        labels=np.array(labels),
        num_classes=2,
        train_idx=np.array([0, 1, 2]),
        valid_idx=np.array([3]),
        test_idx=np.array([4]),
    )


def test_vertices_without_label_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert labelled(graph([0, -1, 1, 0, 1]), "train").tolist() == [0, 2]
    assert "1 of 3 train vertices have no label" in caplog.text
    assert labelled(graph([0, -1, 1, 0, 1]), "valid").tolist() == [3]


def test_a_split_without_any_label_is_refused() -> None:
    with pytest.raises(GraphError, match="none of the 1 valid vertices has a label"):
        labelled(graph([0, 0, 0, -1, 0]), "valid")
