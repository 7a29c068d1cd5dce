"""Splits of vertices or edges into training, validation and test sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gnnscale.core import Array, GraphError, IntArray
from gnnscale.graph.store_format import check_labeled


def _no_vertices() -> IntArray:
    return np.zeros(0, np.int32)


@dataclass(frozen=True, kw_only=True)
class Split:
    """Disjoint ids of training, validation and test vertices, or edges; ``[n]`` each.

    In a store the ids are sorted, and only test vertices may lack a label. All three are empty if
    the graph has no split.
    """

    train_idx: IntArray = field(default_factory=_no_vertices)  #: training set
    valid_idx: IntArray = field(default_factory=_no_vertices)  #: validation set, for the best epoch
    test_idx: IntArray = field(default_factory=_no_vertices)  #: test set


@dataclass(frozen=True, kw_only=True)
class SplitSource:
    """Names of a split's parts at their source, and a hint, for errors."""

    names: tuple[str, str, str] = ("train_idx", "valid_idx", "test_idx")
    hint: str = (
        "gnnscale.data.random_split(graph.labels, (0.6, 0.2), seed=0) draws them, and "
        "graph.with_split sets them"
    )

    def check(self, parts: Sequence[Array], graph: str, of: str = "vertex") -> None:
        """Raise GraphError if some, but not all, parts of a split are empty."""
        empty = [name for name, ids in zip(self.names, parts, strict=True) if not len(ids)]
        if empty and len(empty) < len(parts):
            raise GraphError(
                f"{graph}: {' and '.join(empty)} is missing or names no {of}; training needs all "
                f"of {', '.join(self.names)}, since validation chooses the best epoch and test "
                f"measures it; {self.hint}"
            )

    def check_labeled(
        self, parts: Sequence[Array], labels: Array, graph: str, of: str = "vertex"
    ) -> None:
        """Raise GraphError for an unlabeled vertex or edge in the training or validation set."""
        for name, ids in zip(self.names[:2], parts[:2], strict=True):
            hint = f"; leave them out of {name}"
            check_labeled(labels, ids, source=graph, of=of, part=name, hint=hint)


class SplitLabels(Protocol):
    """Labels and split of a graph's vertices (``Graph``) or edges (``EdgeLabels``)."""

    @property
    def name(self) -> str:
        """Name of the graph, for errors."""
        ...

    @property
    def labels(self) -> Array:
        """Labels of all vertices or edges, in a form of ``Graph.labels``."""
        ...

    @property
    def num_classes(self) -> int:
        """Number of classes, or of regression targets."""
        ...

    @property
    def metric(self) -> str:
        """Name of the default metric."""
        ...

    @property
    def multilabel(self) -> bool:
        """Whether a vertex or edge may have several classes."""
        ...

    @property
    def split(self) -> Split:
        """Training, validation and test sets."""
        ...
