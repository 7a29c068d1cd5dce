"""Features of a graph to predict, arranged and scaled as those of training."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from gnnscale.core import ConfigError, brief, one_line
from gnnscale.data.storage import standardize
from gnnscale.data.tables.categories import (
    Arrangement,
    Column,
    arrange_rows,
    arrangement,
    check_kinds,
    count_cells,
    unseen_categories,
)
from gnnscale.graph import FeatureMatrix, Graph, read_meta

_LOG = logging.getLogger(__name__)
#: Maximum characters of a path in an error.
_MAX_PATH = 200
#: Maximum number of columns that an error lists.
_MAX_LISTED = 12


@dataclass(frozen=True, kw_only=True)
class ColumnFeatures:
    """Number, columns and scaling of features: of vertices or edges, or of one type of them."""

    num_features: int
    columns: tuple[Column, ...] | None = None  #: columns in order; None without names
    scaling: standardize.ColumnScaling | None = None  #: standardization; None without

    @property
    def names(self) -> list[str]:
        """Names of the columns; empty without names."""
        return [column.name for column in self.columns or ()]


@dataclass(frozen=True, kw_only=True)
class FeatureFit:
    """Fit of features of a graph to those of training.

    The features are those of edges, or else of vertices: of one type, or of all.
    """

    graph: str  #: name of the graph
    description: str  #: name of the graph and its source
    trained_on: str  #: name of the training graph
    features: ColumnFeatures  #: features of the graph
    trained: ColumnFeatures  #: features of training
    of_type: str | None = None  #: vertex or edge type; None: features are of all types
    of_edges: bool = False

    def fitted(self, matrix: FeatureMatrix, *, count: int, unseen: str) -> FeatureMatrix:
        """Return ``matrix`` with features arranged and scaled as in training.

        ``matrix`` has ``count`` rows of features; rows of zeros follow. A category that training
        lacked is a ConfigError unless ``unseen`` is ``empty``, and so are columns that differ in
        number, names, order or scaling.
        """
        scaling, trained = self.features.scaling, self.trained.scaling
        positions = self._arrangement(matrix, unseen)
        self._check_scaling(arranged=positions is not None)
        if positions is not None:
            matrix = arrange_rows(matrix, positions, count)
        if scaling is not None or trained is None:
            return matrix
        return standardize.scale_rows(matrix, trained, count)

    @property
    def _of(self) -> str:
        """Owner of the features in messages, such as `` of edges``."""
        if self.of_type is not None:
            return f" of {brief(self.of_type)}"
        return " of edges" if self.of_edges else ""

    def _option(self, name: str, columns: Iterable[str]) -> str:
        """Return the setting of option ``name``, features or categories, to ``columns``."""
        prefix = "edge_" if self.of_edges else ""
        values = f"[{join_names(columns)}]"
        if self.of_type is not None:
            values = f"{{{brief(self.of_type)}: {values}}}"
        return f"dataset.{prefix}{name}={values}"

    def _arrangement(self, matrix: FeatureMatrix, unseen: str) -> Arrangement | None:
        """Return how features of ``graph`` become those of the model; None: they are equal."""
        columns, trained = self.features.columns, self.trained.columns
        num_features, positions = self.features.num_features, None
        if columns is not None and trained is not None:
            self._check_columns(columns, trained)
            positions = arrangement(self.graph, columns, trained, unseen=unseen)
            num_features = num_features if positions is None else len(positions.index)
            self._warn_of_unseen(matrix, columns, trained)
            self._warn_of_gaps(matrix, columns, trained)
        if num_features != self.trained.num_features:
            hint = ""
            if trained and (self.of_edges or self.of_type is not None):
                hint = f"; set {self._option('features', self.trained.names)}"
            unit = " of each edge" if self.of_edges and self.of_type is None else self._of
            raise ConfigError(
                f"dataset: {self.description} has {num_features} features{unit}, and the run was "
                f"trained on {self.trained.num_features} of {self.trained_on}{hint}"
            )
        self._warn_without_names()
        return positions

    def _check_columns(self, columns: tuple[Column, ...], trained: tuple[Column, ...]) -> None:
        """Refuse columns that differ from those of training."""
        name, features = self.graph, f"features{self._of}"
        trained_by_name = {column.name: column for column in trained}
        option = self._option("features", trained_by_name)
        for column in columns:
            expected = trained_by_name.get(column.name)
            if expected is None:
                raise ConfigError(
                    f"dataset: {name} has {features} {brief(repr(column.name))}, which the run was "
                    f"not trained on; set {option}"
                )
            check_kinds(name, column, expected, self._option("categories", [expected.name]))
            has_numbers = column.categories is None and expected.categories is None
            if has_numbers and not column.is_empty and column.length != expected.length:
                raise ConfigError(
                    f"dataset: {name} has {column.length} numbers in each "
                    f"{brief(repr(column.name))}, and the run was trained on {expected.length}"
                )
        names = self.features.names
        missing = trained_by_name.keys() - set(names)
        if missing:
            raise ConfigError(
                f"dataset: {name} has no {features} {brief(repr(min(missing)))}, which the run was "
                f"trained on; it has {join_names(names)}"
            )
        if names != [*trained_by_name]:
            raise ConfigError(
                f"dataset: the columns of {features} of {name} have another order than those that "
                f"the run was trained on; set {option}"
            )

    def _check_scaling(self, *, arranged: bool) -> None:
        """Refuse features with another scaling than training's, or ``arranged`` anew after it."""
        scaling = self.features.scaling
        if scaling is not None and (scaling != self.trained.scaling or arranged):
            of_type = "" if self.of_type is None else self._of
            raise ConfigError(
                f"dataset: {self.graph} has features{of_type} with a "
                "scaling that is not the run's; prepare it with dataset.standardize=false, so that "
                "they get that of the run"
            )

    def _warn_of_unseen(
        self, matrix: FeatureMatrix, columns: tuple[Column, ...], trained: tuple[Column, ...]
    ) -> None:
        """Warn of categories that training lacked, which become empty cells, with their number."""
        for name, unseen, features in unseen_categories(columns, trained):
            _LOG.warning(
                "dataset: column %s of %s: %s cells have a category that was not in training, such "
                "as %s, and are read as empty",
                *(brief(repr(name)), self.graph, f"{_count(matrix, features):,}"),
                brief(repr(unseen[0])),
            )

    def _warn_of_gaps(
        self, matrix: FeatureMatrix, columns: tuple[Column, ...], trained: tuple[Column, ...]
    ) -> None:
        """Warn of columns with empty cells that had none in training, and get training's mean."""
        first = 0
        for column, expected in zip(columns, trained, strict=True):
            first += column.width
            if not column.has_gaps or expected.has_gaps or expected.categories is not None:
                continue
            name, count = brief(repr(column.name)), _count(matrix, [first - 1])
            if expected.mean is None:
                raise ConfigError(
                    f"dataset: column {name} of {self.graph}: expected no empty cell, as the run, "
                    f"of an earlier release, knows no mean of training, got {count}"
                )
            _LOG.warning(
                "dataset: column %s of %s: %s empty cells get the mean of training; in training "
                "none was empty",
                *(name, self.graph, f"{count:,}"),
            )

    def _warn_without_names(self) -> None:
        """Warn if only one graph names its features: their order is unchecked then."""
        named, names = self.trained_on, self.trained.names
        unnamed = self.graph
        if (self.features.columns is None) == (self.trained.columns is None):
            return
        if self.features.columns is not None:
            unnamed, named, names = named, unnamed, self.features.names
        _LOG.warning(
            "dataset: features%s of %s have no names, and those of %s do: their order must be %s",
            *(self._of, unnamed, named, join_names(names)),
        )


def _count(matrix: FeatureMatrix, features: list[int]) -> int:
    """Return the number of rows with a value in one of ``features``."""
    return count_cells(matrix.rows, features, matrix.dtype, matrix.width)


def describe(graph: Graph) -> str:
    """Return the name of a graph and its source, since names are not unique."""
    if graph.path is None:
        return f"the given {graph.name}"
    source = read_meta(graph.path).entries.get("source") or graph.path
    return f"{graph.name} ({one_line(source, _MAX_PATH)})"


def join_names(names: Iterable[str]) -> str:
    """Return names separated by commas, at most ``_MAX_LISTED``."""
    texts = [brief(name) for name in names]
    more = len(texts) - _MAX_LISTED
    return ",".join(texts[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
