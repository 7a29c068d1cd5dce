"""Rows of a table: what was published, what is predicted, and by how much they differ."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean


@dataclass(frozen=True)
class Row:
    """A cell of a published table, or a figure of a text."""

    cell: str
    unit: str
    published: float | None  # None if the paper gives no number
    predicted: float | None  # None if nothing here predicts it
    note: str = ""

    @property
    def error(self) -> float | None:
        """Predicted over published, less one."""
        if self.published is None or self.predicted is None:
            return None
        return self.predicted / self.published - 1


@dataclass(frozen=True)
class Claim:
    """Something that holds or does not: an order, or the sign of a step."""

    what: str
    holds: bool


@dataclass(frozen=True, kw_only=True)
class Table:
    """A published table or figure."""

    name: str  # such as "HitGNN, Table VI"
    rows: Sequence[Row]
    assumptions: Sequence[str] = ()
    claims: Sequence[Claim] = ()
    plots: Sequence[str] = field(default=())  # SVG

    @property
    def mean_error(self) -> float | None:
        """Mean of the absolute errors of the rows that have one."""
        errors = [abs(row.error) for row in self.rows if row.error is not None]
        return fmean(errors) if errors else None
