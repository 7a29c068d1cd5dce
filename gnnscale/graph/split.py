"""Splits of vertices or edges into training, validation and test sets."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Protocol

import numpy as np

from gnnscale.core import Array, GraphError, IntArray
from gnnscale.graph.labels import check_labeled

_SLICE_ENTRIES = 1 << 20
#: What a split's ids count, by what they are of.
_COUNTED = {"vertex": "vertices", "edge": "rows of edges", "row": "rows"}


def array_slices(array: Array, overlap: int = 0) -> Iterator[tuple[int, Array]]:
    """Yield ``(first index, rows)`` for consecutive slices of ``array``, of bounded size.

    Each slice also has the first ``overlap`` rows of the next slice.
    """
    step = max(1, _SLICE_ENTRIES // max(1, math.prod(array.shape[1:])))
    for first in range(0, len(array), step):
        yield first, array[first : first + step + overlap]


def check_splits(
    path: Path,
    arrays: Mapping[str, Array],
    names: tuple[str, ...],
    labels: str,
    of: str,
) -> None:
    """Raise GraphError for a split without training part, overlaps, or invalid or unlabeled ids.

    ``names`` are the keys in ``arrays`` of the split's parts, training first, ``labels`` of the
    labels; ``of`` is ``vertex``, ``edge`` or ``row``. The ids of a part must ascend. The last part
    may lack labels; three empty parts are valid. Each worker process runs this check, in bounded
    memory.
    """
    if not any(len(arrays[name]) for name in names):
        return
    count = len(arrays[labels])
    if not len(arrays[names[0]]):
        raise GraphError(f"{path / names[0]}.npy: the split is empty, and another part is not")
    for name in names:
        file, ids = path / f"{name}.npy", arrays[name]
        if not len(ids):
            continue
        if any((part[1:] <= part[:-1]).any() for _, part in array_slices(ids, overlap=1)):
            raise GraphError(f"{file}: the ids do not rise")
        if ids[0] < 0 or ids[-1] >= count:
            bad = ids[0] if ids[0] < 0 else ids[-1]
            raise GraphError(
                f"{file}: {of} id {bad} is out of range, the graph has {count} {_COUNTED[of]}"
            )
        if name != names[-1]:
            check_labeled(arrays[labels], ids, source=file, of=of)
    parts = {path / f"{name}.npy": arrays[name] for name in names}
    for first in range(0, count, _SLICE_ENTRIES):
        _check_disjoint(parts, first, min(first + _SLICE_ENTRIES, count), of)


def _check_disjoint(parts: Mapping[Path, Array], first: int, last: int, of: str) -> None:
    """Raise GraphError if an id in [first, last) is in two of ``parts``, ascending ids by file.

    ``of`` says in the message what the ids are: ``vertex``, ``edge`` or ``row``.
    """
    in_earlier_part = np.zeros(last - first, np.bool_)
    for file, ids in parts.items():
        # With bounds of another type NumPy would copy all ids.
        begin, end = np.searchsorted(ids, np.array([first, last], ids.dtype))
        offsets = ids[begin:end] - first
        repeated = in_earlier_part[offsets]
        if repeated.any():
            duplicate = first + offsets[repeated.argmax()]
            raise GraphError(f"{file}: {of} {duplicate} is in an earlier part of the split too")
        in_earlier_part[offsets] = True


def _no_vertices() -> IntArray:
    return np.zeros(0, np.int32)


@dataclass(frozen=True, kw_only=True)
class Split:
    """Disjoint ids of training, validation and test vertices or edges; empty without a split.

    Validation and test may be empty: training then keeps the last epoch, or measures no test. In a
    store the ids are sorted, and only the test set may lack labels.
    """

    train_idx: IntArray = field(default_factory=_no_vertices)  #: training set
    valid_idx: IntArray = field(default_factory=_no_vertices)  #: validation set, for the best epoch
    test_idx: IntArray = field(default_factory=_no_vertices)  #: test set


@dataclass(frozen=True, kw_only=True)
class SplitSource:
    """Names of a split's parts in the user's input, and a hint, both for error messages."""

    names: tuple[str, str, str] = ("train_idx", "valid_idx", "test_idx")
    hint: str = (
        "gnnscale.data.random_split(graph.labels, (0.6, 0.2), seed=0) draws them, and "
        "graph.with_split sets them"
    )
    labels: str = "labels"  #: name of the labels

    def check(self, parts: Sequence[Array], graph: str, of: str = "vertex") -> None:
        """Raise GraphError naming ``graph`` if only the first of ``parts``, training, is empty."""
        train, *evaluated = parts
        if any(map(len, evaluated)) and not len(train):
            self.refuse_empty(graph, of)

    def refuse_empty(self, graph: str, of: str = "vertex") -> NoReturn:
        """Raise GraphError that no vertex or edge (``of``) of ``graph`` trains."""
        raise GraphError(f"{graph}: {self.names[0]} is missing or names no {of}; {self.hint}")

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

    @property
    def labels(self) -> Array:
        """Labels of all vertices or edges, in a form of ``Graph.labels``."""

    @property
    def num_classes(self) -> int:
        """Number of classes, or of regression targets."""

    @property
    def metric(self) -> str:
        """Name of the default metric."""

    @property
    def multilabel(self) -> bool:
        """Whether a vertex or edge may have several classes."""

    @property
    def split(self) -> Split:
        """Training, validation and test sets."""
