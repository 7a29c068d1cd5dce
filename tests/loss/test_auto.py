from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional

from gnnscale.graph import Graph
from gnnscale.loss import AutoLoss


def test_the_labels_say_which(labelled: Callable[..., Graph]) -> None:
    outputs = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    classes = torch.tensor([0, 1])
    several = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    numbers = torch.tensor([[1.0, 0.0], [-1.0, 2.0]])
    of_classes = AutoLoss().build(labelled(classes.numpy(), 2))(outputs, classes)
    of_several = AutoLoss().build(labelled(several.numpy().astype(np.uint8), 2))(outputs, several)
    of_numbers = AutoLoss().build(labelled(numbers.numpy(), 2))(outputs, numbers)
    assert of_classes == functional.cross_entropy(outputs, classes)
    assert of_several == functional.binary_cross_entropy_with_logits(outputs, several)
    assert of_numbers.item() == pytest.approx((0 + 4 + 1.5**2 + 1) / 4)
