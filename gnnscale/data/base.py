"""Dataset: published or generated files become a graph store, and a store becomes a Graph."""

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from gnnscale.core import ConfigError, GraphError, check_choice, check_range, progress, shown
from gnnscale.core.artifact.files import NoSpaceError, check_place, new_folder, store_place
from gnnscale.core.config.untrusted import names
from gnnscale.core.files import expanded
from gnnscale.core.types import Array, Int64Array, IntArray
from gnnscale.data.storage import remote
from gnnscale.data.storage import store_check as raw_files
from gnnscale.data.storage.options import StoreOptions
from gnnscale.data.storage.writer import StoreWriter
from gnnscale.data.tables.categories import Column
from gnnscale.graph import Graph
from gnnscale.graph.store_format import GRAPH_STORE, has_label, read_meta

_LOG = logging.getLogger(__name__)
_Parts: TypeAlias = tuple[Int64Array, Int64Array, Int64Array]
#: Where the split comes from: the publisher, or a random draw over the labelled vertices.
SPLITS = ("published", "random")
#: Units of a random split of edges: all edges between two vertices, or each edge by itself.
EDGE_UNITS = ("pair", "edge")
#: Names become names of folders, and parts of addresses.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


@dataclass(frozen=True, kw_only=True)
class GraphSource(ABC):
    """The source of a run's graph: files of a layout, a generator, or a store."""

    #: the graph store's directory; None for one in the home of all stores
    store: str | None = field(default=None, metadata=names("place"))

    @abstractmethod
    def prepare(self, force: bool = False) -> Path:
        """Return the directory of the graph store, made first if needed."""

    def open(self) -> Graph:
        """Prepare the store if it is missing, and map it.

        Raises:
            GraphError: as ``prepare`` does, or the store is damaged.
        """
        return Graph.open(self.prepare())

    def to_predict(
        self,
        columns: Sequence[Column] | None,
        edge_columns: Sequence[Column] | None,
        *,
        splits: bool,
    ) -> "GraphSource":
        """Return the source of this graph for predictions: with no more than these need.

        Args:
            columns: of the features that the run reads; None if they have no names.
            edge_columns: likewise, of the features of edges.
            splits: whether parts of the split are named.
        """
        return self


@dataclass(frozen=True, kw_only=True)
class Dataset(StoreOptions, GraphSource):
    """Base of the readers. Each reads one published layout; options that all share are here.

    Attributes:
        name: which dataset of the layout; also its name in reports. Up to 100 letters, digits
            and ``._+-``.
        raw: the published file, or the folder that has it. None downloads it if a published
            address is known.
        store: the graph store's directory; None for a name that depends on the options, in
            ``${GNNSCALE_HOME:-~/.cache/gnnscale}/graphs``.
        split: one of ``SPLITS``.
        train_fraction: share of the labelled vertices in a random split.
        valid_fraction: likewise; the rest is for test.
        split_seed: seed of a random split.
    """

    name: str
    raw: str | None = field(default=None, metadata=names("place", unless="store"))
    store: str | None = field(default=None, metadata=names("place"))
    split: str = "published"
    train_fraction: float = 0.6
    valid_fraction: float = 0.2
    split_seed: int = 0

    #: Whether the layout comes with a split.
    has_split: ClassVar[bool] = True
    #: Whether the graph is drawn, so that there are no published files.
    generated: ClassVar[bool] = False
    #: Whether users bring the graph, which may have neither labels nor a split for predictions.
    _is_users: ClassVar[bool] = False
    #: Whether the store is for training, so that it gets labels, and the user advice.
    _has_labels: ClassVar[bool] = True
    _advises: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _NAME.fullmatch(self.name) or ".." in self.name:
            raise ConfigError(
                f"dataset.name={shown(self.name)}: must be a name, not a path; allowed are up to "
                "100 letters from a to z, digits and the signs . _ + -, a letter or digit first"
            )
        _check_paths(self.raw, self.store)
        if self.generated and self.raw is not None:
            raise ConfigError(
                f"dataset.raw={shown(self.raw)}: {type(self).__name__} generates its graph and "
                "reads no file; name the layout of the file with dataset=..., or leave raw out"
            )
        check_choice("dataset.split", self.split, SPLITS)
        if self.split == "published" and not self.has_split:
            raise ConfigError("dataset.split=published: the layout has no split, use random")
        check_range("dataset.split_seed", self.split_seed, 0, 2**63 - 1)
        _check_fractions(self._fractions)

    @property
    def _fractions(self) -> tuple[float, float]:
        return self.train_fraction, self.valid_fraction

    @abstractmethod
    def read(self, writer: StoreWriter) -> None:
        """Push the vertices, edges, features, labels and published split into ``writer``."""

    @abstractmethod
    def raw_files(self) -> Sequence[Path]:
        """Return the published files that ``read`` reads; nothing for generated graphs."""

    def published(self) -> remote.Published | None:
        """Return the download for a missing ``raw``, None if there is no published address."""
        return None

    def prepare(self, force: bool = False) -> Path:
        """Turn the raw files into a graph store and return its directory.

        A store that exists is used if it was made with these options of files with this content.
        One in the default place is made anew if the files have changed, any with ``force``.

        Raises:
            GraphError: the files are missing or not usable; or ``store`` was made with other
                options or of other files, or is no store. Nothing is left there.
        """
        path = self.store_path()
        why = ""

        def replace() -> bool:
            nonlocal why
            why = self._outdated(path, force)
            return bool(why)

        with new_folder(path, replace=replace) as folder:
            if folder is not None:
                _LOG.info("preparing %s in %s%s", self.name, path, why)
                self._fill(folder)
        if folder is None and not self.generated and "made" in read_meta(path).entries:
            _LOG.warning("%s: features and labels are made, not published", self.name)
        return path

    def to_predict(
        self,
        columns: Sequence[Column] | None,
        edge_columns: Sequence[Column] | None,
        *,
        splits: bool,
    ) -> "Dataset":
        """Return this dataset without advice for training and, if users bring it, without labels.

        A store that ``store`` names stays what it is, if these options made it.
        """
        found = copy(self)
        object.__setattr__(found, "_advises", False)
        if self._is_users and not splits and not self._is_prepared():
            object.__setattr__(found, "_has_labels", False)
        return found

    def _is_prepared(self) -> bool:
        """Whether ``store`` names a store that these options made."""
        if self.store is None or not (path := self.store_path()).exists():
            return False
        try:
            raw_files.check_options(path, read_meta(path), self._identity())
        except GraphError:
            return False
        return True

    def _outdated(self, path: Path, force: bool) -> str:
        """Return why the store at ``path`` must be made anew; empty if it need not."""
        if force:
            if self.store is not None:
                raw_files.check_replaceable(path)
            return ", as asked for"
        meta = read_meta(path)
        raw_files.check_options(path, meta, self._identity())
        files = self._present_files()
        changed = raw_files.changed_file(path, meta, files, self.raw_path()) if files else None
        if changed is None:
            return ""
        if self.store is not None:
            raise GraphError(
                f"{changed}: not the file that {path} was prepared from; run gnnscale prepare with "
                "force=true, or name another dataset.store"
            )
        return f", since {changed} has changed"

    def _present_files(self) -> Sequence[Path]:
        """The published files that the user named; empty if they no longer exist."""
        if self.raw is None:
            return ()
        try:
            return [file for file in self.raw_files() if file.exists()]
        except (GraphError, OSError):  # a store outlives what it was made of
            return ()

    def store_path(self) -> Path:
        """Return the store's directory."""
        identity = self._identity()
        if self.raw is not None and self.store is None:
            local = None if remote.is_remote(self.raw) else _expanded(self.raw).absolute()
            identity["raw"] = str(local or self.raw)
        return GRAPH_STORE.place(self.store, self.name, None, identity)

    def raw_path(self) -> Path:
        """Return the published file or folder, downloaded first if that is possible."""
        if self.raw is not None:
            return _existing(self.raw)
        published = self.published()
        if published is None:
            raise ConfigError(
                f"dataset.raw: name the file or folder of {self.name}, "
                "there is no published address to download it from"
            )
        return remote.download(published)

    def raw_file(self, name: str) -> Path:
        """Return ``raw`` itself if it is a file, else the file ``name`` in it."""
        path = self.raw_path()
        path = path / name if path.is_dir() else path
        if not path.exists():
            raise GraphError(f"{path}: missing")
        return path

    def _fill(self, folder: Path) -> None:
        published = self.published() if self.raw is None else None
        if published is not None:
            remote.download(published)  # a host that cannot be reached has damaged nothing
        try:
            self._write(folder)
        except NoSpaceError:
            raise
        except GraphError as error:
            if published is None:
                raise
            remote.discard(published)
            raise GraphError(
                f"{error}; the download is removed, the next attempt downloads it again"
            ) from None

    def _write(self, folder: Path) -> None:
        files = self.raw_files()
        root = self.raw_path() if files else folder
        before = [file.stat().st_mtime_ns for file in files]
        with (
            StoreWriter(folder, self, advises=self._advises) as writer,
            progress.track(f"preparing {self.name}"),
            raw_files.raw_records(files, root) as records,
        ):
            self.read(writer)
            if self.split == "random" and writer.labelled:
                parts = random_split(writer.labels, self._fractions, seed=self.split_seed)
                _check_parts(parts, self._fractions)
                writer.set_split(*parts, source=f"random split of {self.name}")
            if self.split == "random" and writer.edge_labels is not None:
                parts = self._edge_parts(writer, writer.edge_labels)
                _check_parts(parts, self._fractions, "edges")
                writer.set_edge_split(*parts, source=f"random split of the edges of {self.name}")
            raw = records()
            for file, time, record in zip(files, before, raw, strict=True):
                if not time == record.mtime_ns == file.stat().st_mtime_ns:
                    raise GraphError(f"{file}: was changed while it was read")
            source = self.raw or type(self).__name__
            writer.finish(name=self.name, source=source, options=self._identity(), raw=raw)

    @property
    def _splits_pairs(self) -> bool:
        """Whether a random split of edges keeps those between two vertices in one part."""
        return True

    def _edge_parts(self, writer: StoreWriter, labels: Array) -> _Parts:
        if not self._splits_pairs:
            return random_split(labels, self._fractions, seed=self.split_seed)
        ends = writer.edge_ends()
        return random_edge_split(labels, ends, self._fractions, seed=self.split_seed)

    def _identity(self) -> dict[str, Any]:
        """Everything that changes the content of the store, except the raw files."""
        skip = ("raw", "store", "memory_bytes")
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        labels = {} if self._has_labels else {"labels": "unread"}
        return {"layout": type(self).__name__, **labels} | {
            name: value
            for name, value in values.items()
            if name not in skip and _LATER.get(name, _NONE) != value
        }


#: Options of later releases at the values that earlier ones had, whose stores keep their names.
_LATER = {"standardize": False, "unlabelled": "refuse", "categories": None, "edge_features": None}
_LATER |= {
    "edge_categories": None,
    "edge_label": None,
    "edge_label_kind": "auto",
    "edge_split_column": "split",
    "edge_split_by": "pair",
}
_NONE = object()


def _check_paths(raw: str | None, store: str | None) -> None:
    for option, value in (("raw", raw), ("store", store)):
        if value is not None and (not value or "\0" in value):
            raise ConfigError(f"dataset.{option}={shown(value)}: not a path")
    if raw is not None and remote.is_remote(raw):
        remote.check_address(raw)
    if store is not None:
        check_place(store)


def _check_fractions(fractions: tuple[float, float]) -> None:
    # Written so that NaN is refused too.
    if not (all(share > 0 for share in fractions) and sum(fractions) < 1):
        raise ConfigError(f"{_named(fractions)}: both must be above 0, their sum below 1")


def _check_parts(
    parts: Sequence[Int64Array], fractions: tuple[float, float], what: str = "vertices"
) -> None:
    sizes = [len(part) for part in parts]
    if not all(sizes):
        raise ConfigError(
            f"{_named(fractions)}: of {sum(sizes)} labelled {what} {sizes[0]} train, {sizes[1]} "
            f"validate and {sizes[2]} test; each needs one"
        )


def _named(fractions: tuple[float, float]) -> str:
    return "dataset.train_fraction={}, valid_fraction={}".format(*fractions)


def _existing(raw: str) -> Path:
    path = _expanded(raw)
    try:
        path.stat()
    except FileNotFoundError:
        raise GraphError(f"dataset.raw={raw}: no such file or folder") from None
    except OSError as error:
        raise GraphError(f"dataset.raw={raw}: {error.strerror}") from None
    return path


def _expanded(raw: str) -> Path:
    try:
        return expanded(raw)
    except RuntimeError as error:
        raise ConfigError(f"dataset.raw={raw}: {error}") from None


def random_split(labels: Array, fractions: tuple[float, float], *, seed: int) -> _Parts:
    """Draw train, valid and test vertices, or edges, from those with a label; the rest is test."""
    known = np.flatnonzero(has_label(labels))
    order = np.random.Generator(np.random.Philox(seed)).permutation(known)
    first, second = (round(len(order) * share) for share in np.cumsum(fractions))
    return order[:first], order[first:second], order[second:]


def random_edge_split(
    labels: Array, ends: IntArray, fractions: tuple[float, float], *, seed: int
) -> _Parts:
    """Draw train, valid and test edges; all edges between two vertices are in one part.

    A copy or a reverse of a test edge often has its label, so that training on it would give the
    label away. Fractions are of edges and hold on average. Without such edges the split is that of
    ``random_split``.

    Args:
        labels: ``[n]`` of the edges; those without a label are in no part.
        ends: ``[n, 2]`` sources and destinations.
        fractions: of the training and the validation edges.
        seed: fixes the split.

    Returns:
        Numbers of the edges of each part, ``[k]``.
    """
    known = np.flatnonzero(has_label(labels))
    pairs = np.sort(np.asarray(ends)[known], axis=1)
    _, pair_of, sizes = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    if len(sizes) == len(known):
        return random_split(labels, fractions, seed=seed)
    _LOG.info(
        "%s of %s labelled edges join two vertices that another joins; all of a pair are in one "
        "part of the split. dataset.edge_split_by=edge divides each edge by itself",
        *(f"{int(sizes[sizes > 1].sum()):,}", f"{len(known):,}"),
    )
    order = np.random.Generator(np.random.Philox(seed)).permutation(len(sizes))
    middles = np.cumsum(sizes[order]) - sizes[order] / 2
    bounds = np.round(np.cumsum(fractions) * len(known))
    part_of_pair = np.empty(len(sizes), np.int64)
    part_of_pair[order] = np.searchsorted(bounds, middles)
    part = part_of_pair[pair_of.reshape(-1)]
    train, valid, test = (known[part == number] for number in range(3))
    return train, valid, test


@dataclass(frozen=True, kw_only=True)
class ExistingStore(GraphSource):
    """The graph of an existing store; nothing is prepared.

    Attributes:
        store: the store's directory; needed.
    """

    def prepare(self, force: bool = False) -> Path:
        """Return the store's directory; ``force`` is refused, since its origin is unknown here.

        Raises:
            ConfigError: ``store`` is not given or no path, or ``force`` is given.
            GraphError: there is no store, or it holds one part of a graph's topology.
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
        if part is not None and part.rows_of is None:
            raise GraphError(
                f"{path}: is part {part.index} of {part.num_parts} of a graph, name the store of "
                "the whole"
            )
        return path
