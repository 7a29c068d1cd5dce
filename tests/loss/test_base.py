from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gnnscale.config import ConfigError
from gnnscale.graph import Graph
from gnnscale.loss import BinaryCrossEntropy, CrossEntropy, LossConfig, MeanSquaredError, label_kind

CLASSES = np.array([0, 1, 1])
SEVERAL = np.array([[0, 1], [1, 1], [0, 0]], np.uint8)
NUMBERS = np.array([0.5, np.nan, -2.0], np.float32)


def test_kinds_of_labels() -> None:
    kinds = [label_kind(each) for each in (CLASSES, SEVERAL, NUMBERS, NUMBERS.reshape(-1, 1))]
    assert kinds == ["classes", "several", "numbers", "numbers"]


@pytest.mark.parametrize(
    ("loss", "labels", "message"),
    [
        (CrossEntropy(), SEVERAL, "loss=cross_entropy: needs one label a vertex, and tiny has"),
        (CrossEntropy(), NUMBERS, "tiny has numbers for labels"),
        (BinaryCrossEntropy(), CLASSES, "loss=binary_cross_entropy: needs several labels a vertex"),
        (MeanSquaredError(), CLASSES, "loss=mean_squared_error: needs numbers for labels"),
        (CrossEntropy(class_weights=[1, 2, 3]), CLASSES, "has 3 numbers, and tiny has 2 cl"),
        (BinaryCrossEntropy(pos_weight=[1]), SEVERAL, "has 1 numbers, and tiny has 2 cl"),
        (CrossEntropy(class_weights=[0, 1]), np.array([0, 0]), "no training vertex of tiny has a"),
    ],
)
def test_a_loss_is_refused_for_other_labels(
    labelled: Callable[..., Graph], loss: LossConfig, labels: np.ndarray, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        loss.build(labelled(labels, 2))
