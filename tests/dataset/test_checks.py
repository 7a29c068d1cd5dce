from __future__ import annotations

import numpy as np
import pytest

from gnnscale.dataset.checks import class_labels
from gnnscale.graph import GraphError


def test_unknown_classes_are_any_nan() -> None:
    quiet, signalling = 0x7FC00000, 0x7F800001
    bits = np.array([np.float32(3).view(np.uint32), quiet, signalling], np.uint32)
    assert class_labels(bits.view(np.float32), "labels.npy").tolist() == [3, -1, -1]


@pytest.mark.parametrize("label", [-1, 1.5, 2.0**40, np.inf, -np.inf])
def test_labels_that_are_no_classes(label: float) -> None:
    with pytest.raises(GraphError, match=r"^labels.npy: label .* of vertex 1 is not a class"):
        class_labels(np.array([0, label]), "labels.npy")
