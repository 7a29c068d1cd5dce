"""First pass over feature columns: what each holds, its categories, its empty cells."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import BoolArray, GraphError, brief, pyarrow
from gnnscale.data.tables import cells
from gnnscale.data.tables.batch import Batch, floats, is_binary, is_number, is_text, null_mask
from gnnscale.data.tables.categories import MAX_CATEGORIES, as_texts
from gnnscale.data.tables.table import Table

#: Rows from which a column with another text in each row is no category column.
FEW_ROWS = 16
#: Share of the filled cells from which distinct texts are nearly as many as rows.
_NEARLY_ALL = 0.9
#: Kinds of texts that are no categories: their Arrow type and pattern.
_KINDS_OF_TEXTS: tuple[tuple[Callable[[], Any], str], ...] = (
    (lambda: pyarrow.float32(), cells.NUMBER),
    (lambda: pyarrow.timestamp("us"), cells.DATE),
    (lambda: pyarrow.timestamp("us", "UTC"), cells.ZONED),
)
#: Words for numbers that are not finite, of CSV and of Python.
_NOT_FINITE = ("inf", "infinity", "nan")


@dataclass(frozen=True, kw_only=True)
class Surveyed:
    """Feature column after the first pass over its table."""

    name: str
    #: ``number``, ``list`` of numbers, ``date``, or ``category``
    encoding: str
    kind: Any  #: Arrow type of the numbers, or that of the dates
    num_rows: int
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

    def with_empty_rows(self, count: int) -> "Surveyed":
        """Return the column with ``count`` more rows, whose cells are empty."""
        return replace(self, num_rows=self.num_rows + count, num_empty=self.num_empty + count)

    def told_gaps(self, num_added: int = 0) -> str:
        """Return the name and the number of empty cells, for messages; rows added do not count."""
        return f"{brief(self.name)} {self.num_empty - num_added:,}"


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is one of lists."""
    return bool(
        pyarrow.types.is_list(kind)
        or pyarrow.types.is_large_list(kind)
        or pyarrow.types.is_fixed_size_list(kind)
    )


def is_feature(kind: Any) -> bool:
    """Whether features can be made of an Arrow type: numbers, lists of numbers, dates or texts."""
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    if is_list(kind):
        return is_number(kind.value_type)
    return is_number(kind) or cells.is_date(kind) or is_text(kind)


def csv_type(kind: Any, *, is_category: bool) -> Any:
    """Return the Arrow type to parse a feature column of CSV as, by its guessed type ``kind``."""
    if is_category or is_text(kind) or is_binary(kind) or pyarrow.types.is_time(kind):
        return pyarrow.string()
    if pyarrow.types.is_boolean(kind):
        return kind
    return cells.csv_date_type(kind) if cells.is_date(kind) else pyarrow.float32()


class ColumnSurvey:
    """Collector of counts and distinct texts of one feature column, in memory of fixed size.

    ``is_category``: the user says so. ``options`` name the options of features and categories.
    """

    def __init__(
        self, table: Table, name: str, *, is_category: bool, options: tuple[str, str]
    ) -> None:
        self._table = table
        self._is_category = is_category
        self._options = options
        self.name = name
        kind = table.types[name]
        if pyarrow.types.is_dictionary(kind):
            kind = kind.value_type
        if table.is_csv:
            kind = csv_type(kind, is_category=is_category)
        self.kind = kind  #: Arrow type to parse a column of CSV as
        self._is_text = is_category or is_text(kind)
        self._num_rows = self._num_empty = self._length = 0
        self._first_empty: tuple[Path, int] | None = None
        self._values: set[str] = set()
        self._least = np.inf  # day of the first date
        self._num_filled = self._num_words = 0
        #: number of cells, and first other cell, of each of ``_KINDS_OF_TEXTS``
        self._num_parsed = [0] * len(_KINDS_OF_TEXTS)
        self._first_other: list[tuple[Path, int, str] | None] = [None] * len(_KINDS_OF_TEXTS)
        if not (is_category or is_feature(kind)):
            raise GraphError(
                f"{table.path}: column {brief(repr(name))}: expected numbers, lists of numbers, "
                f"dates or texts, got {brief(kind)}; name the feature columns by "
                f"dataset.{options[0]}=[...]"
            )

    def add(self, batch: Batch) -> None:
        """Examine the cells of a batch; report those that cannot be features."""
        self._num_rows += len(batch)
        array = batch.columns[self.name]
        if self._is_text:
            empty = self._add_texts(batch)
        elif is_list(self.kind):
            empty = null_mask(array)
            self._add_lists(batch, array)
        elif cells.is_date(self.kind):
            values = cells.days(array)
            empty = np.isnan(values)
            self._least = min(self._least, float(values[~empty].min(initial=np.inf)))
        else:
            values = floats(batch, self.name, np.float32)
            empty = np.isnan(values)
            infinite = np.isinf(values)
            batch.report(infinite, (self.name, "finite"), lambda i: self._infinite(batch, i))
        if empty.any() and self._first_empty is None:
            self._first_empty = batch.file, batch.number(int(empty.argmax()))
        self._num_empty += int(np.count_nonzero(empty))

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
        flat = Batch(batch.file, 0, {self.name: array.flatten()})
        wrong = ~np.isfinite(floats(flat, self.name, np.float32))
        rows = np.repeat(np.arange(len(array)), np.maximum(lengths, 0))
        bad = np.zeros(len(array), np.bool_)
        bad[rows[wrong]] = True

        def tell(index: int) -> str:
            item = int(np.flatnonzero(wrong & (rows == index))[0] - np.searchsorted(rows, index))
            cell = array[index].as_py()[item]
            which = f"number {item + 1} of {name}"
            if cell is None:
                return f"{which}: expected a number, got an empty cell"
            return _not_finite(which, cell)

        batch.report(bad, (self.name, "finite"), tell)

    def _infinite(self, batch: Batch, index: int) -> str:
        """Return the message of a cell as the file has it; CSV is read again for its text."""
        value = self._table.csv_text(batch.file, batch.number(index), self.name)
        if value is None:
            value = batch.columns[self.name][index].as_py()
        return _not_finite(brief(self.name), value)

    def _add_texts(self, batch: Batch) -> BoolArray:
        """Count the kinds of texts in a batch; return which cells are empty, ``[n]``."""
        texts = as_texts(batch, self.name)
        encoded = texts.dictionary_encode()
        distinct = encoded.dictionary
        codes = encoded.indices.fill_null(len(distinct)).to_numpy()
        counts = np.bincount(codes, minlength=len(distinct) + 1)[:-1]
        self._num_filled += int(counts.sum())
        if len(self._values) <= MAX_CATEGORIES:
            self._values.update(distinct.slice(0, MAX_CATEGORIES + 1).to_pylist())
        if not self._is_category:
            short = cells.trimmed(distinct, self._table.decimal)
            is_word = null_mask(short)
            self._num_words += int(counts[is_word].sum())
            for number, (kind, pattern) in enumerate(_KINDS_OF_TEXTS):
                good = cells.matches(short, pattern)
                if number and good.any():
                    dates, wrong = cells.parsed(short.filter(pyarrow.array(good)), kind())
                    good[np.flatnonzero(good)[wrong]] = False  # such as 2024-02-30
                    days = cells.days(dates)
                    self._least = min(self._least, float(np.fmin.reduce(days, initial=np.inf)))
                self._num_parsed[number] += int(counts[good].sum())
                other = np.append(~good & ~is_word, False)
                if self._first_other[number] is None and other.any():
                    index = int(other[codes].argmax())
                    where = batch.file, batch.number(index)
                    self._first_other[number] = *where, texts[index].as_py()
        return null_mask(texts)

    def finish(self, *, refuses_empty: bool) -> Surveyed:
        """Return what the column holds; report texts among numbers, and empty cells if refused."""
        result = Surveyed(
            name=self.name,
            encoding="number",
            kind=self.kind,
            num_rows=self._num_rows,
            num_empty=self._num_empty,
        )
        if is_list(self.kind):
            kind = self.kind.value_type
            result = replace(result, encoding="list", kind=kind, length=max(self._length, 1))
        elif self._is_text:
            result = self._of_texts(result)
        elif cells.is_date(self.kind):
            result = replace(result, encoding="date")
        if result.encoding == "date":
            origin = int(np.floor(self._least)) if np.isfinite(self._least) else 0
            result = replace(result, origin=origin)
        if result.num_empty == result.num_rows:
            result = replace(result, doubt="no value")
        elif refuses_empty and result.has_gaps and self._first_empty is not None:
            message = (
                f"{brief(self.name)} is empty; dataset.missing=mean fills empty cells, and drop "
                "leaves out their rows"
            )
            kind, where = (self.name, "empty"), self._first_empty
            self._table.problems.add(kind, *where, message, result.num_empty)
        return result

    def _of_texts(self, result: Surveyed) -> Surveyed:
        """Return ``result`` for a column of texts: numbers or dates by their words, or categories.

        Texts are numbers or dates if most are.
        """
        if self._num_words == self._num_filled and not self._is_category:
            num_empty = self._num_empty + self._num_words
            return replace(result, kind=pyarrow.float32(), num_empty=num_empty)
        filled = self._num_filled - self._num_words
        best = int(np.argmax(self._num_parsed))
        count = self._num_parsed[best]
        # Texts of Parquet that are all numbers are texts by intent.
        if 2 * count > filled and (self._table.is_csv or best or count < filled):
            if count < filled and (other := self._first_other[best]) is not None:
                file, row, cell = other
                expected = ("a number", "a date", "a date with a zone")[best]
                message = (
                    f"{brief(self.name)} is {brief(repr(cell))}, expected {expected}, as most "
                    "cells of the column are; if all are categories, set "
                    f"dataset.{self._options[1]}=[{brief(self.name)}]"
                )
                kind = self.name, "kind"
                self._table.problems.add(kind, file, row, message, filled - count)
            num_empty = self._num_empty + self._num_words
            encoding = "date" if best else "number"
            kind_of = _KINDS_OF_TEXTS[best][0]()
            return replace(result, encoding=encoding, kind=kind_of, num_empty=num_empty)
        result = replace(result, encoding="category", categories=tuple(sorted(self._values)))
        num_distinct = len(self._values)
        is_many = num_distinct > MAX_CATEGORIES
        is_sparse = self._num_filled >= FEW_ROWS and num_distinct >= _NEARLY_ALL * self._num_filled
        if is_many or (is_sparse and not self._is_category):
            many = f"over {MAX_CATEGORIES}" if is_many else f"{num_distinct}"
            content = cells.likely_content([*self._values], is_sparse or is_many)
            doubt = f"{many} different texts in {self._num_filled:,} cells: {content}"
            result = replace(result, doubt=doubt)
        return result


def _not_finite(which: str, value: object) -> str:
    """Return the message for a value that is not finite, or that float32 cannot hold."""
    infinite = str(value).strip().lower().lstrip("+-") in _NOT_FINITE
    reason = "features must be finite" if infinite else "float32 cannot hold it"
    return f"{which} is {brief(value)}, {reason}"
