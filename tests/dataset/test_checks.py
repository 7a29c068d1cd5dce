from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from gnnscale.core.errors import GraphError
from gnnscale.dataset.checks import check_split, class_labels


def test_unknown_classes_are_any_nan() -> None:
    quiet, signalling = 0x7FC00000, 0x7F800001
    bits = np.array([np.float32(3).view(np.uint32), quiet, signalling], np.uint32)
    assert class_labels(bits.view(np.float32), "labels.npy").tolist() == [3, -1, -1]


@pytest.mark.parametrize("label", [-1, 1.5, 2.0**40, np.inf, -np.inf])
def test_labels_that_are_no_classes(label: float) -> None:
    with pytest.raises(GraphError, match=r"^labels.npy: label .* of vertex 1 is not a class"):
        class_labels(np.array([0, label]), "labels.npy")


def test_a_split_takes_few_bytes_a_vertex() -> None:
    ids = np.arange(2_000_000)[::-1]
    split = {"train": ids[2:], "valid": ids[:1], "test": ids[1:2]}
    labels = np.zeros(len(ids), np.int64)
    tracemalloc.start()
    try:
        check_split(split, labels, len(ids), "raw")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(ids)


def test_a_vertex_twice_among_many() -> None:
    ids = np.arange(600_000)
    ids[-1] = 5
    split = {"train": ids, "valid": np.array([599_999]), "test": np.array([600_000])}
    with pytest.raises(GraphError, match=r"^raw: the train split names a vertex twice$"):
        check_split(split, np.zeros(600_001, np.int64), 600_001, "raw")
    with pytest.raises(GraphError, match=r"^raw: vertex 599998 of the train split has no label$"):
        check_split(
            split | {"train": ids[:-1]},
            -(np.arange(600_001) == 599_998).astype(np.int64),
            600_001,
            "raw",
        )
