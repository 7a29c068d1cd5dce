"""Cells of text that hold numbers or dates, as spreadsheets and programs write them."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gnnscale.core import BoolArray, Int64Array, brief, pyarrow
from gnnscale.data.tables.batch import null_mask

#: Patterns of numbers, of dates and times of ISO 8601, and of those with a zone.
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
DATE = r"^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,9})?)?)?$"
ZONED = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)$"
_INTEGER = r"^[+-]?\d{1,19}$"
#: Words of programs for an empty cell in a column of numbers or dates.
_MISSING = r"^(?i:|-|\.|n/?a|#n/a|nan|null|none|nat|\\n|missing|\?)$"
#: Texts that a person reads as a date, and as a number with marks that programs do not read.
_LIKE_DATE = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}([ T,].*)?|\w+ \d{1,2},? \d{4}.*")
_UNIT = r"([€$£¥₹%]|[A-Z]{3})?"
_LIKE_NUMBER = re.compile(rf"{_UNIT}\s?[+-]?\d{{1,3}}([.,' ]?\d{{3}})*([.,]\d+)?\s?{_UNIT}")
#: Microseconds of a day.
_DAY = 86_400_000_000


def is_date(kind: Any) -> bool:
    """Whether an Arrow type is one of dates or timestamps."""
    return bool(pyarrow.types.is_date(kind) or pyarrow.types.is_timestamp(kind))


def csv_date_type(guessed: Any) -> Any:
    """Return the type to parse dates of CSV as: timestamps, of UTC if ``guessed`` has a zone."""
    if not pyarrow.types.is_timestamp(guessed):
        return pyarrow.timestamp("us")
    # In microseconds year 9999 exists, which stands for "no end" in many tables.
    return pyarrow.timestamp("ns" if guessed.unit == "ns" else "us", guessed.tz)


def noun(kind: Any) -> str:
    """Return what a cell of CSV of an Arrow type is, for errors."""
    if pyarrow.types.is_boolean(kind):
        return "true or false"
    if pyarrow.types.is_timestamp(kind):
        return f"a date or time {'without' if kind.tz is None else 'with'} a zone"
    if pyarrow.types.is_integer(kind):  # of ids alone
        return "a whole number; dataset.id_type=string reads ids as texts"
    return "a number"


def days(array: Any) -> Any:
    """Return dates or timestamps as float64 days since 1970-01-01 (UTC), nulls as NaN."""
    if pyarrow.types.is_date(array.type):
        array = pyarrow.compute.cast(array, pyarrow.timestamp("ms"))
    units = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": 1e-3}
    count = pyarrow.compute.cast(array, pyarrow.int64())
    values = count.to_numpy(zero_copy_only=False).astype(np.float64)
    values[null_mask(array)] = np.nan
    return values * (units[array.type.unit] / _DAY)


def matches(texts: Any, pattern: str) -> BoolArray:
    """Return which of an Arrow array of texts match a pattern, ``[n]``; nulls do not."""
    mask = pyarrow.compute.match_substring_regex(texts, pattern).fill_null(False)
    matching: BoolArray = mask.to_numpy(zero_copy_only=False)
    return matching


def coded(texts: Any, code: Callable[[str], int], empty: int) -> Int64Array:
    """Return the ``code`` of each text of an Arrow array, ``[n]``, and ``empty`` for a null."""
    encoded = texts.dictionary_encode()
    codes = np.array([*map(code, encoded.dictionary.to_pylist()), empty], np.int64)
    codes_of_rows: Int64Array = codes[encoded.indices.fill_null(len(codes) - 1).to_numpy()]
    return codes_of_rows


def trimmed(texts: Any, decimal: str = ".") -> Any:
    """Return texts without blanks around them; words for an empty cell become null.

    ``decimal``, the mark of decimals, becomes a point.
    """
    texts = pyarrow.compute.utf8_trim_whitespace(texts)
    if decimal != ".":
        texts = pyarrow.compute.replace_substring(texts, decimal, ".")
    word = pyarrow.array(matches(texts, _MISSING))
    return pyarrow.compute.if_else(word, pyarrow.scalar(None, texts.type), texts)


def parsed(texts: Any, kind: Any, decimal: str = ".") -> tuple[Any, BoolArray]:
    """Return ``texts`` as an Arrow array of ``kind``, and which are not of it, ``[n]``.

    ``kind`` is a type of numbers, booleans or timestamps; a text that is not of it becomes null, as
    do words for an empty cell.
    """
    texts = trimmed(texts, decimal)
    if pyarrow.types.is_timestamp(kind):
        good = matches(texts, DATE if kind.tz is None else ZONED)
    elif pyarrow.types.is_boolean(kind):
        texts = pyarrow.compute.utf8_lower(texts)
        good = matches(texts, "^(true|false|0|1)$")
    else:
        if pyarrow.types.is_integer(kind):  # pandas makes fractions of integers with gaps
            texts = pyarrow.compute.replace_substring_regex(texts, r"\.0+$", "")
        good = matches(texts, _INTEGER if pyarrow.types.is_integer(kind) else NUMBER)
    candidates = pyarrow.compute.if_else(
        pyarrow.array(good), texts, pyarrow.scalar(None, texts.type)
    )
    try:
        array = pyarrow.compute.cast(candidates, kind)
    except pyarrow.ArrowInvalid:  # such as 2024-13-01, or an integer of 70 bits
        array = pyarrow.concat_arrays([_parsed_one(text, kind) for text in candidates])
    return array, null_mask(array) & ~null_mask(texts)


def _parsed_one(text: Any, kind: Any) -> Any:
    try:
        return pyarrow.array([pyarrow.compute.cast(text, kind).as_py()], kind)
    except pyarrow.ArrowInvalid:
        return pyarrow.nulls(1, kind)


def likely_content(texts: Sequence[str], are_distinct: bool) -> str:
    """Return what the cells of a column without categories seem to hold, with the cure.

    ``texts`` are some of its values; ``are_distinct``: nearly all cells differ.
    """

    def are_mostly(pattern: re.Pattern[str]) -> bool:
        return 2 * sum(pattern.fullmatch(text.strip()) is not None for text in texts) > len(texts)

    example = brief(repr(min(texts, default="")))
    if all(text.isdigit() for text in texts):
        return f"numbers such as {example}?"
    if are_mostly(_LIKE_DATE):
        return f"dates such as {example}? write them as 2024-01-31 (ISO 8601)"
    if are_mostly(_LIKE_NUMBER):
        return (
            f"amounts such as {example}? dataset.decimal=',' reads decimal commas; signs of "
            "thousands and of currency must go"
        )
    if are_distinct and not any(" " in text for text in texts):
        return f"an id or a name, such as {example}?"
    return f"free text, such as {example}?"
