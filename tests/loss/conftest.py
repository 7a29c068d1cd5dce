from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gnnscale.graph import Graph


@pytest.fixture
def labelled() -> Callable[..., Graph]:
    """A graph without edges, with given labels, all of whose vertices are trained."""

    def make(labels: np.ndarray, num_classes: int) -> Graph:
        none = np.zeros(0, np.int32)
        return Graph(
            name="tiny",
            indptr=np.zeros(len(labels) + 1, np.int64),
            indices=none,
            features=np.zeros((len(labels), 1), np.float32),
            feature_dtype="float32",
            labels=labels,
            num_classes=num_classes,
            train_idx=np.arange(len(labels), dtype=np.int32),
            valid_idx=none,
            test_idx=none,
        )

    return make
