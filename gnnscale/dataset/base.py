"""Dataset: how published or generated files become a graph store, and a store a Graph."""

from __future__ import annotations

import hashlib
import json
import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gnnscale.config import ConfigError, check_choice
from gnnscale.dataset.storage.download import Published, download
from gnnscale.dataset.storage.folder import new_folder
from gnnscale.dataset.storage.store import StoreOptions, StoreWriter
from gnnscale.graph import FORMAT_VERSION, Graph, GraphError
from gnnscale.hardware import home
from gnnscale.progress import track

__all__ = ["SPLITS", "Dataset", "random_split"]

_LOG = logging.getLogger(__name__)
#: Where the split comes from: the publisher, or a random draw over the labelled vertices.
SPLITS = ("published", "random")


@dataclass(frozen=True, kw_only=True)
class Dataset(StoreOptions, ABC):
    """Base of the readers. Each reads one published layout; options that all share are here.

    Attributes:
        name: which dataset of the layout; also what reports call it.
        raw: the published file, or the folder that has it. None downloads it where a published
            address is known.
        store: the graph store's directory; None for a name that tells options apart, in
            ``${GNNSCALE_HOME:-~/.cache/gnnscale}/graphs``.
        split: one of ``SPLITS``.
        train_fraction: share of the labelled vertices in a random split.
        valid_fraction: likewise; the rest is for test.
        split_seed: seed of a random split.
    """

    name: str
    raw: str | None = None
    store: str | None = None
    split: str = "published"
    train_fraction: float = 0.6
    valid_fraction: float = 0.2
    split_seed: int = 0

    #: Whether the layout comes with a split.
    has_split: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("dataset.split", self.split, SPLITS)
        if self.split == "published" and not self.has_split:
            raise ConfigError("dataset.split=published: the layout has no split, use random")
        total = self.train_fraction + self.valid_fraction
        if min(self.train_fraction, self.valid_fraction) <= 0 or total >= 1:
            raise ConfigError(
                f"dataset.train_fraction={self.train_fraction}, "
                f"valid_fraction={self.valid_fraction}: both must be above 0, their sum below 1"
            )

    @abstractmethod
    def read(self, writer: StoreWriter) -> None:
        """Push the vertices, edges, features, labels and published split into ``writer``."""

    def published(self) -> Published | None:
        """Return what is to be downloaded where ``raw`` is not given, None if nothing is known."""
        return None

    def open(self) -> Graph:
        """Prepare the store if it is missing, and map it.

        Raises:
            GraphError: the files are not usable, or the store was prepared with other options.
        """
        path = self.prepare()
        self._check_options(path)
        return Graph.open(path)

    def prepare(self, force: bool = False) -> Path:
        """Turn the raw files into a graph store and return its directory.

        Args:
            force: do so even where the store exists.

        Raises:
            GraphError: the files are missing or not usable. Nothing is left behind.
        """
        path = self.store_path()
        with new_folder(path, replace=force) as folder:
            if folder is not None:
                _LOG.info("preparing %s in %s", self.name, path)
                self._fill(folder)
        return path

    def store_path(self) -> Path:
        """Return the store's directory."""
        if self.store is not None:
            return Path(self.store).expanduser().absolute()
        identity = {"format": FORMAT_VERSION, **self._identity()}
        if self.raw is not None:
            identity["raw"] = str(Path(self.raw).expanduser().absolute())
        digest = hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=4)
        return home() / "graphs" / f"{self.name}-{digest.hexdigest()}"

    def raw_path(self) -> Path:
        """Return the published file or folder, downloaded first where that is possible."""
        if self.raw is not None:
            path = Path(self.raw).expanduser()
            if not path.exists():
                raise GraphError(f"dataset.raw={self.raw}: no such file or folder")
            return path
        published = self.published()
        if published is None:
            raise ConfigError(
                f"dataset.raw: name the file or folder of {self.name}, "
                "there is no published address to download it from"
            )
        return download(published)

    def raw_file(self, name: str) -> Path:
        """Return ``raw`` itself where it is a file, else the file ``name`` in it."""
        path = self.raw_path()
        path = path / name if path.is_dir() else path
        if not path.exists():
            raise GraphError(f"{path}: missing")
        return path

    def _fill(self, folder: Path) -> None:
        with StoreWriter(folder, self) as writer, track(f"preparing {self.name}"):
            self.read(writer)
            if self.split == "random":
                fractions = (self.train_fraction, self.valid_fraction)
                parts = random_split(writer.labels, fractions, seed=self.split_seed)
                writer.set_split(*parts, source=f"random split of {self.name}")
            source = self.raw or type(self).__name__
            writer.finish(name=self.name, source=source, options=self._identity())

    def _identity(self) -> dict[str, Any]:
        """Everything that changes what the store holds, apart from the raw files."""
        skip = ("raw", "store", "memory_bytes")
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"layout": type(self).__name__} | {
            name: value for name, value in values.items() if name not in skip
        }

    def _check_options(self, path: Path) -> None:
        try:
            stored = json.loads((path / "meta.json").read_text())["options"]
        except (OSError, ValueError, KeyError):
            return  # Graph.open says what is wrong
        for name, value in self._identity().items():
            if name in stored and stored[name] != value:
                raise GraphError(
                    f"{path}: prepared with {name}={stored[name]}, now {name}={value}; "
                    "name another dataset.store, or prepare it again by force"
                )


def random_split(
    labels: NDArray[Any], fractions: tuple[float, float], *, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Draw train, valid and test vertices from those that have a label.

    Args:
        labels: ``[num_vertices]`` with -1 for unknown, or ``[num_vertices, num_classes]``.
        fractions: shares of train and valid; the rest is test.
        seed: fixes the draw.
    """
    known = np.arange(len(labels)) if labels.ndim == 2 else np.flatnonzero(labels >= 0)
    order = np.random.Generator(np.random.Philox(seed)).permutation(known)
    first, second = (round(len(order) * share) for share in np.cumsum(fractions))
    return order[:first], order[first:second], order[second:]
