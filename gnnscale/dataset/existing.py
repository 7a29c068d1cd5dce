"""A graph store that somebody has made already: ``gnnscale prepare``, or ``Graph.save``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnnscale.artifact.folder import store_place
from gnnscale.artifact.graph_store import read_meta
from gnnscale.config import ConfigError
from gnnscale.dataset.base import GraphSource
from gnnscale.graph import GraphError

__all__ = ["ExistingStore"]


@dataclass(frozen=True, kw_only=True)
class ExistingStore(GraphSource):
    """The graph of an existing store; nothing is prepared.

    Attributes:
        store: the store's directory; needed.
    """

    def prepare(self, force: bool = False) -> Path:
        """Return the store's directory.

        Args:
            force: not allowed, since what the store was made of is not known here.

        Raises:
            ConfigError: ``store`` is not given or no path, or ``force`` is given.
            GraphError: there is no store, or it holds one part of a graph.
        """
        if force:
            raise ConfigError(
                "force=true: dataset=store uses a store as it is; name the dataset that it was "
                "prepared from"
            )
        if self.store is None:
            raise ConfigError("dataset.store: name the directory of the graph store")
        path = store_place(self.store)
        if not path.exists():
            raise GraphError(f"dataset.store={self.store}: no such folder")
        part = read_meta(path).part
        if part is not None:
            raise GraphError(
                f"{path}: is part {part.index} of {part.num_parts} of a graph, name the store of "
                "the whole"
            )
        return path
