"""What every loss has.

Options are read before torch is imported; only ``build`` needs it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from numpy.typing import NDArray

from gnnscale.config import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from gnnscale.graph import Graph

__all__ = ["Loss", "LossConfig", "check_labels", "label_kind"]

#: From outputs ``[n, width]`` float32 and targets to the mean over the ``n`` vertices, a scalar.
#: Targets are ``[n]`` int64 classes, ``[n, num_classes]`` float32 of 0 and 1 where a vertex may
#: have several labels, or ``[n, width]`` float32 numbers, NaN where one is not known.
Loss: TypeAlias = "Callable[[Tensor, Tensor], Tensor]"

#: What labels are, in the words of messages.
_KINDS = {
    "classes": "one label a vertex",
    "several": "several labels a vertex",
    "numbers": "numbers for labels",
}


def label_kind(labels: NDArray[Any]) -> str:
    """Return what ``labels`` are: ``classes``, ``several`` (classes of a vertex) or ``numbers``."""
    if labels.dtype.kind == "f":
        return "numbers"
    return "classes" if labels.ndim == 1 else "several"


def check_labels(option: str, graph: Graph, kind: str) -> None:
    """Refuse a graph whose labels are not of ``kind``, as ``label_kind`` says.

    Raises:
        ConfigError: they are not; the message begins with ``option``.
    """
    found = label_kind(graph.labels)
    if found != kind:
        raise ConfigError(f"{option}: needs {_KINDS[kind]}, and {graph.name} has {_KINDS[found]}")


@dataclass(frozen=True, kw_only=True)
class LossConfig(ABC):
    """Base of the configuration group ``loss``."""

    @abstractmethod
    def build(self, graph: Graph) -> Loss:
        """Return the loss of a graph's training vertices.

        It is a mean over the vertices that it is given, each of which counts by itself: so the
        means of slices, weighted by their vertices, are the mean of the mini-batch.

        Raises:
            ConfigError: the graph's labels are not what the loss compares.
        """
