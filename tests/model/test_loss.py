from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gnnscale.graph import Graph
from gnnscale.model.loss import seed_loss


def graph(labels: np.ndarray, num_classes: int) -> Graph:
    none = np.zeros(0, np.int32)
    return Graph(
        name="tiny",
        indptr=np.zeros(len(labels) + 1, np.int64),
        indices=none,
        features=np.zeros((len(labels), 1), np.float32),
        feature_dtype="float32",
        labels=labels,
        num_classes=num_classes,
        train_idx=none,
        valid_idx=none,
        test_idx=none,
    )


def test_cross_entropy_by_hand() -> None:
    logits = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]])
    loss = seed_loss(graph(np.array([0, 0, 1]), 2), logits, np.array([2, 0], np.int32))
    assert loss.item() == pytest.approx((-math.log(3 / 4) - math.log(1 / 2)) / 2)


def test_binary_cross_entropy_by_hand() -> None:
    logits = torch.tensor([[math.log(3.0), 0.0]])
    labels = np.array([[0, 0], [1, 0]], np.uint8)
    loss = seed_loss(graph(labels, 2), logits, np.array([1]))
    assert loss.item() == pytest.approx((-math.log(3 / 4) - math.log(1 / 2)) / 2)
