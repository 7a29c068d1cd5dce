import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from gnnscale.core.errors import ConfigError
from gnnscale.graph import Graph
from gnnscale.nn.losses import (
    AutoLoss,
    BinaryCrossEntropy,
    CrossEntropy,
    CustomLoss,
    MeanSquaredError,
    label_kind,
)

CLASSES = np.array([0, 1, 1])
MULTILABEL = np.array([[0, 1], [1, 1], [0, 0]], np.uint8)
REGRESSION = np.array([0.5, np.nan, -2.0], np.float32)


def test_kinds_of_labels() -> None:
    given = (CLASSES, MULTILABEL, REGRESSION, REGRESSION.reshape(-1, 1))
    kinds = [label_kind(each) for each in given]
    assert kinds == ["classes", "multilabel", "regression", "regression"]


@pytest.mark.parametrize(
    ("loss", "labels", "message"),
    [
        (CrossEntropy(), MULTILABEL, "loss=cross_entropy: needs one label a vertex, and tiny has"),
        (CrossEntropy(), REGRESSION, "tiny has numbers for labels"),
        (BinaryCrossEntropy(), CLASSES, "loss=binary_cross_entropy: needs several labels a vertex"),
        (MeanSquaredError(), CLASSES, "loss=mean_squared_error: needs numbers for labels"),
        (CrossEntropy(class_weights=[1, 2, 3]), CLASSES, "has 3 numbers, and tiny has 2 cl"),
        (BinaryCrossEntropy(pos_weight=[1]), MULTILABEL, "has 1 numbers, and tiny has 2 cl"),
        (CrossEntropy(class_weights=[0, 1]), np.array([0, 0]), "no training vertex of tiny has a"),
    ],
)
def test_a_loss_is_refused_for_other_labels(labelled, loss, labels, message) -> None:
    with pytest.raises(ConfigError, match=message):
        loss.build(labelled(labels, 2))


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
        (CrossEntropy, "class_weights", 3.0, "loss.class_weights=3.0: must be a list"),
        (CrossEntropy, "class_weights", [1, -1], "-1 is no number of at least 0"),
        (CrossEntropy, "class_weights", [1, "x"], "x is no number"),
        (CrossEntropy, "class_weights", [0, 0.0], "one must be above 0"),
        (CrossEntropy, "label_smoothing", 1.0, "label_smoothing=1.0: must be at least 0 and"),
        (BinaryCrossEntropy, "pos_weight", -1, "loss.pos_weight: -1 is no number"),
        (BinaryCrossEntropy, "pos_weight", True, "loss.pos_weight=True: must be a list"),
    ],
)
def test_options_are_refused(cls: Any, option: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cls(**{option: value})


def test_the_function_gets_outputs_and_targets(labelled: Callable[..., Graph]) -> None:
    loss = CustomLoss(function="own_losses:hinge").build(labelled(CLASSES, 2))
    outputs = torch.tensor([[2.0, 0.0], [0.5, 0.0]], requires_grad=True)
    value = loss(outputs, torch.tensor([0, 1]))
    assert value.item() == pytest.approx((0 + 1.5) / 2)
    value.backward()
    torch.testing.assert_close(outputs.grad, torch.tensor([[0.0, 0.0], [0.5, -0.5]]))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_losses:each_vertex", r"returned \[2\], must return a scalar tensor"),
        ("own_losses:number", "own_losses:number: returned 1.0, must return a scalar tensor"),
        ("own_losses:nothing", "has no nothing"),
        ("no_such_module:loss", "loss.function=no_such_module:loss: no module no_such_module"),
    ],
)
def test_functions_are_refused(labelled: Callable[..., Graph], name: str, message: str) -> None:
    outputs, targets = torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ConfigError, match=message):
        CustomLoss(function=name).build(labelled(CLASSES, 2))(outputs, targets)


@pytest.mark.parametrize("name", ["loss", "os.system", ":x", "a b:c", ""])
def test_what_is_no_name(name: Any) -> None:
    with pytest.raises(ConfigError, match=r"loss\.function=.*: expected MODULE:NAME"):
        CustomLoss(function=name)


def test_by_hand_where_some_numbers_are_not_known(labelled: Callable[..., Graph]) -> None:
    targets = torch.tensor([[1.0, torch.nan], [2.0, 4.0], [torch.nan, torch.nan]])
    outputs = torch.tensor([[3.0, 9.0], [2.0, 3.0], [5.0, 5.0]], requires_grad=True)
    loss = MeanSquaredError().build(labelled(targets.numpy().astype(np.float32), 2))
    value = loss(outputs, targets)
    assert value.item() == pytest.approx((4 + 1 / 2 + 0) / 3)
    value.backward()
    expected = torch.tensor([[4.0, 0.0], [0.0, -1.0], [0.0, 0.0]]) / 3
    torch.testing.assert_close(outputs.grad, expected)
