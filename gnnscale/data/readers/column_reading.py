"""Columns of features and labels of a table, by its options.

The option names of edges have the prefix ``edge_``, those of vertices none.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from gnnscale.core import GraphError, brief
from gnnscale.data.readers.table_options import SPLIT, ColumnOptions
from gnnscale.data.tables import roles
from gnnscale.data.tables.batch import Batch
from gnnscale.data.tables.feature_columns import FeatureColumns
from gnnscale.data.tables.label_columns import LabelColumns
from gnnscale.data.tables.survey import ColumnSurvey, Surveyed
from gnnscale.data.tables.table import Table

_LOG = logging.getLogger(__name__)


class FeatureSurvey:
    """Survey of the columns ``names`` of features, from the batches of a table."""

    def __init__(self, options: ColumnOptions, table: Table, names: Sequence[str]) -> None:
        self._options, self._table = options, table
        chosen = options.categories or ()
        shared = {"prefix": options.prefix, "missing": options.missing}
        self._columns = [
            ColumnSurvey(table, name, is_category=name in chosen, **shared) for name in names
        ]
        #: Arrow type to parse each CSV column as, by column name
        self.types = {column.name: column.kind for column in self._columns}

    def add(self, batch: Batch) -> None:
        """Examine the cells of a batch; report those that cannot be features."""
        for column in self._columns:
            column.add(batch)

    def finish(self) -> list[Surveyed]:
        """Return what the columns hold, without doubtful ones; problems are reported.

        Texts that are no categories, and columns without a value, are a GraphError in columns that
        the user has named, and left out of others with a warning. Unless the graph trains a model,
        a named column may have no value; it may always have few categories.
        """
        options, table = self._options, self._table
        named = {*(options.features or ()), *(options.categories or ())}
        columns = [survey.finish() for survey in self._columns]
        doubtful = [column for column in columns if column.doubt is not None]
        left_out = [column for column in doubtful if column.name not in named]
        wrong = [
            column
            for column in doubtful
            if column.name in named
            and not (column.has_few if column.categories else not options.advises)
        ]
        if wrong:
            raise GraphError(
                f"{table.path}: cannot be features: {_doubts(wrong)}; leave them out by "
                f"{table.setting(f'{options.prefix}features', '[...]')}"
            )
        if left_out:
            keeps = any(column.has_few for column in left_out)
            hint = f"; {table.setting('categories', '[...]')} keeps texts" if keeps else ""
            what = f"left out of the features: {_doubts(left_out)}"
            _LOG.warning("%s: %s%s", table.path, what, hint)
        return [column for column in columns if column not in left_out]


def survey_edges(
    options: ColumnOptions, table: Table, changes: list[str], what: str = "edges"
) -> FeatureColumns:
    """Survey the columns of features of edges, in a pass of its own; problems are reported.

    ``changes`` gets what becomes of empty cells of ``what``.
    """
    names = list(options.features or ())
    survey = FeatureSurvey(options, table, names)
    for batch in table.batches(names, survey.types, 8 * len(names)):
        survey.add(batch)
    columns = survey.finish()
    table.problems.settle()
    if options.missing == "drop":
        columns = [
            column if column.categories else replace(column, num_empty=0) for column in columns
        ]
    changes += filled(columns, what)
    return FeatureColumns(table, columns, named=True)


def _doubts(columns: Sequence[Surveyed]) -> str:
    return roles.join_names([f"{brief(repr(column.name))} ({column.doubt})" for column in columns])


def filled(columns: Sequence[Surveyed], what: str, num_added: int = 0) -> list[str]:
    """Return what becomes of empty cells of features, with counts; ``num_added`` rows apart.

    ``what``, ``vertices`` or ``edges``, have the cells.
    """
    gaps = [column for column in columns if column.num_empty > num_added]
    numbers = [column.told_gaps(num_added) for column in gaps if column.categories is None]
    texts = [column.told_gaps(num_added) for column in gaps if column.categories is not None]
    changes = []
    if numbers:
        changes.append(
            f"{what}: empty numbers get the mean of training, and a 0/1 feature that marks them: "
            f"{roles.join_names(numbers)} (dataset.missing=mean)"
        )
    if texts:
        changes.append(f"{what}: empty cells have no category: {roles.join_names(texts)}")
    return changes


def log_unread(table: Table, read: Collection[str | None], option: str) -> None:
    """Log the columns of a table that are not in ``read``, and the ``option`` that reads them."""
    unread = [brief(name or "''") for name in table.names if name not in read]
    if unread:
        _LOG.info("%s: not read: %s; see dataset.%s", table.path, ", ".join(unread), option)


def label_columns(
    options: ColumnOptions, table: Table, *, otherwise: str = ""
) -> LabelColumns | None:
    """Return the columns of labels and of a published split; None: no labels are read.

    ``otherwise``, if not empty, is what to set if there is no column of labels.
    """
    column, prefix, split = options.label, options.prefix, None
    if column is None or not options.reads_labels:
        return None
    table.require(f"{prefix}label", column, otherwise=otherwise)
    if options.split == "published":
        split = roles.find_split(table, f"{prefix}split_column", options.split_column, SPLIT)
    return LabelColumns(table, column, options.label_kind, split, option=f"{prefix}label_kind")
