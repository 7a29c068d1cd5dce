"""Options of tables of vertices and edges."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from gnnscale.core import ConfigError, brief, check_choice
from gnnscale.core.config.untrusted import names
from gnnscale.data import base
from gnnscale.data.tables.label_columns import LABEL_KINDS, UNLABELED_POLICIES
from gnnscale.data.tables.vertex_ids import ID_TYPES

#: Default name of the column of weights, which may be missing.
WEIGHT = "weight"
#: Default name of the column of the split, which masks may replace.
SPLIT = "split"
#: Treatment of ids that stand only in the edges, and of empty numbers among the features.
UNKNOWN_ID_POLICIES = ("vertices", "drop", "refuse")
MISSING_POLICIES = ("mean", "drop", "refuse")


@dataclass(frozen=True, kw_only=True)
class TableOptions(base.Dataset):
    """Options on how to read a table of vertices and a table of edges.

    Attributes:
        vertices: file or folder of the vertices in ``raw``. None: one of the names above.
        edges: file or folder of the edges in ``raw``. None: one of the names above.
        id: column of the vertex ids, integers or texts. None: ids are row numbers from 0.
        id_type: one of ``ID_TYPES``; ``string`` reads integers as texts too.
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
        source: column of the source ids of edges.
        target: column of the destination ids of edges.
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
        unknown_ids: one of ``UNKNOWN_ID_POLICIES`` for ids that stand only in the edges:
            ``vertices`` makes them vertices without a label, whose features are empty cells;
            ``drop`` leaves out their edges; ``refuse`` raises an error.
        missing: one of ``MISSING_POLICIES`` for empty cells of numbers and dates among the
            features: ``mean`` fills in the mean over the training rows, and adds a 0/1 feature
            that marks empty cells; ``drop`` leaves out their rows; ``refuse`` raises an error.
        delimiter: one character between the values of CSV, or ``tab``.
        decimal: mark of decimals in CSV, a point or a comma.
    """

    vertices: str | None = field(default=None, metadata=names("text"))
    edges: str | None = field(default=None, metadata=names("text"))
    id: str | None = field(default="id", metadata=names("text"))
    id_type: str = "auto"
    label: str | None = field(default="label", metadata=names("text"))
    label_kind: str = "auto"
    split_column: str = field(default=SPLIT, metadata=names("text"))
    split_group: str | None = field(default=None, metadata=names("text"))
    unlabelled: str = "refuse"
    features: list[str] | None = field(default=None, metadata=names("text"))
    categories: list[str] | None = field(default=None, metadata=names("text"))
    source: str = field(default="source", metadata=names("text"))
    target: str = field(default="target", metadata=names("text"))
    weight: str | None = field(default=WEIGHT, metadata=names("text"))
    edge_features: list[str] | None = field(default=None, metadata=names("text"))
    edge_categories: list[str] | None = field(default=None, metadata=names("text"))
    edge_label: str | None = field(default=None, metadata=names("text"))
    edge_label_kind: str = "auto"
    edge_split_column: str = field(default=SPLIT, metadata=names("text"))
    edge_split_by: str = "pair"
    unknown_ids: str = "vertices"
    missing: str = "mean"
    delimiter: str = ","
    decimal: str = "."

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, name in (("vertices", self.vertices), ("edges", self.edges)):
            path = PurePath("." if name is None else name)
            if name == "" or path.is_absolute() or ".." in path.parts:
                raise ConfigError(
                    f"dataset.{option}={brief(name)}: expected a file or folder in dataset.raw"
                )
        check_choice("dataset.id_type", self.id_type, ID_TYPES)
        check_choice("dataset.label_kind", self.label_kind, LABEL_KINDS)
        check_choice("dataset.edge_label_kind", self.edge_label_kind, LABEL_KINDS)
        check_choice("dataset.unlabelled", self.unlabelled, UNLABELED_POLICIES)
        check_choice("dataset.edge_split_by", self.edge_split_by, base.EDGE_UNITS)
        check_choice("dataset.unknown_ids", self.unknown_ids, UNKNOWN_ID_POLICIES)
        check_choice("dataset.missing", self.missing, MISSING_POLICIES)
        check_choice("dataset.decimal", self.decimal, (".", ","))
        if self.decimal == self.delimiter:
            raise ConfigError(
                "dataset.decimal=',': expected another mark than dataset.delimiter; tables with "
                "decimal commas have dataset.delimiter=';' mostly"
            )
        if self.delimiter != "tab" and (
            len(self.delimiter.encode()) != 1 or self.delimiter in '"\r\n'
        ):
            raise ConfigError(
                f"dataset.delimiter={brief(repr(self.delimiter))}: expected tab, or one ASCII "
                "character other than a quote or a line end"
            )
        if self.label is None and self.edge_label is None and self.split == "random":
            raise ConfigError("dataset.split=random: dataset.label=null leaves nothing to split")
        if self.split_group is not None and (
            self.split != "random"
            or self.label is None
            or self.split_group in (self.id, self.label)
        ):
            raise ConfigError(
                f"dataset.split_group={brief(self.split_group)}: expected a column besides the id "
                "and the label, with dataset.split=random and a dataset.label"
            )
        self._check_column_names()

    def _check_column_names(self) -> None:
        """Raise ConfigError for a column with two uses, or categories that are no features."""
        used = (self.id, self.label, self.split_column, self.split_group)
        _check_columns("features", self.features, used)
        if self.edge_label is not None and self.edge_label == self.weight:
            # Messages would carry labels of test edges.
            raise ConfigError(
                f"dataset.edge_label={brief(self.edge_label)}: expected another column than "
                f"dataset.weight, which messages carry, got {brief(self.weight)}; "
                "dataset.weight=null leaves edges without weights"
            )
        ends = (self.source, self.target, self.weight, self.edge_label)
        _check_columns("edge_features", self.edge_features, ends)
        if self.edge_features == []:
            raise ConfigError(
                "dataset.edge_features=[]: expected a column, or null for no features of edges"
            )
        for column in self.categories or ():
            if column in used or (self.features is not None and column not in self.features):
                raise ConfigError(
                    f"dataset.categories: expected columns of features, got {brief(column)}"
                )
        for column in self.edge_categories or ():
            if column not in (self.edge_features or ()):
                raise ConfigError(
                    "dataset.edge_categories: expected columns of edge_features, got "
                    f"{brief(column)}"
                )

    @property
    def _splits_by_pair(self) -> bool:
        return self.edge_split_by == "pair"


def _check_columns(option: str, columns: list[str] | None, used: Sequence[str | None]) -> None:
    """Raise ConfigError if a feature column repeats, or is in ``used``, columns of other roles."""
    for column in columns or ():
        if column in used or (columns or []).count(column) > 1:
            raise ConfigError(
                f"dataset.{option}: expected each column once, got {brief(column)} twice"
            )
