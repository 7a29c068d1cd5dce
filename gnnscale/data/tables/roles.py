"""Default roles of columns: vertex features, and masks of a split, by name and type."""

import logging
import re
from collections.abc import Collection, Sequence

from gnnscale.core import GraphError, brief, pyarrow
from gnnscale.data.tables.label_columns import SplitColumn, SplitMasks
from gnnscale.data.tables.survey import Surveyed, is_feature
from gnnscale.data.tables.table import Table

_LOG = logging.getLogger(__name__)
#: Names of the masks of a split, one per part.
_MASKS = tuple(
    re.compile(rf"(is_)?{part}_?mask|is_{part}", re.IGNORECASE)
    for part in ("train(ing)?", "(val(id(ation)?)?|dev)", "test(ing)?")
)
_IS_MASK = re.compile(r".*_masks?(_?\d+)?", re.IGNORECASE)
_IS_SPLIT = re.compile(r"(.*_)?split(_?\d+)?", re.IGNORECASE)
#: Names of parts: columns of booleans are masks; other columns are if there are several parts.
_IS_PART = re.compile(r"(?:is_)?(?:(train|training)|val|valid|validation|(test))", re.IGNORECASE)
#: Names that pandas and readr assign to unnamed columns, and pandas to its index.
_UNNAMED = re.compile(r"Unnamed: \d+(_level_\d+)?(\.\d+)?|\.\.\.\d+|")
_INDEX = re.compile(r"__index_level_\d+__|index|level_\d+")
#: Names of ids.
_IS_ID = re.compile(r"(.*[_ ])?(id|ids|uuid|guid)|(?-i:.*[a-z]I[dD])", re.IGNORECASE)
#: Names of labels.
_IS_LABEL = re.compile(r"(y|labels?|targets?|class(es)?)([_ ]?(name|id|idx|index))?", re.IGNORECASE)
#: Columns listed in a line of the log, at most.
_MAX_LISTED = 12


def default_features(
    table: Table, other_roles: Collection[str | None], categories: Collection[str]
) -> list[str]:
    """Return the columns of ``table`` that are features by default: all but ``other_roles``.

    Masks, splits, indices, nameless columns and types that are no features are left out, too, and
    logged, unless they are in ``categories``. ``other_roles`` are the columns of ids, labels and
    split.
    """
    free = [name for name in table.names if name not in other_roles]
    parts = _parts(free, table)
    reasons = {
        name: "a mask" if name in parts else skip_reason(name)
        for name in free
        if name not in categories
    }
    reasons |= dict.fromkeys(table.index_columns & reasons.keys(), "the index of pandas")
    if not table.is_csv:
        kinds = {name: table.types[name] for name in reasons}
        reasons |= {
            name: f"of {brief(kind)}" for name, kind in kinds.items() if not is_feature(kind)
        }
    left_out = {name: reason for name, reason in reasons.items() if reason}
    if left_out:
        listed = [f"{brief(repr(name))} ({reason})" for name, reason in left_out.items()]
        _LOG.info(
            "%s: no features, unless dataset.features names them: %s",
            table.path,
            join_names(listed),
        )
    return [name for name in free if name not in left_out]


def skip_reason(name: str) -> str:
    """Return the reason not to use column ``name`` as a feature; an empty text for a feature.

    Reasons are no name, an index, a split and a mask.
    """
    if _UNNAMED.fullmatch(name.strip()):
        return "no name"
    if _INDEX.fullmatch(name):
        return "the index of pandas"
    if _IS_SPLIT.fullmatch(name):
        return "a split"
    return "a mask" if any(mask.fullmatch(name) for mask in (_IS_MASK, *_MASKS)) else ""


def _parts(names: Sequence[str], table: Table) -> set[str]:
    """Return the columns of ``names`` that are masks by a name such as ``train`` or ``is_valid``.

    A boolean column with such a name is a mask; a column of another type is a mask only if one such
    name is of training and there are at least two such names.
    """
    matches = {name: match for name in names if (match := _IS_PART.fullmatch(name))}
    several = any(match[1] for match in matches.values()) and len(matches) > 1
    return {name for name in matches if several or pyarrow.types.is_boolean(table.types[name])}


def warn_of_names(table: Table, columns: Sequence[Surveyed]) -> None:
    """Warn of each feature column whose name suggests a label or, unless of categories, an id."""
    hint = f"among the features; {table.setting('features', '[...]')} leaves it out"
    categories = table.setting("categories", "[...]")
    hints = {
        "a label": hint,
        "an id": f"a number {hint}, and {categories} makes each value a feature",
    }
    for column in columns:
        role = suspected_role(column.name)
        if role == "a label" or (role and column.categories is None):
            name = brief(repr(column.name))
            _LOG.warning("%s: %s is by name %s, and %s", table.path, name, role, hints[role])


def suspected_role(name: str) -> str:
    """Return ``a label`` or ``an id`` if a column's name suggests this role, else an empty text."""
    if _IS_LABEL.fullmatch(name):
        return "a label"
    return "an id" if _IS_ID.fullmatch(name) else ""


def find_split(table: Table, option: str, column: str, default: str) -> SplitColumn:
    """Return the split of a table: its ``column`` of words, or else its columns of masks.

    Masks such as ``train_mask`` replace the column only if the table lacks it and ``column``, the
    value of ``option``, is the ``default``; masks of validation and test may be missing.
    GraphError: the column is missing, and so is the training mask.
    """
    mask_names = [[name for name in table.names if part.fullmatch(name)] for part in _MASKS]
    if column in table.names or column != default or not any(mask_names):
        return SplitColumn(table.require(option, column, otherwise="dataset.split=random"))
    if not mask_names[0]:
        existing = ", ".join(name for names in mask_names for name in names)
        raise GraphError(
            f"{table.path}: expected a mask of the training part, got {existing} and no "
            "train_mask; dataset.split=random draws a split"
        )
    masks = [table.require(option, names[0]) if names else None for names in mask_names]
    _LOG.info("%s: the split is of %s", table.path, ", ".join(filter(None, masks)))
    return SplitMasks(table, masks)


def join_names(names: Sequence[str]) -> str:
    """Return names separated by commas, a few of them and the number of others."""
    more = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
