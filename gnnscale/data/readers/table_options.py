"""Options of tables of vertices and edges."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from gnnscale.core import ConfigError, brief, check_choice
from gnnscale.core.config.untrusted import names
from gnnscale.data import base
from gnnscale.data.source import GraphSource
from gnnscale.data.storage import StoreWriter
from gnnscale.data.tables.categories import TrainedColumns
from gnnscale.data.tables.feature_columns import log_columns
from gnnscale.data.tables.label_columns import LABEL_KINDS, UNLABELED_POLICIES
from gnnscale.data.tables.time_columns import TIME_UNIT_CHOICES
from gnnscale.data.time_ranges import time_ranges
from gnnscale.data.time_split import TimeSplit, check_bounds, write_split
from gnnscale.graph import Graph, read_meta

_LOG = logging.getLogger(__name__)
StoredSource = TypeVar("StoredSource", bound=base.StoredDataset)
#: Default name of the column of weights, which may be missing.
WEIGHT = "weight"
#: Default name of the column of the split, which masks may replace.
SPLIT = "split"
#: Treatment of ids that stand only in the edges, and of empty numbers among the features.
UNKNOWN_ID_POLICIES = ("vertices", "drop", "refuse")
MISSING_POLICIES = ("mean", "drop", "refuse")
#: Options that a graph to predict does not take from the run; its columns are in the run's schema.
_OF_GRAPH = (
    *("name", "raw", "store", "features", "categories", "edge_features", "edge_categories"),
    *("split", "train_fraction", "valid_fraction", "split_seed", "valid_from", "test_from"),
    *("missing", "standardize", "feature_dtype", "memory_bytes"),
)


class IdOptions(NamedTuple):
    """Columns of ids in the tables of vertices and edges, and how ids are read."""

    id: str | None = "id"  #: column of the vertices. None: ids are row numbers from 0
    source: str = "source"  #: column of the edges
    target: str = "target"  #: column of the edges
    type: str = "auto"  #: one of ``ID_TYPES``
    unknown: str = "refuse"  #: one of ``UNKNOWN_ID_POLICIES``


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """Options on the columns of one table, of vertices or edges, as ``TableOptions`` has them."""

    prefix: str = ""  #: prefix of the options' names: ``edge_`` for edges
    label: str | None = None
    label_kind: str = "auto"
    reads_labels: bool = True  #: whether labels and split are read
    split: str = "published"  #: one of ``SPLITS``
    split_column: str = SPLIT
    split_group: str | None = None
    unlabeled: str = "refuse"
    features: list[str] | None = None
    categories: list[str] | None = None
    missing: str = "mean"
    time: str | None = None  #: column of the times of rows. None: there are none
    time_unit: str = "auto"  #: one of ``TIME_UNIT_CHOICES``
    advises: bool = True  #: whether the graph is to train a model


@dataclass(frozen=True, kw_only=True)
class TableOptions(base.Dataset):
    """Options on the columns of a table of vertices and a table of edges.

    Attributes:
        split: ``published`` by ``split_column``; ``random``; or ``time``, by the times of labeled
            vertices and edges.
        label: column of the labels, null if unknown. None: vertices have no labels and no split.
        label_kind: one of ``LABEL_KINDS``; ``auto`` reads texts and integers as classes, other
            numbers as regression targets.
        split_column: column of words that name the part of each vertex. If the default column is
            missing, masks ``train_mask``, ``val_mask`` and ``test_mask`` replace it.
        split_group: column of groups, such as customers: a random split has all vertices of a group
            in one part. A vertex whose cell is empty is its own group. None: no groups.
        unlabelled: one of ``UNLABELED_POLICIES`` for training and validation vertices without a
            label: ``refuse`` raises an error, ``drop`` removes them from the split.
        features: columns of numbers, lists of numbers, or categories. None: all columns without
            another role, except unnamed columns, an index of pandas, masks and splits.
        categories: feature columns of categories that are not texts, such as numeric codes; a
            column of up to 256 categories becomes that many features of 0 or 1.
        weight: column of the edge weights; the default column may be missing. None: all weights
            are 1.
        edge_features: columns of the edges with numbers, lists of numbers, or categories. None:
            edges have no features.
        edge_categories: columns of ``edge_features`` that are categories and not texts.
        edge_label: column of the edge labels, null if unknown. None: edges have no labels.
        edge_label_kind: one of ``LABEL_KINDS``, for ``edge_label``.
        edge_split_column: column of the part of each labeled edge, or masks as for vertices.
        edge_split_by: unit of a random split of edges: ``pair`` has all edges between two vertices
            in one part, ``edge`` splits edge by edge.
        missing: one of ``MISSING_POLICIES`` for empty cells of numbers and dates among the
            features: ``mean`` fills in the mean over the training rows, and adds a 0/1 feature
            that marks empty cells; ``drop`` leaves out their rows; ``refuse`` raises an error.
        time: column of the vertices with the times from which they are known: dates, timestamps, or
            numbers in ``time_unit``; no feature by default. None: known at all times.
        edge_time: column of the edges with such times.
        time_unit: one of ``TIME_UNIT_CHOICES``, the unit of all times, which are rounded down;
            ``auto`` counts seconds for dates and timestamps, and refuses numbers.
        valid_from: with ``split=time``, first time of validation, a date such as ``2024-01-31`` or
            an integer in ``time_unit``: labeled vertices and edges of earlier times train.
        test_from: with ``split=time``, first time of the test, as ``valid_from``.
    """

    label: str | None = field(default="label", metadata=names("text"))
    label_kind: str = "auto"
    split_column: str = field(default=SPLIT, metadata=names("text"))
    split_group: str | None = field(default=None, metadata=names("text"))
    unlabelled: str = "refuse"
    features: list[str] | None = field(default=None, metadata=names("text"))
    categories: list[str] | None = field(default=None, metadata=names("text"))
    weight: str | None = field(default=WEIGHT, metadata=names("text"))
    edge_features: list[str] | None = field(default=None, metadata=names("text"))
    edge_categories: list[str] | None = field(default=None, metadata=names("text"))
    edge_label: str | None = field(default=None, metadata=names("text"))
    edge_label_kind: str = "auto"
    edge_split_column: str = field(default=SPLIT, metadata=names("text"))
    edge_split_by: str = "pair"
    missing: str = "mean"
    time: str | None = field(default=None, metadata=names("text"))
    edge_time: str | None = field(default=None, metadata=names("text"))
    time_unit: str = "auto"
    valid_from: str | None = field(default=None, metadata=names("text"))
    test_from: str | None = field(default=None, metadata=names("text"))

    _splits: ClassVar[tuple[str, ...]] = ("published", "random", "time")
    _is_users: ClassVar[bool] = True

    @property
    def ids(self) -> IdOptions:
        """Columns of ids."""
        return IdOptions()

    def column_options(self, *, edges: bool) -> ColumnOptions:
        """Return the options on the columns of the edges, or else of the vertices."""
        shared: dict[str, Any] = {
            "reads_labels": self._has_labels,
            "split": self.split,
            "unlabeled": self.unlabelled,
            "missing": self.missing,
            "time_unit": self.time_unit,
            "advises": self._advises,
        }
        if not edges:
            return ColumnOptions(
                label=self.label,
                label_kind=self.label_kind,
                split_column=self.split_column,
                split_group=self.split_group,
                features=self.features,
                categories=self.categories,
                time=self.time,
                **shared,
            )
        return ColumnOptions(
            prefix="edge_",
            label=self.edge_label,
            label_kind=self.edge_label_kind,
            split_column=self.edge_split_column,
            features=self.edge_features,
            categories=self.edge_categories,
            time=self.edge_time,
            **shared,
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("dataset.label_kind", self.label_kind, LABEL_KINDS)
        check_choice("dataset.edge_label_kind", self.edge_label_kind, LABEL_KINDS)
        check_choice("dataset.unlabelled", self.unlabelled, UNLABELED_POLICIES)
        check_choice("dataset.edge_split_by", self.edge_split_by, base.EDGE_UNITS)
        check_choice("dataset.missing", self.missing, MISSING_POLICIES)
        check_choice("dataset.time_unit", self.time_unit, TIME_UNIT_CHOICES)
        if self.edge_time is not None and self.self_loops == "add":
            raise ConfigError(
                "dataset.self_loops=add: expected keep or remove with dataset.edge_time, since "
                "loops that are added have no time"
            )
        if self.label is None and self.edge_label is None and self.split != "published":
            raise ConfigError(
                f"dataset.split={self.split}: dataset.label=null leaves nothing to split"
            )
        check_bounds(self.split, valid_from=self.valid_from, test_from=self.test_from)
        if self.split == "time":
            self._check_split_times()
        if self.split_group is not None and (
            self.split != "random"
            or self.label is None
            or self.split_group in (self.ids.id, self.label)
        ):
            raise ConfigError(
                f"dataset.split_group={brief(self.split_group)}: expected a column besides the id "
                "and the label, with dataset.split=random and a dataset.label"
            )
        self._check_column_names()

    def _check_split_times(self) -> None:
        """Raise ConfigError for labels without times, by which they would be split."""
        for prefix, label, time in (
            ("", self.label, self.time),
            ("edge_", self.edge_label, self.edge_time),
        ):
            if label is not None and time is None:
                raise ConfigError(
                    f"dataset.split=time: expected dataset.{prefix}time, a column, for the labels "
                    f"dataset.{prefix}label={brief(label)}; null leaves them out"
                )

    def _divide(self, writer: StoreWriter) -> None:
        if self.split == "time":
            write_split(TimeSplit(self.valid_from, self.test_from), writer, self.name)
        else:
            super()._divide(writer)

    def _check_column_names(self) -> None:
        """Raise ConfigError for a column with two uses, or categories that are no features."""
        if self.edge_label is not None and self.edge_label == self.weight:
            # Messages would carry labels of test edges.
            raise ConfigError(
                f"dataset.edge_label={brief(self.edge_label)}: expected another column than "
                f"dataset.weight, which messages carry, got {brief(self.weight)}; "
                "dataset.weight=null leaves edges without weights"
            )
        if self.edge_features == []:
            raise ConfigError(
                "dataset.edge_features=[]: expected a column, or null for no features of edges"
            )
        used = (self.ids.id, self.label, self.split_column, self.split_group)
        check_columns("", self.features, self.categories, used)
        ends = (self.ids.source, self.ids.target, self.weight, self.edge_label)
        check_columns("edge_", self.edge_features or [], self.edge_categories, ends)

    @property
    def _splits_by_pair(self) -> bool:
        return self.edge_split_by == "pair"

    def with_options(self, trained: GraphSource, named: Collection[str]) -> GraphSource:
        """Return these options, and those of a run's tables on how to read tables.

        Options that the user has ``named``, or that differ from their defaults, stay.
        """
        return self if self._is_prepared() else with_options_of(self, trained, named)

    def to_predict(self, trained: TrainedColumns, *, splits: bool) -> base.StoredDataset:
        """Return these options for predictions by a run trained on the columns ``trained``.

        Unset ``features`` and ``edge_features`` become the run's columns, unless ``store`` is
        prepared; such a column is then no label (unless ``splits``) and no weight.
        """
        changes: dict[str, Any] = {}
        if not self._is_prepared():
            for prefix, columns in (("", trained.vertices), ("edge_", trained.edges)):
                if columns and getattr(self, f"{prefix}features") is None:
                    changes[f"{prefix}features"] = [column.name for column in columns]
                    chosen = [column.name for column in columns if column.categories is not None]
                    key = f"{prefix}categories"
                    changes[key] = getattr(self, key) or chosen or None
            if self.label in changes.get("features", ()) and not splits:
                changes["label"] = None
            if self.weight == WEIGHT and WEIGHT in changes.get("edge_features", ()):
                changes["weight"] = None
        tables = replace(self, **changes) if changes else self
        return super(TableOptions, tables).to_predict(trained, splits=splits)

    def prepare(self, force: bool = False) -> Path:
        """Convert the tables to a graph store, unless it is up to date, and return its directory.

        With ``force`` the store is written again. Log the columns of features, what was filled,
        added or left out, and the ranges of times.
        """
        path = super().prepare(force)
        log_columns(path)
        if read_meta(path).times is not None:
            for of, text in time_ranges(Graph.open(path)).items():
                _LOG.info("%s: times of %s: %s", self.name, of, text)
        return path


def with_options_of(
    source: StoredSource, trained: GraphSource, named: Collection[str]
) -> StoredSource:
    """Return ``source`` with options of ``trained``, a run's tables, on how to read tables.

    Options that the user has ``named``, or that differ from their defaults, stay. Tables of another
    class have no such options.
    """
    if type(trained) is not type(source):
        return source
    changes = {
        option.name: getattr(trained, option.name)
        for option in fields(source)
        if option.name not in {*_OF_GRAPH, *named}
        and getattr(source, option.name) == option.default != getattr(trained, option.name)
    }
    if changes:
        listed = ", ".join(f"{name}={brief(_as_option(value))}" for name, value in changes.items())
        _LOG.info("dataset: %s, as the run has it", listed)
    return replace(source, **changes)


def _as_option(value: Any) -> Any:
    """Return the value of an option as a command line has it, if it is None or a mapping."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_as_option(of)}" for key, of in value.items()) + "}"
    return "null" if value is None else value


def check_columns(
    prefix: str,
    features: list[str] | None,
    categories: list[str] | None,
    used: tuple[str | None, ...],
) -> None:
    """Raise ConfigError if a feature column repeats or is in ``used``, columns of other roles.

    So is each column of ``categories`` that is not in ``features``; None: all columns not used.
    """
    for column in features or ():
        if column in used or (features or []).count(column) > 1:
            raise ConfigError(
                f"dataset.{prefix}features: expected each column once, got {brief(column)} twice"
            )
    for column in categories or ():
        if column in used or (features is not None and column not in features):
            raise ConfigError(
                f"dataset.{prefix}categories: expected columns of {prefix}features, got "
                f"{brief(column)}"
            )
