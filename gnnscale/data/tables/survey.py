"""First pass over feature columns: what each holds, its categories, its empty cells."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import BoolArray, GraphError, Int64Array, brief, pyarrow
from gnnscale.data.tables import cells
from gnnscale.data.tables.batch import Batch, is_number, is_text, null_mask
from gnnscale.data.tables.categories import MAX_CATEGORIES, Column, as_texts
from gnnscale.data.tables.table import Table

#: Rows from which a column with another text in each row is no category column.
FEW_ROWS = 16
#: Share of the filled cells from which distinct texts are nearly as many as rows.
_NEARLY_ALL = 0.9
#: Words for numbers that are not finite, of CSV and of Python.
_NOT_FINITE = ("inf", "infinity", "nan")


@dataclass(frozen=True, kw_only=True)
class Surveyed:
    """Feature column after the first pass over its table."""

    name: str
    #: ``number``, ``list`` of numbers, ``date``, or ``category``
    encoding: str = "number"
    kind: Any  #: Arrow type of the numbers, or that of the dates
    num_empty: int  #: empty cells
    length: int = 1  #: numbers of a cell
    categories: tuple[str, ...] | None = None  #: sorted; None without categories
    origin: int = 0  #: days from 1970-01-01 to the day that counts as 0, for dates
    #: reason not to read the column, for texts that are no categories. None: it is read.
    doubt: str | None = None

    @property
    def has_gaps(self) -> bool:
        """Whether a further feature marks empty cells, which categories need not."""
        return self.categories is None and self.num_empty > 0

    @property
    def width(self) -> int:
        """Number of features."""
        if self.categories is not None:
            return len(self.categories)
        return self.length + self.has_gaps

    @property
    def has_few(self) -> bool:
        """Whether the texts of the column are few enough for categories."""
        return self.categories is not None and len(self.categories) <= MAX_CATEGORIES

    @property
    def column(self) -> Column:
        """Column as it is stored, without its means."""
        return Column(
            name=self.name,
            width=self.width,
            categories=self.categories,
            has_gaps=self.has_gaps,
            origin=self.origin if self.encoding == "date" else None,
        )

    def told_gaps(self, num_added: int = 0) -> str:
        """Return the name and the number of empty cells, for messages; rows added do not count."""
        return f"{brief(self.name)} {self.num_empty - num_added:,}"


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is one of lists."""
    types = pyarrow.types
    tests = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(test(kind) for test in tests)


def is_feature(kind: Any) -> bool:
    """Whether features can be made of an Arrow type: numbers, lists of numbers, dates or texts."""
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    if is_list(kind):
        return is_number(kind.value_type)
    return is_number(kind) or cells.is_date(kind) or is_text(kind)


def csv_type(kind: Any, *, is_category: bool) -> Any:
    """Return the Arrow type to parse a feature column of CSV as, by its guessed type ``kind``."""
    if pyarrow.types.is_boolean(kind) and not is_category:
        return kind
    if cells.is_date(kind) and not is_category:
        return cells.csv_date_type(kind)
    is_float = is_number(kind) and not is_category
    return pyarrow.float32() if is_float else pyarrow.string()  # binary, if it is not UTF-8


class _TextKind:
    """Counter of the texts of a column that are numbers or dates."""

    def __init__(self, kind: Any, pattern: str, noun: str) -> None:
        self.kind, self.noun = kind, noun
        self._pattern = pattern
        self.count = 0  #: cells of the kind
        #: file, row and text of the first cell of another kind
        self.first_other: tuple[Path, int, str] | None = None
        self.least = np.inf  #: day of the first date

    def add(self, batch: Batch, texts: Any, words: Any, codes: Int64Array) -> None:
        """Count the cells ``texts`` of a batch.

        ``words`` has the different texts, trimmed, null for a word of an empty cell, and ``codes``
        the index of the word of each cell, ``[n]``.
        """
        is_kind = cells.matches(words, self._pattern)
        if is_kind.any() and cells.is_date(self.kind):
            dates, wrong = cells.parsed(words.filter(pyarrow.array(is_kind)), self.kind)
            is_kind[np.flatnonzero(is_kind)[wrong]] = False  # such as 2024-02-30
            self.least = np.fmin.reduce(cells.days(dates), initial=self.least)
        self.count += int(np.count_nonzero(np.append(is_kind, False)[codes]))
        is_other = np.append(~is_kind & ~null_mask(words), False)[codes]
        if self.first_other is None and is_other.any():
            index = int(is_other.argmax())
            self.first_other = batch.file, batch.number(index), texts[index].as_py()


class ColumnSurvey:
    """Collector of counts and distinct texts of one feature column, in memory of fixed size.

    ``is_category``: the user says so. ``prefix`` is that of the option names of features, and
    ``missing`` one of ``MISSING_POLICIES``.
    """

    def __init__(
        self, table: Table, name: str, *, is_category: bool, prefix: str, missing: str
    ) -> None:
        self._table = table
        self._is_category = is_category
        self._prefix = prefix
        self._refuses_empty = missing == "refuse"
        self.name = name
        kind = table.types[name]
        if pyarrow.types.is_dictionary(kind):
            kind = kind.value_type
        if table.is_csv:
            kind = csv_type(kind, is_category=is_category)
        self.kind = kind  #: Arrow type to parse a column of CSV as
        self._is_text = is_category or is_text(kind)
        self._num_rows = self._num_nulls = self._num_empty = self._length = 0
        self._first_empty: tuple[Path, int] | None = None
        self._values: set[str] = set()
        self._least = np.inf  # day of the first date
        self._text_kinds = [
            _TextKind(pyarrow.float32(), cells.NUMBER, "a number"),
            _TextKind(pyarrow.timestamp("us"), cells.DATE, "a date"),
            _TextKind(pyarrow.timestamp("us", "UTC"), cells.ZONED, "a date with a zone"),
        ]
        if not (self._is_text or is_feature(kind)):
            raise GraphError(
                f"{table.path}: column {brief(repr(name))}: expected numbers, lists of numbers, "
                f"dates or texts, got {brief(kind)}; name the feature columns by "
                f"{table.setting(f'{prefix}features', '[...]')}"
            )

    def add(self, batch: Batch) -> None:
        """Examine the cells of a batch; report those that cannot be features."""
        self._num_rows += len(batch)
        array = batch.columns[self.name]
        if self._is_text:
            is_empty = self._add_texts(batch)
        elif is_list(self.kind):
            is_empty = null_mask(array)
            self._add_lists(batch, array)
        elif cells.is_date(self.kind):
            days = cells.days(array)
            is_empty = np.isnan(days)
            self._least = np.fmin.reduce(days, initial=self._least)
        else:
            values = batch.floats(self.name, np.float32)
            is_empty = np.isnan(values)
            infinite = np.isinf(values)
            batch.report(infinite, (self.name, "finite"), lambda i: self._infinite(batch, i))
        if is_empty.any() and self._first_empty is None:
            self._first_empty = batch.file, batch.number(int(is_empty.argmax()))
        self._num_empty += int(np.count_nonzero(is_empty))

    def _add_lists(self, batch: Batch, array: Any) -> None:
        """Report lists of another length than the first, and numbers that are not finite."""
        lengths = pyarrow.compute.list_value_length(array).fill_null(-1).to_numpy()
        if not self._length and (lengths >= 0).any():
            self._length = int(lengths[lengths >= 0][0])
        name, expected = brief(self.name), self._length
        batch.report(
            (lengths >= 0) & ((lengths != expected) | (expected == 0)),
            (self.name, "length"),
            lambda index: (
                f"{name}: expected {expected} numbers as in the first row, got {lengths[index]}"
                if expected
                else f"{name}: expected a number, got none"
            ),
        )
        rows = np.repeat(np.arange(len(array)), np.maximum(lengths, 0))
        wrong = ~np.isfinite(batch.floats(self.name, np.float32, array.flatten()))

        def tell(index: int) -> str:
            item = int(np.flatnonzero(wrong & (rows == index))[0] - np.searchsorted(rows, index))
            cell = array[index].as_py()[item]
            which = f"number {item + 1} of {name}"
            if cell is None:
                return f"{which}: expected a number, got an empty cell"
            return _not_finite(which, cell)

        is_bad = np.bincount(rows[wrong], minlength=len(array)) > 0
        batch.report(is_bad, (self.name, "finite"), tell)

    def _infinite(self, batch: Batch, index: int) -> str:
        """Return the message of a cell as the file has it; CSV is read again for its text."""
        value = self._table.csv_text(batch.file, batch.number(index), self.name)
        if value is None:
            value = batch.columns[self.name][index].as_py()
        return _not_finite(brief(self.name), value)

    def _add_texts(self, batch: Batch) -> BoolArray:
        """Count the kinds of texts in a batch; return which cells are empty, ``[n]``.

        Words for an empty cell count as such, unless the user says that texts are categories.
        """
        texts = as_texts(batch, self.name)
        encoded = texts.dictionary_encode()
        distinct, is_empty = encoded.dictionary, null_mask(texts)
        self._num_nulls += texts.null_count
        if len(self._values) <= MAX_CATEGORIES:
            self._values.update(distinct.slice(0, MAX_CATEGORIES + 1).to_pylist())
        if not self._is_category:
            words = cells.trimmed(distinct, self._table.decimal)
            codes = encoded.indices.fill_null(len(distinct)).to_numpy()
            is_empty = np.append(null_mask(words), True)[codes]
            for kind in self._text_kinds:
                kind.add(batch, texts, words, codes)
        return is_empty

    def finish(self) -> Surveyed:
        """Return what the column holds; report texts among numbers, and empty cells if refused."""
        column = Surveyed(name=self.name, kind=self.kind, num_empty=self._num_empty)
        if is_list(self.kind):
            kind = self.kind.value_type
            column = replace(column, encoding="list", kind=kind, length=max(self._length, 1))
        elif self._is_text:
            column = self._of_texts(column)
        elif cells.is_date(self.kind):
            column = replace(column, encoding="date")
        if column.encoding == "date" and np.isfinite(self._least):
            column = replace(column, origin=int(np.floor(self._least)))
        if column.num_empty == self._num_rows:
            return replace(column, doubt="no value")
        if self._refuses_empty and column.has_gaps and self._first_empty is not None:
            message = (
                f"{brief(self.name)} is empty; dataset.missing=mean fills empty cells, and drop "
                "leaves out their rows"
            )
            kind, problems = (self.name, "empty"), self._table.problems
            problems.add(kind, *self._first_empty, message, column.num_empty)
        return column

    def _of_texts(self, column: Surveyed) -> Surveyed:
        """Return ``column``, of texts, as one of numbers or dates, if most are, or categories."""
        if self._num_empty == self._num_rows:
            return replace(column, kind=pyarrow.float32())
        best = max(self._text_kinds, key=lambda kind: kind.count)
        num_filled = self._num_rows - self._num_empty
        is_all, is_number = best.count == num_filled, best is self._text_kinds[0]
        # Texts of Parquet that are all numbers are texts by intent.
        if 2 * best.count > num_filled and (self._table.is_csv or not (is_number and is_all)):
            if best.first_other is not None:
                file, row, cell = best.first_other
                option, value = f"{self._prefix}categories", f"[{brief(self.name)}]"
                message = (
                    f"{brief(self.name)} is {brief(repr(cell))}, expected {best.noun}, as most "
                    "cells of the column are; if all are categories, set "
                    f"{self._table.setting(option, value)}"
                )
                kind, count = (self.name, "kind"), num_filled - best.count
                self._table.problems.add(kind, file, row, message, count)
            self._least = best.least
            return replace(column, encoding="number" if is_number else "date", kind=best.kind)
        num_distinct, num_filled = len(self._values), self._num_rows - self._num_nulls
        is_many = num_distinct > MAX_CATEGORIES
        is_sparse = num_filled >= FEW_ROWS and num_distinct >= _NEARLY_ALL * num_filled
        doubt = None
        if is_many or (is_sparse and not self._is_category):
            many = f"over {MAX_CATEGORIES}" if is_many else f"{num_distinct}"
            content = cells.likely_content([*self._values], is_sparse or is_many)
            doubt = f"{many} different texts in {num_filled:,} cells: {content}"
        return replace(
            column,
            encoding="category",
            categories=tuple(sorted(self._values)),
            num_empty=self._num_nulls,
            doubt=doubt,
        )


def _not_finite(which: str, value: object) -> str:
    """Return the message for a value that is not finite, or that float32 cannot hold."""
    infinite = str(value).strip().lower().lstrip("+-") in _NOT_FINITE
    reason = "features must be finite" if infinite else "float32 cannot hold it"
    return f"{which} is {brief(value)}, {reason}"
