from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from gnnscale.config import ConfigError
from gnnscale.graph import Graph
from gnnscale.loss import BinaryCrossEntropy, CrossEntropy

LABELS = np.array([0, 0, 0, 1, -1])


def test_weights_by_hand(labelled: Callable[..., Graph]) -> None:
    """Weights 1 and 3 are 2/3 and 2 where three of four training vertices are of class 0."""
    loss = CrossEntropy(class_weights=[1, 3]).build(labelled(LABELS, 2))
    outputs = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]])
    found = loss(outputs, torch.tensor([1, 0]))
    assert found.item() == pytest.approx((2 * -math.log(3 / 4) + 2 / 3 * math.log(2)) / 2)


def test_balanced_classes_count_alike(labelled: Callable[..., Graph]) -> None:
    loss = CrossEntropy(class_weights="balanced").build(labelled(LABELS, 3))
    outputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 0, 0, 1])
    each = functional.cross_entropy(outputs, targets, reduction="none")
    # scikit-learn's weights, n / (classes * n_c), are 4/6 and 2: their mean is 1 already.
    expected = (each[:3].mean() + each[3]) / 2
    assert loss(outputs, targets).item() == pytest.approx(expected.item())


def test_a_mean_does_not_depend_on_the_split(labelled: Callable[..., Graph]) -> None:
    """Slices are weighted by their vertices, as devices are."""
    options = CrossEntropy(class_weights=[1, 5], label_smoothing=0.1)
    loss = options.build(labelled(LABELS, 2))
    outputs = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 0, 0, 1])
    parts = 0.75 * loss(outputs[:3], targets[:3]) + 0.25 * loss(outputs[3:], targets[3:])
    assert parts.item() == pytest.approx(loss(outputs, targets).item())
    # PyTorch's own mean differs in a factor alone, over the whole training set.
    weights = torch.tensor([1.0, 5.0])
    peer = functional.cross_entropy(outputs, targets, weights, label_smoothing=0.1)
    assert peer.item() == pytest.approx(loss(outputs, targets).item())


def test_labels_that_are_there_weigh_more(labelled: Callable[..., Graph]) -> None:
    several = np.array([[0, 1], [1, 1]], np.uint8)
    outputs = torch.tensor([[math.log(3.0), 0.0]])
    targets = torch.tensor([[1.0, 0.0]])
    same = BinaryCrossEntropy(pos_weight=4).build(labelled(several, 2))
    own = BinaryCrossEntropy(pos_weight=[2, 100]).build(labelled(several, 2))
    assert same(outputs, targets).item() == pytest.approx((4 * math.log(4 / 3) + math.log(2)) / 2)
    assert own(outputs, targets).item() == pytest.approx((2 * math.log(4 / 3) + math.log(2)) / 2)


@pytest.mark.parametrize(
    ("cls", "option", "value", "message"),
    [
        (CrossEntropy, "class_weights", "inverse", "class_weights=inverse: must be a list of num"),
        (CrossEntropy, "class_weights", [], "must be a list of numbers, balanced or null"),
        (CrossEntropy, "class_weights", 3.0, "loss.class_weights=3.0: must be a list"),
        (CrossEntropy, "class_weights", [1, -1], "-1 is no number of at least 0"),
        (CrossEntropy, "class_weights", [1, "x"], "x is no number"),
        (CrossEntropy, "class_weights", [0, 0.0], "one must be above 0"),
        (CrossEntropy, "label_smoothing", 1.0, "label_smoothing=1.0: must be at least 0 and"),
        (BinaryCrossEntropy, "pos_weight", -1, "loss.pos_weight: -1 is no number"),
        (BinaryCrossEntropy, "pos_weight", True, "loss.pos_weight=True: must be a list"),
        (BinaryCrossEntropy, "pos_weight", "balanced", "must be a list of numbers, a number or"),
    ],
)
def test_options_are_refused(cls: Any, option: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cls(**{option: value})
