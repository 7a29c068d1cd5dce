"""Roles of columns that the user does not name: features of vertices, and masks of a split."""

import logging
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from gnnscale.core import GraphError, shown
from gnnscale.data.tables.label_columns import SplitColumn, SplitMasks
from gnnscale.data.tables.table import Table

_LOG = logging.getLogger(__name__)
#: Names of the split's masks, of which a table has one for each part.
_MASKS = (("train_mask",), ("valid_mask", "val_mask"), ("test_mask",))
_IS_MASK = re.compile(r".*_masks?(_?\d+)?", re.IGNORECASE)
_IS_SPLIT = re.compile(r"(.*_)?split(_?\d+)?", re.IGNORECASE)
#: Columns of booleans that are masks too; numbers and texts are if there is more than one part.
_IS_PART = re.compile(r"(?:is_)?(?:(train|training)|val|valid|validation|(test))", re.IGNORECASE)
#: Names that pandas and readr give to a column without one, and pandas to its index.
_UNNAMED = re.compile(r"Unnamed: \d+(_level_\d+)?(\.\d+)?|\.\.\.\d+|")
_INDEX = re.compile(r"__index_level_\d+__|index|level_\d+")
#: Names of numbers that are ids.
_IS_ID = re.compile(r"(.*[_ ])?(id|ids|uuid|guid)|.*[a-z]I[dD]", re.IGNORECASE)
#: Names of labels, of which a table may have more than the one that is read.
_IS_LABEL = re.compile(r"(y|labels?|targets?|class(es)?)([_ ]?(name|id|idx|index))?", re.IGNORECASE)
#: Columns that a line of the log lists.
_MAX_LISTED = 12


def default_features(
    table: Table, taken: Collection[str | None], named: Collection[str]
) -> list[str]:
    """Return the columns that are features if the user names none, and log what is left out.

    Args:
        table: of the vertices.
        taken: columns of other roles.
        named: columns that the user names as categories, which are features in any case.
    """
    free = [name for name in table.names if name not in taken]
    parts = _parts(free, table)
    reasons = {
        name: "a mask" if name in parts else no_feature(name) for name in free if name not in named
    }
    reasons |= dict.fromkeys(table.index_columns & reasons.keys(), "the index of pandas")
    left_out = {name: reason for name, reason in reasons.items() if reason}
    if left_out:
        listed = [f"{shown(repr(name))} ({reason})" for name, reason in left_out.items()]
        _LOG.info(
            "%s: no features, unless dataset.features names them: %s", table.path, _listed(listed)
        )
    return [name for name in free if name not in left_out]


def no_feature(name: str) -> str:
    """Return why a column of this name is no feature; empty for one that is."""
    if _UNNAMED.fullmatch(name.strip()):
        return "no name"
    if _INDEX.fullmatch(name):
        return "the index of pandas"
    if _IS_SPLIT.fullmatch(name):
        return "a split"
    return "a mask" if _IS_MASK.fullmatch(name) else ""


def _parts(names: Sequence[str], table: Table) -> set[str]:
    """Return the columns that are masks, as ``train`` and ``test`` of a split.

    A column by itself may be a feature, such as the result of a test, unless it holds booleans.
    """
    from pyarrow import types

    found = {name: match for name in names if (match := _IS_PART.fullmatch(name))}
    several = any(match[1] for match in found.values()) and len(found) > 1
    return {name for name in found if several or types.is_boolean(table.types[name])}


def warn_of_store(columns: object, named: Collection[str], path: Path) -> None:
    """Warn of a store that an earlier release prepared with such columns as features.

    Args:
        columns: what its ``meta.json`` says of them, unchecked.
        named: columns that the user names as categories.
        path: of the store.
    """
    names = (
        [each.get("name") for each in columns if isinstance(each, dict)]
        if isinstance(columns, list)
        else []
    )
    kept = [
        name for name in names if isinstance(name, str) and name not in named and no_feature(name)
    ]
    if kept:
        _LOG.warning(
            "%s: features are also %s, as an earlier release prepared it; gnnscale prepare with "
            "force=true leaves them out",
            *(path, _listed([f"{shown(repr(name))} ({no_feature(name)})" for name in kept])),
        )


def log_features(table: Table, names: Sequence[str]) -> None:
    """Log which columns are features."""
    _LOG.info("%s: features are %s", table.path, _listed([shown(repr(name)) for name in names]))


def warn_of_names(table: Table, names: Sequence[str], categories: Collection[str]) -> None:
    """Warn of features, which the user has not named, that have the name of a label or an id.

    ``categories`` are those of them that hold categories.
    """
    for name in names:
        role = other_role(name)
        if role == "a label":
            _LOG.warning(
                "%s: %s is by name a label, and among the features; dataset.features=[...] leaves "
                "it out",
                *(table.path, shown(repr(name))),
            )
        elif role and name not in categories:
            _LOG.warning(
                "%s: %s is by name an id, and a number among the features; dataset.features=[...] "
                "leaves it out, and dataset.categories=[...] makes each value a feature",
                *(table.path, shown(repr(name))),
            )


def other_role(name: str) -> str:
    """Return what else than a feature a column of this name may be; empty for another name."""
    if _IS_LABEL.fullmatch(name):
        return "a label"
    return "an id" if _IS_ID.fullmatch(name) else ""


def find_split(table: Table, option: str, column: str, default: str) -> SplitColumn:
    """Return the split of a table: the column of words, or three masks if there is no such column.

    Args:
        table: of the vertices, or of the edges.
        option: names the column.
        column: its value.
        default: the value that allows masks instead.

    Raises:
        GraphError: there is neither, or not a mask for each part.
    """
    if column in table.names or column != default:
        return SplitColumn(table.require_or(option, column, "dataset.split=random"))
    found = [[name for name in names if name in table.names] for names in _MASKS]
    if not any(found):
        return SplitColumn(table.require_or(option, column, "dataset.split=random"))
    missing = [" or ".join(names) for names, have in zip(_MASKS, found, strict=True) if not have]
    if missing:
        there = ", ".join(name for names in found for name in names)
        raise GraphError(
            f"{table.path}: has {there}, and no {' and no '.join(missing)}; a split needs a mask "
            "for each part, and dataset.split=random draws one"
        )
    masks = [table.require(option, names[0]) for names in found]
    _LOG.info("%s: %s are the split", table.path, ", ".join(masks))
    return SplitMasks({name: table.types[name] for name in masks})


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
