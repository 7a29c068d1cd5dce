import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional

from gnnscale.core.errors import ConfigError
from gnnscale.nn.losses import (
    AutoLoss,
    BinaryCrossEntropy,
    CrossEntropy,
    CustomLoss,
    MeanAbsoluteError,
    MeanSquaredError,
    label_kind,
)

CLASSES = np.array([0, 1, 1])
MULTILABEL = np.array([[0, 1], [1, 1], [0, 0]], np.uint8)
REGRESSION = np.array([0.5, np.nan, -2.0], np.float32)


def test_kinds_of_labels():
    every = (CLASSES, MULTILABEL, REGRESSION, REGRESSION.reshape(-1, 1))
    kinds = [label_kind(each) for each in every]
    assert kinds == ["classes", "multilabel", "regression", "regression"]


@pytest.mark.parametrize(
    ("loss", "labels", "message"),
    [
        (CrossEntropy(), MULTILABEL, "loss=cross_entropy: expected one label per vertex, got tiny"),
        (CrossEntropy(), REGRESSION, "got tiny with numbers as labels"),
        (BinaryCrossEntropy(), CLASSES, "loss=binary_cross_entropy: expected several labels per v"),
        (MeanSquaredError(), CLASSES, "loss=mean_squared_error: expected numbers as labels"),
        (CrossEntropy(class_weights=[1, 2, 3]), CLASSES, "2 numbers, the classes of tiny, got 3"),
        (BinaryCrossEntropy(pos_weight=[1]), MULTILABEL, "2 numbers, the classes of tiny, got 1"),
        (CrossEntropy(class_weights=[0, 1]), np.array([0, 0]), "a training vertex of tiny"),
    ],
)
def test_a_loss_is_refused_for_other_labels(labeled, loss, labels, message):
    with pytest.raises(ConfigError, match=message):
        loss.build(labeled(labels, 2))


@pytest.mark.parametrize(
    ("cls", "option", "value", "message"),
    [
        (CrossEntropy, "class_weights", "inverse", "class_weights=inverse: expected a list of num"),
        (CrossEntropy, "class_weights", 3.0, "loss.class_weights=3.0: expected a list"),
        (CrossEntropy, "class_weights", [1, -1], "expected numbers of at least 0, got -1"),
        (CrossEntropy, "class_weights", [1, "x"], "at least 0, got x"),
        (CrossEntropy, "class_weights", [0, 0.0], "expected a weight above 0"),
        (CrossEntropy, "label_smoothing", 1.0, "label_smoothing=1.0: expected at least 0 and"),
        (BinaryCrossEntropy, "pos_weight", -1, "loss.pos_weight: expected numbers of at least 0"),
        (BinaryCrossEntropy, "pos_weight", True, "loss.pos_weight=True: expected a list"),
        *(
            (CustomLoss, "function", name, r"loss\.function=.*: expected MODULE:NAME")
            for name in ("loss", "os.system", ":x", "a b:c", "")
        ),
    ],
)
def test_options_are_refused(cls, option, value, message):
    with pytest.raises(ConfigError, match=message):
        cls(**{option: value})


def test_the_labels_say_which(labeled):
    outputs = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    classes = torch.tensor([0, 1])
    several = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    numbers = torch.tensor([[1.0, 0.0], [-1.0, 2.0]])
    of_classes = AutoLoss().build(labeled(classes.numpy(), 2))(outputs, classes)
    of_several = AutoLoss().build(labeled(several.numpy().astype(np.uint8), 2))(outputs, several)
    of_numbers = AutoLoss().build(labeled(numbers.numpy(), 2))(outputs, numbers)
    assert of_classes == functional.cross_entropy(outputs, classes)
    assert of_several == functional.binary_cross_entropy_with_logits(outputs, several)
    assert of_numbers.item() == pytest.approx((0 + 4 + 1.5**2 + 1) / 4)


LABELS = np.array([0, 0, 0, 1, -1])


def test_weights_by_hand(labeled):
    """Weights 1 and 3 are 2/3 and 2 where three of four training vertices are of class 0."""
    loss = CrossEntropy(class_weights=[1, 3]).build(labeled(LABELS, 2))
    outputs = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]])
    found = loss(outputs, torch.tensor([1, 0]))
    assert found.item() == pytest.approx((2 * -math.log(3 / 4) + 2 / 3 * math.log(2)) / 2)


def test_balanced_classes_count_alike(labeled):
    loss = CrossEntropy(class_weights="balanced").build(labeled(LABELS, 3))
    outputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 0, 0, 1])
    each = functional.cross_entropy(outputs, targets, reduction="none")
    # scikit-learn's weights, n / (classes * n_c), are 4/6 and 2: their mean is 1 already.
    expected = (each[:3].mean() + each[3]) / 2
    assert loss(outputs, targets).item() == pytest.approx(expected.item())


def test_a_mean_does_not_depend_on_the_split(labeled):
    """Slices are weighted by their vertices, as devices are."""
    options = CrossEntropy(class_weights=[1, 5], label_smoothing=0.1)
    loss = options.build(labeled(LABELS, 2))
    outputs = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 0, 0, 1])
    parts = 0.75 * loss(outputs[:3], targets[:3]) + 0.25 * loss(outputs[3:], targets[3:])
    assert parts.item() == pytest.approx(loss(outputs, targets).item())
    # PyTorch's own mean differs in a factor alone, over the whole training set.
    weights = torch.tensor([1.0, 5.0])
    peer = functional.cross_entropy(outputs, targets, weights, label_smoothing=0.1)
    assert peer.item() == pytest.approx(loss(outputs, targets).item())


def test_labels_that_are_there_weigh_more(labeled):
    several = np.array([[0, 1], [1, 1]], np.uint8)
    outputs = torch.tensor([[math.log(3.0), 0.0]])
    targets = torch.tensor([[1.0, 0.0]])
    same = BinaryCrossEntropy(pos_weight=4).build(labeled(several, 2))
    own = BinaryCrossEntropy(pos_weight=[2, 100]).build(labeled(several, 2))
    assert same(outputs, targets).item() == pytest.approx((4 * math.log(4 / 3) + math.log(2)) / 2)
    assert own(outputs, targets).item() == pytest.approx((2 * math.log(4 / 3) + math.log(2)) / 2)


def test_balanced_weights_are_absent_labels_over_present_ones(labeled):
    """Of four vertices one has class 0, three class 1, and none class 2."""
    several = np.array([[1, 1, 0], [0, 1, 0], [0, 1, 0], [0, 0, 0]], np.uint8)
    loss = BinaryCrossEntropy(pos_weight="balanced").build(labeled(several, 3))
    outputs, targets = torch.zeros(4, 3), torch.from_numpy(several).float()
    # Each class loses as much by its present labels as by its absent ones.
    weights = 2 * 3 + 2 * 1 + 4
    assert loss(outputs, targets).item() == pytest.approx(weights * math.log(2) / 12)
    with pytest.raises(ConfigError, match="expected a list of numbers, a number, balanced or null"):
        BinaryCrossEntropy(pos_weight="equal")


def test_the_function_gets_outputs_and_targets(labeled):
    loss = CustomLoss(function="own_losses:hinge").build(labeled(CLASSES, 2))
    outputs = torch.tensor([[2.0, 0.0], [0.5, 0.0]], requires_grad=True)
    value = loss(outputs, torch.tensor([0, 1]))
    assert value.item() == pytest.approx((0 + 1.5) / 2)
    value.backward()
    torch.testing.assert_close(outputs.grad, torch.tensor([[0.0, 0.0], [0.5, -0.5]]))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_losses:each_vertex", r"a scalar tensor, the mean over the vertices, got \[2\]"),
        ("own_losses:number", "number: expected a scalar tensor, .* over the vertices, got 1"),
        ("own_losses:nothing", "has no nothing"),
        ("own_losses:detached", "expected a loss with a gradient, got one that is computed with"),
        (
            "own_losses:by_numpy",
            r"by_numpy fails with AttributeError: .*astype.* "
            r"\(.*own_losses.py:\d+\); it gets torch tensors, float32 \[2, 2\] and int64 \[2\]",
        ),
        ("torch.nn:CrossEntropyLoss", r"a class only builds an object: pass CrossEntropyLoss\(\)"),
        ("no_such_module:loss", "loss.function=no_such_module:loss: no module no_such_module"),
    ],
)
def test_functions_are_refused(labeled, name, message):
    outputs, targets = torch.zeros(2, 2, requires_grad=True), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ConfigError, match=message):
        CustomLoss(function=name).build(labeled(CLASSES, 2))(outputs, targets)


def test_unknown_numbers_are_left_out_by_hand(labeled):
    targets = torch.tensor([[1.0, torch.nan], [2.0, 4.0], [torch.nan, torch.nan]])
    outputs = torch.tensor([[3.0, 9.0], [2.0, 3.0], [5.0, 5.0]], requires_grad=True)
    loss = MeanSquaredError().build(labeled(targets.numpy().astype(np.float32), 2))
    value = loss(outputs, targets)
    assert value.item() == pytest.approx((4 + 1 / 2 + 0) / 3)
    value.backward()
    expected = torch.tensor([[4.0, 0.0], [0.0, -1.0], [0.0, 0.0]]) / 3
    torch.testing.assert_close(outputs.grad, expected)


def test_absolute_errors_skip_unknown_numbers(labeled):
    outputs = torch.tensor([[3.0, 5.0], [1.0, -1.0]], requires_grad=True)
    targets = torch.tensor([[1.0, torch.nan], [1.0, 2.0]])
    value = MeanAbsoluteError().build(labeled(targets.numpy(), 2))(outputs, targets)
    assert value.item() == pytest.approx((2 + 3 / 2) / 2)
    value.backward()
    torch.testing.assert_close(outputs.grad, torch.tensor([[0.5, 0.0], [0.0, -0.25]]))


def test_labels_whose_metric_is_mae_have_absolute_errors(labeled):
    outputs, targets = torch.tensor([[3.0]]), torch.tensor([[1.0]])
    rows = labeled(targets.numpy(), 1)
    assert AutoLoss().build(rows)(outputs, targets).item() == 4
    of_rows = SimpleNamespace(labels=rows.labels, name="rows", metric="mae")
    assert AutoLoss().build(of_rows)(outputs, targets).item() == 2
