"""Splits as users have them: masks, ids, one of several masks, dictionaries; or a random split."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnscale.core import Array, GraphError, IntArray, brief
from gnnscale.data.array_inputs import as_array, vertex_ids
from gnnscale.data.labels import Labels
from gnnscale.data.splits import random_edge_split, random_split
from gnnscale.data.validation import PART_NAMES, part_ids
from gnnscale.graph import Graph, Split, SplitSource
from gnnscale.graph.labels import labeled_vertices

#: Accepted keys of each part in a dictionary, such as that of OGB's ``get_idx_split``.
_KEYS = (("train",), ("valid", "val", "validation"), ("test",))
#: Shares of training and validation in a random split, those of ``dataset.split=random``.
_FRACTIONS = (0.6, 0.2)
_RANDOM_HINT = "split='random' draws a split"


@dataclass(frozen=True, kw_only=True)
class SplitInput:
    """Split as a user gives it."""

    #: training, validation and test: each ids, a mask ``[n]`` or masks ``[n, k]``; None: no ids
    parts: tuple[Any, ...] = (None, None, None)
    names: tuple[str, ...] = ("train_idx", "valid_idx", "test_idx")  #: names of the parts in errors
    #: whether each part is masks, or (False) ids, by its name. None: booleans are masks
    are_masks: tuple[bool | None, ...] = (None, None, None)
    column: int | None = None  #: column of masks ``[n, k]``. None: masks are ``[n]``
    is_random: bool = False  #: whether to draw the split instead

    @classmethod
    def of_fields(cls, fields: Any, form: str, graph: str) -> "SplitInput":
        """Return the split in ``fields``, a mapping with the names ``PART_NAMES``.

        ``form`` makes a name of errors of a field's, such as ``data.{}``. GraphError, naming the
        ``graph``: two fields are one part.
        """
        parts, names = [], []
        for synonyms in PART_NAMES:
            present = [name for name in synonyms if fields.get(name) is not None]
            if len(present) > 1:
                first, second = map(form.format, present[:2])
                raise GraphError(f"{graph}: expected one of {first} and {second}, got both")
            usual = "val_mask" if "val_mask" in synonyms else synonyms[0]
            parts.append(fields.get(present[0]) if present else None)
            names.append(present[0] if present else usual)
        return cls(
            parts=tuple(parts),
            names=tuple(map(form.format, names)),
            are_masks=tuple(name.endswith("mask") for name in names),
        )

    @classmethod
    def of_arguments(
        cls, parts: tuple[Any, ...], split: Any, mask: int | None, name: str
    ) -> "SplitInput":
        """Return the split of ``parts``, or the one that ``split`` and ``mask`` choose.

        GraphError, naming the graph ``name``: ``split`` and a part are given.
        """
        if split is not None and any(part is not None for part in parts):
            raise GraphError(f"{name}: split: expected no train_idx, valid_idx or test_idx as well")
        return cls(parts=parts).chosen(split, mask, name)

    def chosen(self, split: Any, mask: int | None, name: str) -> "SplitInput":
        """Return the split that a user's arguments ``split`` and ``mask`` choose.

        ``split`` is ``random``, a dictionary of ids by part, or None for this one; ``mask`` is the
        column of masks. GraphError, naming the graph ``name``: another value.
        """
        if mask is not None and (isinstance(mask, bool) or not isinstance(mask, (int, np.integer))):
            raise GraphError(
                f"{name}: mask={brief(mask)}: expected the number of a column of masks"
            )
        if split is None:
            return replace(self, column=None if mask is None else int(mask))
        if mask is not None:
            raise GraphError(f"{name}: mask={mask}: expected no split as well")
        if isinstance(split, str) and split == "random":
            return replace(self, is_random=True)
        if not isinstance(split, Mapping) or not split:
            raise GraphError(
                f"{name}: split={brief(split)}: expected 'random', or a dictionary of ids or masks "
                "with the keys train, valid and test"
            )
        present = [next((key for key in keys if key in split), keys[0]) for keys in _KEYS]
        for key in split:
            if key not in present:  # another word, or a second one for a part
                raise GraphError(f"{name}: split[{brief(key)!r}]: expected train, valid and test")
        return SplitInput(
            parts=tuple(split.get(key) for key in present),
            names=tuple(f"split[{key!r}]" for key in present),
        )

    @property
    def source(self) -> SplitSource:
        """Names of the parts, and how to get a split, for later errors."""
        train, valid, test = self.names
        return SplitSource(names=(train, valid, test), hint=_RANDOM_HINT)

    def read(self, labels: Labels, num_vertices: int, name: str) -> Split:
        """Return the split of the vertices of graph ``name``; GraphError: not valid."""
        if self.is_random:
            if not labels.num_classes:
                raise GraphError(f"{name}: split='random': no vertex has a label")
            return _random_parts(random_split(labels.values, _FRACTIONS, seed=0), name, "vertices")
        return self._read(num_vertices, name, "vertex")

    def read_edges(self, labels: Array, ends: IntArray, name: str) -> Split:
        """Return the split of edges with ``ends`` ``[n, 2]``; GraphError: not valid.

        A random split has all edges between two vertices in one part.
        """
        if self.is_random:
            parts = random_edge_split(labels, ends, _FRACTIONS, seed=0)
            return _random_parts(parts, name, "edges")
        return self._read(len(ends), name, "edge")

    def _read(self, count: int, name: str, of: str) -> Split:
        arrays = [
            None if values is None else as_array(values, f"{name}: {part}")
            for part, values in zip(self.names, self.parts, strict=True)
        ]
        if self.column is not None and not any(a is not None and a.ndim == 2 for a in arrays):
            raise GraphError(f"{name}: mask={self.column}: expected masks [{count}, k]")
        part_of = np.full(count, -1, np.int8)
        sorted_parts: list[IntArray] = []
        for number, values in enumerate(arrays):
            what = f"{name}: {self.names[number]}"
            ids = vertex_ids([], count, what)
            if values is not None:
                column, is_mask = self.column, self.are_masks[number]
                ids = part_ids(
                    values, count, what, column=column, option="mask", of=of, is_mask=is_mask
                )
            if len(twice := ids[1:][ids[1:] == ids[:-1]]):
                raise GraphError(f"{what} names {of} {twice[0]} twice")
            if len(shared := ids[part_of[ids] >= 0]):
                other = self.names[part_of[shared[0]]]
                raise GraphError(
                    f"{name}: overlapping splits, {of} {shared[0]} of {self.names[number]} is in "
                    f"{other} too"
                )
            part_of[ids] = number
            sorted_parts.append(ids)
        train, valid, test = sorted_parts
        return Split(train_idx=train, valid_idx=valid, test_idx=test)


def _random_parts(parts: tuple[Array, Array, Array], name: str, what: str) -> Split:
    """Return the parts of a random split; GraphError: too few labeled entries of graph ``name``."""
    if not all(map(len, parts)):
        raise GraphError(
            f"{name}: split='random': expected at least one labeled entry in each part, got "
            f"{', '.join(str(len(part)) for part in parts)} {what} for train, valid, test"
        )
    train, valid, test = (np.sort(part) for part in parts)
    return Split(train_idx=train, valid_idx=valid, test_idx=test)


def with_random_split(graph: Graph) -> Graph:
    """Return ``graph`` with random splits of its labeled vertices and edges instead of its own.

    Vertices of each labeled type are split alike. GraphError: it has no labels, or too few.
    """
    source, labels, ends = SplitInput(is_random=True), graph.edge_labels, graph.edges.ends
    if labels is not None and ends is not None:
        split = source.read_edges(np.asarray(labels.labels), np.asarray(ends), graph.name)
        labels = replace(labels, split=split)
        graph = replace(graph, edges=replace(graph.edges, labels=labels))
    if labels is not None and not graph.num_classes:
        return graph
    splits = []
    for of_type in [graph.of_target(name) for name in graph.targets] or [graph]:
        span = slice(0, graph.num_vertices)
        if graph.types is not None and graph.num_classes:
            span = labeled_vertices(of_type.labels, graph.schema)
        vertices = Labels(
            values=np.asarray(of_type.labels[span]),
            num_classes=of_type.num_classes,
            metric=of_type.metric,
        )
        split = source.read(vertices, span.stop - span.start, graph.name)
        splits.append(
            [part + span.start for part in (split.train_idx, split.valid_idx, split.test_idx)]
        )
    train, valid, test = map(np.concatenate, zip(*splits, strict=True))
    return graph.with_split(train_idx=train, valid_idx=valid, test_idx=test)
