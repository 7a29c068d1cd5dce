"""Base class of the sources of a run's graph."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from gnnscale.core.config.untrusted import names
from gnnscale.data.tables.categories import TrainedColumns
from gnnscale.data.tables.table import Table
from gnnscale.graph import Graph


@dataclass(frozen=True, kw_only=True)
class GraphSource(ABC):
    """Source of a run's graph: raw files of a layout, a generator, or an existing store."""

    #: directory of the graph store. None: a directory in ``${GNNSCALE_HOME}/graphs``.
    store: str | None = field(default=None, metadata=names("place"))

    @abstractmethod
    def prepare(self, force: bool = False) -> Path:
        """Return the directory of the graph store.

        Implementations create the store if it is missing, where they can.
        """

    def open(self) -> Graph:
        """Return the graph, memory-mapped; ``prepare`` creates its store if that is missing.

        Raises:
            GraphError: ``prepare`` fails, or the store is damaged.
        """
        return Graph.open(self.prepare())

    def with_options(self, trained: "GraphSource", named: Collection[str]) -> "GraphSource":
        """Return this source; a subclass may take options of ``trained``, a run's source.

        Options that the user has ``named`` stay.
        """
        return self

    def vertex_table(self) -> tuple[Table, str] | None:
        """Return the raw table of the vertices, and its column of ids; here None: no such table."""
        return None

    def to_predict(self, trained: TrainedColumns, *, splits: bool) -> "GraphSource":
        """Return the source to open for predictions by a trained run: this object.

        A subclass may return one that reads no labels, or takes its feature columns from
        ``trained``, those of the run. ``splits`` says whether a part of the split is predicted, so
        that the split is read.
        """
        return self
