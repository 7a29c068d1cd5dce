"""A graph store as it is, such as ``Graph.save`` writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gnnscale.config import ConfigError
from gnnscale.dataset.base import Dataset
from gnnscale.dataset.storage.store import StoreWriter
from gnnscale.graph_files import read_meta

__all__ = ["Store"]


@dataclass(frozen=True, kw_only=True)
class Store(Dataset):
    """A store that exists already; nothing is prepared. Options of stores do not change it.

    Attributes:
        store: its directory.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.store is None:
            raise ConfigError("dataset.store: name the directory of the graph store")
        if self.raw is not None:
            raise ConfigError("dataset.raw: dataset=store reads no published files, leave it out")

    def read(self, writer: StoreWriter) -> None:
        """Do nothing: there is nothing to be written."""

    def raw_files(self) -> Sequence[Path]:
        """Return nothing: the store has all."""
        return ()

    def prepare(self, force: bool = False) -> Path:
        """Return the store's directory.

        Raises:
            ConfigError: it was to be made anew.
            GraphError: it is no graph store.
        """
        if force:
            raise ConfigError("force=true: dataset=store is what it is, and not made of anything")
        path = self.store_path()
        read_meta(path)
        return path
