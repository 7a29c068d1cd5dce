"""Random splits of labeled vertices and edges into training, validation and test."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gnnscale.core import Array, ConfigError, Float64Array, GraphError, Int64Array, IntArray, brief
from gnnscale.data.storage.writer import SPLITS, StoreWriter
from gnnscale.graph import has_label

_LOG = logging.getLogger(__name__)
_Parts: TypeAlias = tuple[Int64Array, Int64Array, Int64Array]
#: Vertices of a class in validation or test, below which a warning names the class.
_FEW = 10
#: Classes that the warning names, at most.
_MAX_NAMED = 6


@dataclass(frozen=True, kw_only=True)
class RandomSplit:
    """Random split of labeled vertices, and of labeled edges, into training, validation and test.

    ConfigError unless both fractions are above 0, with a sum below 1.
    """

    #: shares of training and validation in (0, 1); test has the remainder
    fractions: tuple[float, float]
    seed: int
    by_pair: bool  #: whether all edges between two vertices are in one part
    stratified: bool  #: whether each part has its share of every class

    def __post_init__(self) -> None:
        # Written so that NaN is refused too.
        if not (all(share > 0 for share in self.fractions) and sum(self.fractions) < 1):
            raise ConfigError(f"{self}: expected fractions above 0 with a sum below 1")

    def divide(self, labels: Array, classes: Sequence[str] | None) -> _Parts:
        """Return the ids of the labeled ones of ``labels``, as ``random_split`` does.

        ConfigError: a part is empty.
        """
        form: dict[str, Any] = {"seed": self.seed, "stratified": self.stratified}
        parts = random_split(labels, self.fractions, classes=classes, **form)
        self._check(parts, "vertices")
        return parts

    def write(self, writer: StoreWriter, name: str) -> None:
        """Split the labeled vertices and edges of ``writer``, and set both splits in it.

        All vertices of one of ``writer.groups`` are in one part. ConfigError: a part is empty.
        """
        form: dict[str, Any] = {"seed": self.seed, "stratified": self.stratified}
        if writer.has_labels:
            classes = writer.notes.get("classes")
            parts = random_split(
                writer.labels, self.fractions, groups=writer.groups, classes=classes, **form
            )
            self._check(parts, "vertices", writer.groups)
            writer.set_split(*parts, source=f"random split of {name}")
        if (labels := writer.edges.labels) is not None:
            form["classes"] = writer.notes.get("edge_classes")
            if self.by_pair:
                parts = random_edge_split(labels, writer.edges.ends(), self.fractions, **form)
            else:
                parts = random_split(labels, self.fractions, **form)
            self._check(parts, "edges")
            writer.set_edge_split(*parts, source=f"random split of the edges of {name}")

    def _check(self, parts: Sequence[Array], what: str, groups: Array | None = None) -> None:
        sizes = [len(part) for part in parts]
        if not all(sizes):
            of_groups = ""
            if groups is not None:
                of_groups = f", of {len(np.unique(groups[np.concatenate(parts)]))} groups,"
            raise ConfigError(
                f"{self}: expected at least one of {sum(sizes)} labeled {what}{of_groups} in each "
                f"part, got {sizes[0]} for train, {sizes[1]} for valid, {sizes[2]} for test"
            )

    def __str__(self) -> str:
        return "dataset.train_fraction={}, valid_fraction={}".format(*self.fractions)


def random_split(
    labels: Array,
    fractions: tuple[float, float],
    *,
    seed: int,
    groups: Any = None,
    stratified: bool = True,
    classes: Sequence[str] | None = None,
) -> _Parts:
    """Return the ids of entries with a label in three random parts: train, valid and test.

    Each part has its share of every class, rounded up or down. With ``groups``, all entries of a
    group are in one part, sizes are as near to the shares as whole groups allow, and the log has
    the counts. A warning names classes with fewer than ten entries in validation or test.

    Args:
        labels: ``[n]`` classes (-1: unknown), or targets or multi-label zeros and ones, ``[n]`` or
            ``[n, k]``, which are split without regard to their values.
        fractions: shares of train and valid in (0, 1); test has the remainder.
        seed: seed of the random order.
        groups: ``[n]`` numbers or texts; an entry with a negative number or NaN is its own group.
            None: each entry is its own.
        stratified: whether each part has its share of every class; False also omits the warning.
        classes: names of the classes, for the warning.

    Raises:
        GraphError: ``groups`` are not ``[n]`` numbers or texts.
    """
    labeled = np.flatnonzero(has_label(labels))
    if groups is None:
        units = np.arange(len(labeled))
    else:
        units = _numbered(_group_numbers(groups, len(labels))[labeled])
    parts = _split_units(labels, labeled, units, fractions, seed=seed, stratified=stratified)
    if groups is not None:
        group_of = np.zeros(len(labels), np.int64)
        group_of[labeled] = units
        sizes = [
            f"{name} {len(part):,} of {len(np.unique(group_of[part])):,} groups"
            for name, part in zip(SPLITS, parts, strict=True)
        ]
        _LOG.info("random split by groups, each in one part: %s", ", ".join(sizes))
    if stratified:
        warn_of_small_classes(labels, parts, classes=classes)
    return parts


def random_edge_split(
    labels: Array,
    ends: IntArray,
    fractions: tuple[float, float],
    *,
    seed: int,
    stratified: bool = True,
    classes: Sequence[str] | None = None,
) -> _Parts:
    """Return random train, valid and test edges; all edges between two vertices are in one part.

    A copy or a reverse of a test edge often has the same label, so training on it would reveal the
    label. Otherwise the split is that of ``random_split``, whose further arguments it takes.

    Args:
        labels: ``[n]`` of the edges; an edge without a label is in no part.
        ends: ``[n, 2]`` sources and destinations.
        fractions, seed, stratified, classes: as in ``random_split``.

    Returns:
        Indices of the edges of each part, ``[k]``.
    """
    labeled = np.flatnonzero(has_label(labels))
    pairs = _numbered(np.sort(np.asarray(ends)[labeled], axis=1))
    sizes = np.bincount(pairs)
    if len(sizes) < len(labeled):
        _LOG.info(
            "%s of %s labeled edges join two vertices that another edge joins too; all edges of a "
            "pair are in one part of the split. dataset.edge_split_by=edge splits edge by edge",
            *(f"{int(sizes[sizes > 1].sum()):,}", f"{len(labeled):,}"),
        )
    parts = _split_units(labels, labeled, pairs, fractions, seed=seed, stratified=stratified)
    if stratified:
        warn_of_small_classes(labels, parts, classes=classes)
    return parts


def warn_of_small_classes(
    labels: Array, parts: Sequence[Array], *, classes: Sequence[str] | None = None
) -> None:
    """Warn of classes with fewer than ten entries in validation or test, which measure little.

    ``parts`` are the ids of train, valid and test, ``classes`` the names of the classes. Labels
    that are no classes pass.
    """
    if not _are_classes(labels):
        return
    length = int(labels.max(initial=-1)) + 1
    of_parts = [labels[part] for part in parts]
    total, *of_part = (
        np.bincount(classes_of[classes_of >= 0], minlength=length)
        for classes_of in (labels, *of_parts)
    )
    counts, present = np.stack(of_part), total > 0
    few = np.flatnonzero(present & ((counts[1:] < _FEW).any(axis=0) | (counts[0] == 0)))
    if not len(few):
        return
    few = few[np.argsort(counts[1:, few].min(axis=0), kind="stable")]
    named = [
        f"{brief(repr(classes[number])) if classes else number} "
        f"(train {counts[0, number]}, valid {counts[1, number]}, test {counts[2, number]})"
        for number in few[:_MAX_NAMED].tolist()
    ]
    more = f" and {len(few) - _MAX_NAMED} more" if len(few) > _MAX_NAMED else ""
    _LOG.warning(
        "split: validation or test has fewer than %d of class %s%s; metrics vary widely",
        *(_FEW, ", ".join(named), more),
    )


def _are_classes(labels: Array) -> bool:
    return labels.ndim == 1 and labels.dtype.kind in "biu"


def _group_numbers(groups: Any, count: int) -> Int64Array:
    """Return numbers ``[count]`` of the groups; entries that are their own group get new ones."""
    values = np.asarray(groups)
    if values.dtype.kind == "O":
        values = values.astype(str)
    if values.shape != (count,) or values.dtype.kind not in "biufUS":
        raise GraphError(
            f"groups: expected numbers or texts [{count}], got {values.dtype}{list(values.shape)}"
        )
    numbers: Int64Array = np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    if values.dtype.kind in "if":
        ungrouped = ~(values >= 0)  # NaN too
        numbers[ungrouped] = count + np.arange(np.count_nonzero(ungrouped))
    return numbers


def _numbered(values: IntArray) -> Int64Array:
    """Return ``[n]`` a number for each row of ``values``, equal for equal rows.

    Numbers count from 0 by first appearance, so that distinct rows are numbered in order.
    """
    _, first, inverse = np.unique(values, axis=0, return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return number[inverse.reshape(-1)]


def _split_units(
    labels: Array,
    labeled: Int64Array,
    units: Int64Array,
    fractions: tuple[float, float],
    *,
    seed: int,
    stratified: bool,
) -> _Parts:
    """Return the ids ``labeled`` in three parts; those of one of ``units`` are in one part.

    ``units`` ``[len(labeled)]`` count from 0.
    """
    sizes = np.bincount(units)
    order = np.random.Generator(np.random.Philox(seed)).permutation(len(sizes))
    whole = len(sizes) < len(labeled)
    by_class = stratified and _are_classes(labels) and len(labeled) > 0
    if whole or by_class:
        strata = labels[labeled] if by_class else np.zeros(len(labeled), np.int64)
        part_of_unit = _parts_of_strata(strata, units, sizes, order, fractions)
    else:
        bounds = [round(len(order) * share) for share in np.cumsum(fractions)]
        part_of_unit = np.empty(len(order), np.int64)
        part_of_unit[order] = np.searchsorted(bounds, np.arange(len(order)), side="right")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    entries = np.argsort(rank[units], kind="stable") if whole else order
    part = part_of_unit[units[entries]]
    train, valid, test = (labeled[entries[part == number]] for number in range(3))
    return train, valid, test


def _parts_of_strata(
    classes: Array,
    units: Int64Array,
    sizes: Int64Array,
    order: Int64Array,
    fractions: tuple[float, float],
) -> Int64Array:
    """Return the part ``[num_units]`` of each unit, 0 to 2.

    A stratum is the units of one size and one class, the rarest class in the unit. Large units come
    first, so that small ones fill up the parts. Args are ``[n]`` classes and units of the entries,
    and the units' sizes and random order, ``[num_units]``.
    """
    _, class_of, counts = np.unique(classes, return_inverse=True, return_counts=True)
    rank = np.argsort(np.argsort(counts, kind="stable"), kind="stable")
    rarest = np.full(len(sizes), len(counts))
    np.minimum.at(rarest, units, rank[class_of.reshape(-1)])
    ranked = order[np.lexsort((rarest[order], -sizes[order]))]
    keys = np.stack([sizes[ranked], rarest[ranked]])
    firsts = np.flatnonzero(np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)))
    shares = np.array([*fractions, 1 - sum(fractions)])
    quotas = _quotas(np.diff(np.append(firsts, len(ranked))), keys[0, firsts], shares)
    part_of_unit = np.empty(len(sizes), np.int64)
    part_of_unit[ranked] = np.repeat(np.tile(np.arange(3), len(firsts)), quotas.reshape(-1))
    return part_of_unit


def _quotas(counts: Int64Array, sizes: Int64Array, shares: Float64Array) -> Int64Array:
    """Return ``[num_strata, 3]``, how many units of each stratum go to each part.

    A stratum has ``counts`` units of ``sizes`` entries each. What rounding to whole units takes
    from a part is carried over to later strata. For units of one entry, no part's carry reaches an
    entry, so that each quota is its exact share rounded up or down.
    """
    quotas = np.empty((len(counts), 3), np.int64)
    carry = np.zeros(3)  # entries that each part lacks
    for number, (count, size) in enumerate(zip(counts.tolist(), sizes.tolist(), strict=True)):
        exact = np.round(count * shares, 9)  # 5 * 0.2 is whole
        target = np.maximum(exact + np.trunc(carry / size), 0)
        target = np.round(target * (count / target.sum()), 9)
        quota = np.floor(target).astype(np.int64)
        carry += (exact - quota) * size
        open_parts = np.where(target > quota, carry, -np.inf)
        for part in np.argsort(-open_parts, kind="stable")[: count - int(quota.sum())]:
            quota[part] += 1
            carry[part] -= size
        quotas[number] = quota
    return quotas
