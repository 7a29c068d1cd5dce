"""Some rows of a table, as Arrow arrays, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Batch"]


@dataclass(frozen=True)
class Batch:
    """Rows that follow each other in a file.

    Attributes:
        file: the file.
        row: number of the first row, where the first of the file is 1.
        columns: Arrow arrays of one length, by name.
    """

    file: Path
    row: int
    columns: Mapping[str, Any]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def place(self, index: int) -> str:
        """Return how an error names row ``index`` of the batch."""
        return f"{self.file}: row {self.row + index}"
