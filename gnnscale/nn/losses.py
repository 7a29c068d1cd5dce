"""Losses that a run minimizes, chosen by the configuration group ``loss``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gnnscale.core import Array, ConfigError, Float32Array, Float64Array, brief
from gnnscale.core.config import check_name, load_named, names
from gnnscale.core.config.user_code import user_code_error

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from gnnscale.graph import SplitLabels

#: Function from outputs ``[n, width]`` float32 and targets to the mean over the ``n`` vertices, a
#: scalar. Targets are ``[n]`` int64 classes, ``[n, num_classes]`` float32 of 0 and 1 when a vertex
#: may have several labels, or ``[n, width]`` float32 numbers, NaN for unknown numbers.
Loss: TypeAlias = "Callable[[Tensor, Tensor], Tensor]"


def as_targets(labels: Tensor) -> Tensor:
    """Return labels as a loss takes them: classes int64 ``[n]``, all others float32 ``[n, k]``."""
    import torch

    if labels.is_floating_point():
        return labels.to(torch.float32).reshape(len(labels), -1)
    return labels.to(torch.float32 if labels.ndim == 2 else torch.int64)


def call_user_function(
    option: str, function: Callable[[Tensor, Tensor], Any], outputs: Tensor, targets: Tensor
) -> Any:
    """Return ``function(outputs, targets)`` of a user's loss or metric.

    ConfigError, which begins with ``option`` and names the arguments' types: the call fails.
    """
    import torch

    try:
        return function(outputs, targets)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        kinds = (
            f"{str(x.dtype).removeprefix('torch.')} {list(x.shape)}" for x in (outputs, targets)
        )
        message = f"{user_code_error(option, error)}; it gets torch tensors, {' and '.join(kinds)}"
        if isinstance(function, type):
            message += f"; a class only builds an object: pass {function.__name__}()"
        raise ConfigError(message) from error


#: Kinds of labels, in the words of messages.
_KINDS = {
    "classes": "one label per vertex",
    "multilabel": "several labels per vertex",
    "regression": "numbers as labels",
}


def label_kind(labels: Array) -> str:
    """Return the kind of ``labels``.

    ``regression``: floats; ``classes``: one integer per vertex; ``multilabel``: other arrays.
    """
    if labels.dtype.kind == "f":
        return "regression"
    return "classes" if labels.ndim == 1 else "multilabel"


def check_labels(option: str, graph: SplitLabels, kind: str) -> None:
    """Refuse, with a ConfigError that begins with ``option``, labels that are not of ``kind``."""
    actual = label_kind(graph.labels)
    if actual != kind:
        raise ConfigError(
            f"{option}: expected {_KINDS[kind]}, got {graph.name} with {_KINDS[actual]}"
        )


class _DeviceCopies:
    """Tensor with a copy on each device that has used it."""

    def __init__(self, values: Tensor) -> None:
        self._copies = {values.device: values}

    def on(self, device: torch.device) -> Tensor:
        """Return the tensor's copy on ``device``, made at the first call for it and then kept."""
        if device not in self._copies:
            self._copies[device] = next(iter(self._copies.values())).to(device)
        return self._copies[device]


@dataclass(frozen=True, kw_only=True)
class LossConfig(ABC):
    """Base of the configuration group ``loss``."""

    @abstractmethod
    def build(self, graph: SplitLabels) -> Loss:
        """Return the loss function for the labels of ``graph``.

        The loss is a mean over vertices, and a vertex's term does not depend on other vertices: the
        means of the devices' slices, weighted by numbers of vertices, give the mini-batch's mean.

        Raises:
            ConfigError: the loss cannot be computed from this kind of labels.
        """


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(LossConfig):
    """Cross-entropy over the classes, for vertices with one label.

    Weights are scaled so that their mean over the training vertices is 1, and the loss is
    ``sum_i w_i l_i / n`` over ``n`` vertices. PyTorch divides by the sum of the ``n`` weights
    instead; the weight of a vertex would then depend on the split of the mini-batch.

    Attributes:
        class_weights: weight of each class, a list of a number per class; or ``balanced``, the
            inverse of the class's share of the training vertices; null: equal weights.
        label_smoothing: share of the target that is spread equally over all classes; at least 0
            and below 1.
    """

    class_weights: Any | None = None
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self.class_weights not in (None, "balanced"):
            _check_weights("loss.class_weights", self.class_weights, or_else="balanced or null")
            if not any(self.class_weights):
                raise ConfigError(
                    f"loss.class_weights={list(self.class_weights)}: expected a weight above 0"
                )
        if not 0 <= self.label_smoothing < 1:
            raise ConfigError(
                f"loss.label_smoothing={self.label_smoothing}: expected at least 0 and below 1"
            )

    def build(self, graph: SplitLabels) -> Loss:
        """Return the loss function; ConfigError: labels are no classes, or weights do not fit."""
        import torch
        from torch.nn import functional

        check_labels("loss=cross_entropy", graph, "classes")
        smoothing = self.label_smoothing
        if self.class_weights is None:

            def plain(outputs: Tensor, targets: Tensor) -> Tensor:
                return functional.cross_entropy(outputs, targets, label_smoothing=smoothing)

            return plain
        weights = _DeviceCopies(torch.from_numpy(self._weights(graph)))

        def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
            total = functional.cross_entropy(
                outputs,
                targets,
                weights.on(outputs.device),
                reduction="sum",
                label_smoothing=smoothing,
            )
            return total / len(targets)

        return weighted

    def _weights(self, graph: SplitLabels) -> Float32Array:
        """Return ``[num_classes]`` weights, scaled to mean 1 over the labeled training vertices.

        ConfigError: another number of weights than classes, or only weights of 0 at these vertices.
        """
        labels = graph.labels[graph.split.train_idx]
        counts = np.bincount(labels[labels >= 0], minlength=graph.num_classes).astype(np.float64)
        if self.class_weights == "balanced":
            weights = np.divide(1.0, counts, where=counts > 0, out=np.zeros_like(counts))
        else:
            weights = np.array(self.class_weights, np.float64)
            _check_length("loss.class_weights", weights, graph)
        mean = float(weights @ counts) / max(float(counts.sum()), 1.0)
        if not mean > 0:
            raise ConfigError(
                f"loss.class_weights={self.class_weights}: expected a weight above 0 for the class "
                f"of a training vertex of {graph.name}"
            )
        scaled: Float32Array = (weights / mean).astype(np.float32)
        return scaled


@dataclass(frozen=True, kw_only=True)
class BinaryCrossEntropy(LossConfig):
    """Binary cross-entropy of each class, for vertices with several labels.

    Attributes:
        pos_weight: weight of a present label relative to an absent label: a number; a list of a
            number per class; or ``balanced``, the number of absent training labels of the class for
            each present one; null: 1.
    """

    pos_weight: Any | None = None

    def __post_init__(self) -> None:
        weight = self.pos_weight
        if weight not in (None, "balanced"):
            listed = [weight] if _is_number(weight) else weight
            _check_weights("loss.pos_weight", listed, or_else="a number, balanced or null")

    def build(self, graph: SplitLabels) -> Loss:
        """Return the loss; ConfigError: labels are not multilabel, or weights do not fit them."""
        import torch
        from torch.nn import functional

        check_labels("loss=binary_cross_entropy", graph, "multilabel")
        weights = None
        if self.pos_weight is not None:
            values = np.array(
                _absent_per_present(graph) if self.pos_weight == "balanced" else self.pos_weight,
                np.float32,
            )
            if values.ndim:
                _check_length("loss.pos_weight", values, graph)
            weights = _DeviceCopies(torch.from_numpy(values.reshape(-1)).expand(graph.num_classes))

        def loss(outputs: Tensor, targets: Tensor) -> Tensor:
            weight = None if weights is None else weights.on(outputs.device)
            return functional.binary_cross_entropy_with_logits(outputs, targets, pos_weight=weight)

        return loss


def _absent_per_present(graph: SplitLabels) -> Float64Array:
    """Return absent over present training labels of each class; 1 for a class without labels."""
    share: Float64Array = np.mean(graph.labels[graph.split.train_idx] > 0, axis=0)
    return np.asarray(np.divide(1 - share, share, where=share > 0, out=np.ones_like(share)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_weights(option: str, weights: Any, *, or_else: str) -> None:
    """Raise ConfigError unless ``weights`` is a non-empty list of finite numbers of at least 0.

    ``or_else`` names what the option may be in place of a list, for the message.
    """
    if not isinstance(weights, Sequence) or isinstance(weights, str) or not weights:
        raise ConfigError(f"{option}={brief(weights)}: expected a list of numbers, {or_else}")
    for weight in weights:
        if not (_is_number(weight) and math.isfinite(weight) and weight >= 0):
            raise ConfigError(f"{option}: expected numbers of at least 0, got {brief(weight)}")


def _check_length(option: str, weights: Array, graph: SplitLabels) -> None:
    if len(weights) != graph.num_classes:
        raise ConfigError(
            f"{option}: expected {graph.num_classes} numbers, the classes of {graph.name}, got "
            f"{len(weights)}"
        )


@dataclass(frozen=True, kw_only=True)
class CustomLoss(LossConfig):
    """Your function ``function(outputs, targets)``, which returns the mean loss.

    Attributes:
        function: name of the function, ``MODULE:NAME`` or ``FILE.py:NAME``. It gets outputs
            ``[n, width]`` float32 and targets: ``[n]`` int64 classes, ``[n, num_classes]`` float32
            of 0 and 1, or ``[n, width]`` float32 numbers. It returns a scalar tensor, the mean over
            the ``n`` vertices.
    """

    function: str = field(metadata=names("code"))

    def __post_init__(self) -> None:
        check_name(self.function, option="loss.function")

    def build(self, graph: SplitLabels) -> Loss:
        """Return a loss that calls the imported function; ConfigError: the import fails.

        The loss raises ConfigError if the function returns no scalar tensor.
        """
        import torch

        function = load_named(self.function, option="loss.function")

        def loss(outputs: Tensor, targets: Tensor) -> Tensor:
            option = f"loss.function={self.function}"
            value = call_user_function(option, function, outputs, targets)
            if not isinstance(value, torch.Tensor) or value.ndim:
                actual = list(value.shape) if isinstance(value, torch.Tensor) else brief(value)
                raise ConfigError(
                    f"{option}: expected a scalar tensor, the mean over the vertices, got {actual}"
                )
            if outputs.requires_grad and not value.requires_grad:
                raise ConfigError(
                    f"{option}: expected a loss with a gradient, got one that is computed without "
                    "the outputs, by NumPy, or after detach()"
                )
            return value

        return loss


@dataclass(frozen=True, kw_only=True)
class MeanSquaredError(LossConfig):
    """Mean squared error, for labels that are numbers.

    The error of a vertex is the mean over its known numbers, so that vertices count equally.
    Unknown numbers (NaN) are skipped.
    """

    def build(self, graph: SplitLabels) -> Loss:
        """Return the loss function; ConfigError: the labels are no floating-point numbers."""
        check_labels("loss=mean_squared_error", graph, "regression")

        def loss(outputs: Tensor, targets: Tensor) -> Tensor:
            return _mean_of_known(_differences(outputs, targets).square(), targets)

        return loss


@dataclass(frozen=True, kw_only=True)
class MeanAbsoluteError(LossConfig):
    """Mean absolute error, for labels that are numbers; outliers move it less than squares.

    Means are those of ``MeanSquaredError``.
    """

    def build(self, graph: SplitLabels) -> Loss:
        """Return the loss function; ConfigError: the labels are no floating-point numbers."""
        check_labels("loss=mean_absolute_error", graph, "regression")

        def loss(outputs: Tensor, targets: Tensor) -> Tensor:
            return _mean_of_known(_differences(outputs, targets).abs(), targets)

        return loss


def _differences(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return outputs minus targets; an unknown target counts as 0."""
    # NaN is replaced before it is masked: 0 times NaN would be a gradient of NaN.
    return outputs - targets.nan_to_num()


def _mean_of_known(errors: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over vertices of the mean of ``errors`` of their known targets."""
    is_known = ~targets.isnan()
    return ((errors * is_known).sum(1) / is_known.sum(1).clamp(min=1)).mean()


_LOSS_BY_KIND: dict[str, type[LossConfig]] = {
    "classes": CrossEntropy,
    "multilabel": BinaryCrossEntropy,
    "regression": MeanSquaredError,
}


@dataclass(frozen=True, kw_only=True)
class AutoLoss(LossConfig):
    """Loss by kind of labels: cross-entropy, binary cross-entropy, or mean squared error.

    It is the mean absolute error of labels whose metric is ``mae``.
    """

    def build(self, graph: SplitLabels) -> Loss:
        """Return the loss function for the graph's kind of labels."""
        if label_kind(graph.labels) == "regression" and graph.metric == "mae":
            return MeanAbsoluteError().build(graph)
        return _LOSS_BY_KIND[label_kind(graph.labels)]().build(graph)
