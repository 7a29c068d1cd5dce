"""Base classes of datasets: raw files or a generator → graph store → ``Graph``."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from gnnscale.core import ConfigError, GraphError, brief, check_choice, check_range, progress
from gnnscale.core.artifact.files import NoSpaceError, new_folder, store_directory
from gnnscale.core.config.untrusted import names
from gnnscale.data import catalog, raw_paths
from gnnscale.data.source import GraphSource
from gnnscale.data.splits import RandomSplit, warn_of_small_classes
from gnnscale.data.storage import remote, store_check
from gnnscale.data.storage.options import StoreOptions
from gnnscale.data.storage.writer import StoreWriter
from gnnscale.data.tables.categories import TrainedColumns
from gnnscale.graph import GRAPH_STORE, read_meta

_LOG = logging.getLogger(__name__)
#: Origins of the split: the publisher's files, or a random draw over the labeled vertices.
SPLITS = ("published", "random")
#: Units of a random split of edges: all edges between two vertices, or single edges.
EDGE_UNITS = ("pair", "edge")


@dataclass(frozen=True, kw_only=True)
class StoredDataset(GraphSource):
    """Base of the datasets whose raw files, or generator, become a graph store.

    Attributes:
        name: dataset of the layout, also its name in reports: up to 100 letters, digits and
            ``._+-``.
        raw: raw file or its folder. None: the file is downloaded from the publisher.
        store: directory of the graph store. None: a name that depends on the options, in
            ``${GNNSCALE_HOME:-~/.cache/gnnscale}/graphs``.
        split: one of ``SPLITS``, as far as the layout has it.
    """

    name: str
    raw: str | None = field(default=None, metadata=names("place", unless="store"))
    store: str | None = field(default=None, metadata=names("place"))
    split: str = "published"

    #: Values of ``split``.
    _splits: ClassVar[tuple[str, ...]] = SPLITS
    #: Whether the layout has a split.
    has_split: ClassVar[bool] = True
    #: Whether the graph is generated and has no raw files.
    generated: ClassVar[bool] = False
    #: Whether the user brings the graph, which needs no labels and no split for predictions.
    _is_users: ClassVar[bool] = False
    #: Name of the layout in the catalog of published graphs; empty: it has none to download.
    _layout: ClassVar[str] = ""
    #: The raw files, for errors.
    _raw_form: ClassVar[str] = ""
    #: Whether the store has labels, and whether preparing it warns about features: for training.
    _has_labels: ClassVar[bool] = True
    _advises: ClassVar[bool] = True

    def __post_init__(self) -> None:
        raw_paths.check_places(self.name, raw=self.raw, store=self.store)
        if self.generated and self.raw is not None:
            raise ConfigError(
                f"dataset.raw={brief(self.raw)}: expected no file, since {type(self).__name__} "
                "generates its graph; name the layout of the file with dataset=..."
            )
        check_choice("dataset.split", self.split, self._splits)
        if self.split == "published" and not self.has_split:
            raise ConfigError("dataset.split=published: expected random, the layout has no split")

    @abstractmethod
    def raw_files(self) -> Sequence[Path]:
        """Return the raw files of the graph; each reader implements it.

        Empty for a generated graph.
        """

    def published(self) -> remote.Published | None:
        """Return the files to download if ``raw`` is None; here None, for no public address."""
        return None

    def prepare(self, force: bool = False) -> Path:
        """Convert the raw files to a graph store and return its directory.

        A store is reused if its options and the content of its raw files are unchanged. One in the
        default directory is written again if the raw files have changed.

        Args:
            force: write the store again in any case.

        Raises:
            GraphError: a raw file is missing or damaged; or ``store`` is not a graph store, or was
                prepared with other options or from other files. No partial store remains.
        """
        path = self.store_path()
        if not force and not path.exists() and (earlier := self._earlier_store()) is not None:
            path = earlier
        reason = ""

        def replace() -> bool:
            nonlocal reason
            reason = self._outdated(path, force)
            return bool(reason)

        with new_folder(path, replace=replace) as folder:
            if folder is not None:
                _LOG.info("preparing %s in %s%s", self.name, path, reason)
                _download_and_write(self, folder)
        if folder is None and not self.generated and "made" in read_meta(path).entries:
            _LOG.warning("%s: features and labels are made, not published", self.name)
        if folder is None:
            store_check.warn_of_earlier_split(path, self._identity())
        return path

    def to_predict(self, trained: TrainedColumns, *, splits: bool) -> "StoredDataset":
        """Return a copy for predictions, which writes its store without warnings about features.

        The copy reads no labels of a user's graph, unless ``splits``, or ``store`` exists and was
        prepared with these options.
        """
        dataset = copy(self)
        object.__setattr__(dataset, "_advises", False)
        if self._is_users and not splits and not self._is_prepared():
            object.__setattr__(dataset, "_has_labels", False)
        return dataset

    def _is_prepared(self) -> bool:
        """Whether the user names a ``store`` that exists and was prepared with these options."""
        path = self.store_path()
        with suppress(GraphError):
            if self.store is not None and path.exists():
                store_check.check_options(path, read_meta(path), self._identity())
                return True
        return False

    def _earlier_store(self) -> Path | None:
        """Return the default directory of an earlier release's store; None: it is not up to date.

        Its random split is not stratified. Runs of that release resume with it.
        """
        identity = self._identity()
        if self.store is not None or identity.pop(store_check.STRATIFIED, None) is None:
            return None
        path = self._directory(identity)
        with suppress(GraphError):
            if path.exists() and not self._outdated(path, force=False):
                return path
        return None

    def _outdated(self, path: Path, force: bool) -> str:
        """Return the reason to replace the store at ``path``, or "" if it is up to date.

        ``force`` is a reason. GraphError: the user's ``store`` is no graph store; without ``force``
        also: its raw files changed, or any store's options differ.
        """
        if force:
            if self.store is not None:
                store_check.check_replaceable(path)
            return ", as asked for"
        meta = read_meta(path)
        store_check.check_options(path, meta, self._identity())
        try:
            files = [] if self.raw is None else [file for file in self.raw_files() if file.exists()]
        except (GraphError, OSError):  # a store is usable without its raw files
            files = []
        changed = store_check.changed_file(path, meta, files, self.raw_path()) if files else None
        if changed is None:
            return ""
        if self.store is not None:
            raise GraphError(
                f"{changed}: changed since {path} was prepared from it; run gnnscale prepare with "
                "force=true, or name another dataset.store"
            )
        return f", since {changed} has changed"

    def store_path(self) -> Path:
        """Return the directory of the store: ``store``, or a default by name, options and raw."""
        return self._directory(self._identity())

    def _directory(self, identity: dict[str, Any]) -> Path:
        """Return the directory of a store with ``identity``, which gets the path of ``raw``."""
        if self.raw is not None and self.store is None:
            identity["raw"] = self.raw
            if not remote.is_remote(self.raw):
                identity["raw"] = str(raw_paths.expand(self.raw, "dataset.raw").absolute())
        return GRAPH_STORE.directory(self.store, self.name, None, identity)

    def raw_path(self) -> Path:
        """Return the path ``raw`` or, if None, the folder of the published files, maybe downloaded.

        ConfigError: ``raw`` is None and no files are published.
        """
        if self.raw is not None:
            return raw_paths.existing_path(self.raw, "dataset.raw")
        return remote.download(self._to_download())

    def _to_download(self) -> remote.Published:
        """Return the published files; ConfigError: the layout has none of this name."""
        catalog.check_published(self._layout, self.name)
        published = self.published()
        if published is None:
            raise ConfigError(f"dataset.raw: required for {self.name}, {self._raw_form}")
        return published

    def raw_file(self, name: str) -> Path:
        """Return ``raw`` if it is a file, else file ``name`` in the folder of raw files.

        GraphError: the file is missing.
        """
        path = self.raw_path()
        path = path / name if path.is_dir() else path
        if not path.exists():
            needed = f"; dataset.raw needs {self._raw_form}" if self._raw_form else ""
            raise GraphError(f"{path}: missing{needed}")
        return path

    def _write(self, folder: Path) -> None:
        files = self.raw_files()
        root = self.raw_path() if files else folder
        mtimes = [file.stat().st_mtime_ns for file in files]
        with (
            progress.track(f"preparing {self.name}"),
            store_check.raw_records(files, root) as records,
        ):

            def unchanged() -> list[store_check.RawFile]:
                raw = records()
                for file, time, record in zip(files, mtimes, raw, strict=True):
                    if not time == record.mtime_ns == file.stat().st_mtime_ns:
                        raise GraphError(f"{file}: was changed while it was read")
                return raw

            self._fill(folder, unchanged)

    @abstractmethod
    def _fill(self, folder: Path, records: Callable[[], list[store_check.RawFile]]) -> None:
        """Write the store's files into ``folder``.

        ``records`` waits for the records of the raw files, for ``meta.json``. GraphError, by it
        too: a raw file was changed while it was read.
        """

    def _identity(self) -> dict[str, Any]:
        """Return layout and options that determine the store."""
        skip = ("raw", "store", "memory_bytes")
        layout: dict[str, Any] = {"layout": type(self).__name__}
        if not self._has_labels:
            layout["labels"] = "unread"
        chosen = [option.name for option in fields(self) if option.name not in skip]
        return layout | store_check.distinctive_options(
            {name: getattr(self, name) for name in chosen}
        )


def _download_and_write(dataset: StoredDataset, folder: Path) -> None:
    """Write the dataset's store into ``folder``; remove downloaded files that prove damaged."""
    published = None
    if dataset.raw is None and not dataset.generated:
        published = dataset._to_download()
        remote.download(published)  # outside of try: a network error discards no download
    try:
        dataset._write(folder)
    except GraphError as error:
        if published is None or isinstance(error, NoSpaceError):
            raise
        remote.discard(published)
        raise GraphError(
            f"{error}; the download is removed, the next attempt downloads it again"
        ) from None


@dataclass(frozen=True, kw_only=True)
class DividedDataset(StoredDataset):
    """Base of the datasets that a random draw may divide.

    Attributes:
        train_fraction: share of the labeled vertices that train in a random split, in (0, 1).
        valid_fraction: share that validates, in (0, 1); the remainder is for test.
        split_seed: seed of a random split.
    """

    train_fraction: float = 0.6
    valid_fraction: float = 0.2
    split_seed: int = 0

    #: Whether each part of a random split has its share of every class.
    _stratifies: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("dataset.split_seed", self.split_seed, 0, 2**63 - 1)
        self._random_split()

    def _random_split(self) -> RandomSplit:
        shares = self.train_fraction, self.valid_fraction
        return RandomSplit(
            fractions=shares,
            seed=self.split_seed,
            by_pair=self._splits_by_pair,
            stratified=self._stratifies,
        )

    @property
    def _splits_by_pair(self) -> bool:
        """Whether a random split of edges has all edges between two vertices in one part: True."""
        return True

    def _identity(self) -> dict[str, Any]:
        divides = self.split == "random" and self._stratifies
        return super()._identity() | ({store_check.STRATIFIED: True} if divides else {})


@dataclass(frozen=True, kw_only=True)
class Dataset(StoreOptions, DividedDataset):
    """Base of the readers of graphs without types, with the options that all of them share.

    A reader reads one published layout: it implements ``raw_files`` and ``read``. Example::

        graph = Planetoid(name="cora").open()  # downloads, writes the store, maps it
        graph.num_vertices  # 2708
    """

    def __post_init__(self) -> None:
        StoreOptions.__post_init__(self)
        DividedDataset.__post_init__(self)

    @abstractmethod
    def read(self, writer: StoreWriter) -> None:
        """Push the raw files' vertices, edges, features, labels and published split.

        Each reader implements it.
        """

    def written_options(self) -> StoreOptions:
        """Return the options that the store is written with; a layout may add to the user's."""
        return self

    def _divide(self, writer: StoreWriter) -> None:
        """Set the split in ``writer`` after ``read``, unless it is published."""
        if self.split == "random":
            self._random_split().write(writer, self.name)

    def _fill(self, folder: Path, records: Callable[[], list[store_check.RawFile]]) -> None:
        with StoreWriter(folder, self.written_options(), advises=self._advises) as writer:
            self.read(writer)
            self._divide(writer)
            source = self.raw or type(self).__name__
            writer.finish(name=self.name, source=source, options=self._identity(), raw=records())
            if self.split == "published" and self._is_users and self._advises and writer.has_labels:
                classes = writer.notes.get("classes")
                warn_of_small_classes(writer.labels, writer.split or (), classes=classes)


@dataclass(frozen=True, kw_only=True)
class ExistingStore(GraphSource):
    """Graph of an existing store, used as it is.

    Attributes:
        store: directory of the graph store; required.
    """

    def prepare(self, force: bool = False) -> Path:
        """Return the directory ``store``; ``force`` must be False, as its raw files are unknown.

        Raises:
            ConfigError: ``store`` is None or not a path, or ``force`` is True.
            GraphError: there is no store, or it holds one part of a partitioned graph.
        """
        if force:
            raise ConfigError(
                "force=true: expected false, dataset=store uses a store as it is; name the dataset "
                "that it was prepared from"
            )
        if self.store is None:
            raise ConfigError("dataset.store: required, the directory of the graph store")
        path = store_directory(self.store)
        if not path.exists():
            raise GraphError(f"dataset.store={self.store}: no such folder")
        part = read_meta(path).part
        if part is not None and part.rows_of is None:
            raise GraphError(
                f"{path}: expected the store of a full graph, got part {part.index} of "
                f"{part.num_parts}"
            )
        return path
