"""Reading of a table of vertices: ids, labels, split and groups, and a survey of its features."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from gnnscale.core import Array, GraphError, Int64Array, pyarrow
from gnnscale.core.artifact import files
from gnnscale.data.readers.column_reading import FeatureSurvey, label_columns, log_unread
from gnnscale.data.readers.table_options import ColumnOptions
from gnnscale.data.tables import roles
from gnnscale.data.tables.feature_columns import FeatureColumns
from gnnscale.data.tables.label_columns import GroupColumn, LabelColumns
from gnnscale.data.tables.survey import Surveyed
from gnnscale.data.tables.table import Table
from gnnscale.data.tables.time_columns import TimeColumn, TimesOfRows
from gnnscale.data.tables.vertex_ids import IdColumn, csv_id_type, max_id_bytes
from gnnscale.graph import TimeUnit


class VertexReader:
    """Reader of a table of vertices: ids, labels, split and groups, in one pass.

    The pass surveys the columns of features, too. With ``missing`` of ``drop``, rows with an empty
    number are left out, in further passes; ``changes`` gets their number.

    Args:
        options: options on the columns.
        table: table with a row per vertex.
        ids: column of the ids. None: ids are row numbers from 0.
        id_type: one of ``ID_TYPES``.
        changes: list of what is filled, added or left out, for the log.
        check_memory: raises NoSpaceError if the data of so many vertices exceed the memory.
        what: the vertices, for messages.
        other_roles: further columns that are no features by default.
    """

    def __init__(
        self,
        options: ColumnOptions,
        table: Table,
        ids: str | None,
        id_type: str,
        changes: list[str],
        *,
        check_memory: Callable[[int], None],
        what: str = "vertices",
        other_roles: Collection[str] = (),
    ) -> None:
        self._options, self._table, self._what = options, table, what
        self._ids, self._id_type = ids, id_type
        survey = FeatureSurvey(options, table, _feature_names(options, table, ids, other_roles))
        num_rows = table.num_rows()
        if num_rows is not None:  # unknown for compressed files
            check_memory(num_rows)
        self._pass_over(survey)
        self.columns: list[Surveyed] = survey.finish()  #: columns of features
        table.problems.raise_any()
        if num_rows is None:
            check_memory(self.num_vertices)
        if options.missing == "drop" and any(column.has_gaps for column in self.columns):
            self._drop_empty(changes)
        if options.features is None:
            roles.warn_of_names(table, self.columns)

    def _pass_over(self, survey: FeatureSurvey | None) -> None:
        """Read ids, labels and split of all rows, and survey features; problems are reported."""
        options, table = self._options, self._table
        ids = IdColumn(
            *(self._ids, self._id_type, max_id_bytes(files.total_bytes(table.paths))),
            what=self._what,
        )
        types: dict[str, Any] = {} if survey is None else dict(survey.types)
        if self._ids is not None:
            types[self._ids] = csv_id_type(self._id_type, table.types[self._ids])
        times = None
        if options.time is not None:
            times = TimesOfRows(TimeColumn(table, options.time, options.time_unit, "time"))
            types |= times.column.csv_types
        labels = label_columns(options, table, otherwise="dataset.label=null")
        groups = None
        if labels is not None:
            types |= labels.csv_types
        if labels is not None and options.split_group is not None:
            groups = GroupColumn(table.require("split_group", options.split_group))
            types |= groups.csv_types
        if not types:  # rows are counted alone
            types[table.names[0]] = pyarrow.string()
        for batch in table.batches(list(types), types, 64 + 8 * len(types)):
            for column in (ids, labels, groups, survey, times):
                if column is not None:
                    column.add(batch)
        if not ids.num_vertices:
            table.problems.raise_any()
        self._labels: LabelColumns | None = labels
        self._groups = groups
        self.num_vertices = ids.num_vertices  #: number of rows
        #: times of the rows, and their unit. None: rows have no times
        self.times: tuple[Int64Array, TimeUnit] | None = (
            None if times is None else (times.finish(), times.column.unit)
        )
        #: labels of the rows, and names of classes; None: the table has no labels
        self.labels: tuple[Array, list[str] | None] | None = (
            None if labels is None else labels.labels()
        )
        self.id_map = ids.map()  #: map from ids to rows

    def _drop_empty(self, changes: list[str]) -> None:
        """Leave out rows that have an empty number; GraphError: none is left."""
        features = FeatureColumns(self._table, self.columns, named=True)
        is_empty = np.concatenate([features.empty(batch) for batch in features.batches()])
        gaps = ", ".join(column.told_gaps() for column in self.columns if column.has_gaps)
        if is_empty.all():
            raise GraphError(
                f"{self._table.path}: dataset.missing=drop leaves no row, as each has an empty "
                f"number: {gaps}"
            )
        changes.append(
            f"{self._what}: {np.count_nonzero(is_empty):,} rows with an empty number left out, "
            f"with their edges: {gaps} (dataset.missing=drop)"
        )
        dropped = self.id_map.all_ids().filter(pyarrow.array(is_empty))
        self._table.keep(~is_empty)
        self._pass_over(None)
        self.id_map.dropped = dropped
        self.columns = [replace(column, num_empty=0) for column in self.columns]

    def parts(self) -> list[Int64Array] | None:
        """Return the rows of training, validation and test; None: there is no published split."""
        if self._labels is None or self.labels is None:
            return None
        unlabeled = self._options.unlabeled
        return self._labels.parts(self.labels[0], unlabeled=unlabeled, what="vertices")

    def groups(self) -> Int64Array | None:
        """Return the group of each row ``[num_vertices]``, -1 for an empty cell; None: no groups.

        A further call has no groups.
        """
        groups, self._groups = self._groups, None
        return None if groups is None else groups.finish()


def _feature_names(
    options: ColumnOptions, table: Table, ids: str | None, other_roles: Collection[str]
) -> list[str]:
    """Return the columns of the vertex features, the user's or by default."""
    chosen = options.categories or ()
    if ids is not None:
        otherwise = f"{table.setting('id', 'null')}, so that ids are row numbers from 0"
        table.require("id", ids, otherwise=otherwise)
    used = {ids, options.label, options.split_column, options.split_group, *other_roles}
    used |= {options.time}
    names = options.features
    if names is None:
        names = roles.default_features(table, used, chosen)
    else:
        log_unread(table, {*names, *used}, "features")
    for name in names:
        table.require("features", name)
    for name in chosen:
        table.require("categories", name)
    return names
