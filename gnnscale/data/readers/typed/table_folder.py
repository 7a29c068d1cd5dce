"""Base class of the readers of a folder with tables, each of a type of vertices or edges."""

from abc import abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gnnscale.core import check_choice
from gnnscale.data.readers.table_options import MISSING_POLICIES, with_options_of
from gnnscale.data.source import GraphSource
from gnnscale.data.storage.store_check import RawFile
from gnnscale.data.tables.feature_columns import log_columns
from gnnscale.data.typed_dataset import TypedStoredDataset
from gnnscale.graph import Graph


@dataclass(frozen=True, kw_only=True)
class TableFolder(TypedStoredDataset):
    """Base of the readers of a table for each type, whose features go through files.

    Attributes:
        missing: one of ``MISSING_POLICIES`` for empty cells of numbers and dates among the
            features: ``mean`` fills in the mean over the training rows, and adds a 0/1 feature
            that marks empty cells; ``drop`` leaves out their rows; ``refuse`` raises an error.
        standardize: whether feature columns have mean 0 and standard deviation 1, over the rows
            from which means are.
    """

    missing: str = "mean"
    standardize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("dataset.missing", self.missing, MISSING_POLICIES)

    @abstractmethod
    def _read(self, folder: Path) -> tuple[Graph, dict[str, Any]]:
        """Return the graph, and notes for ``meta.json``; each reader implements it.

        Features are in files in ``folder``.
        """

    def read_graph(self) -> Graph:
        """Return the graph of the tables, whose features are mapped from a temporary folder."""
        with TemporaryDirectory() as folder:
            return self._read(Path(folder))[0]

    def _fill(self, folder: Path, records: Callable[[], list[RawFile]]) -> None:
        with TemporaryDirectory(dir=folder) as of_features:
            graph, notes = self._read(Path(of_features))
            self._write_graph(folder, graph, records, **notes)

    def prepare(self, force: bool = False) -> Path:
        """Write the graph store of the tables, unless one is up to date, and return its folder.

        With ``force`` the store is written again. Log the columns of features, and what was filled,
        added or left out.
        """
        path = super().prepare(force)
        log_columns(path)
        return path

    def with_options(self, trained: GraphSource, named: Collection[str]) -> GraphSource:
        """Return these options, completed by a run's options on how to read tables.

        Options that the user has ``named``, or that differ from their defaults, stay.
        """
        return self if self._is_prepared() else with_options_of(self, trained, named)
