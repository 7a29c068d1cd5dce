"""Types of artifacts: directories of arrays with a header, made once and checked on reuse."""

import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gnnscale.core import Array, GraphError, brief, decode, home, write_atomically
from gnnscale.core.artifact.files import (
    digest,
    file_bytes,
    header_text,
    new_folder,
    parse_json,
    read_file,
    store_directory,
)
from gnnscale.core.artifact.npy import ArrayEntry, map_npy

T = TypeVar("T")
#: Data type and shape of an array; None is an axis of any length.
Form = tuple[np.dtype[Any], tuple[int | None, ...]]

_MAX_NAME = 100


@dataclass(frozen=True, kw_only=True)
class ArtifactType:
    """Storage format of a type of artifact, such as graph stores; operations on its directories.

    Nothing in an artifact is executed. File sizes are checked before memory is allocated.

    Example:
        >>> path = GRAPH_STORE.directory(None, "ogbn-arxiv", None, {"seed": 0})
        >>> path.parent.name, path.name
        ('graphs', 'ogbn-arxiv-1a2b3c4d')
    """

    name: str  #: name in messages, such as ``graph store``
    header: str  #: file name of the header, which is JSON
    version: int  #: version of the format, stored in the header
    folder: str  #: folder below ``GNNSCALE_HOME`` for all artifacts of this type
    option: str | None = None  #: option that names the directory. None: there is no such option
    command: str | None = None  #: command that makes an artifact. None: only runs make it
    files: str = ""  #: regular expression of file names that an artifact may contain
    max_bytes: int = 64 << 20  #: maximum size of the header

    def directory(
        self, store: str | None, graph: str, method: str | None, identity: Mapping[str, Any]
    ) -> Path:
        """Return the directory of an artifact.

        Args:
            store: the directory that the user chose. None: one below ``GNNSCALE_HOME``, named by
                ``graph``, ``method`` and a digest of ``identity``.
            graph: printable name of the graph.
            method: one word for how the artifact is made, or None.
            identity: plain values that determine the content.
        """
        if store is not None:
            assert self.option is not None
            return store_directory(store, option=self.option)
        key = digest({"format": self.version, **identity}, size=4)
        name = re.sub(r"[^A-Za-z0-9._+-]", "_", graph)[:_MAX_NAME].lstrip(".")
        return home() / self.folder / "-".join(filter(None, (name, method, key)))

    @contextmanager
    def making(
        self,
        path: Path,
        *,
        fits: Callable[[], object],
        force: bool = False,
        holds: Callable[[Path], bool] = lambda entry: False,
    ) -> Iterator[Path | None]:
        """Make the artifact at ``path`` in the ``with`` block, atomically, unless it exists.

        Yields the directory to fill; None: the artifact exists. GraphError if ``path`` cannot be
        written, is refused by ``fits``, or with ``force`` holds files that no artifact has.

        Args:
            fits: raises GraphError unless the existing artifact at ``path`` can be reused.
            force: make the artifact again even if it exists.
            holds: returns whether an artifact may contain an entry that ``files`` does not match.
        """

        def replace() -> bool:
            if force:
                self.check_replaceable(path, holds)
            else:
                fits()
            return force

        with new_folder(path, replace=replace) as folder:
            yield folder

    def check_replaceable(
        self, path: Path, holds: Callable[[Path], bool] = lambda entry: False
    ) -> None:
        """Raise GraphError if a directory has an entry outside of ``files`` and ``holds``."""
        for entry in sorted(path.iterdir()):
            file = re.fullmatch(self.files, entry.name) and not entry.is_dir()
            if not (file or holds(entry)):
                raise GraphError(
                    f"{path}: expected only files of a {self.name}, got {brief(entry.name)}, so "
                    f"that it is not replaced; name another {self.option}, or move the file away"
                )

    def write_header(self, folder: Path, entries: Mapping[str, Any]) -> None:
        """Write the header into ``folder``, after all arrays: ``entries`` and the format's version.

        ``entries["arrays"]`` has the ``ArrayEntry`` of each array, by name.
        """
        arrays = {name: asdict(entry) for name, entry in entries["arrays"].items()}
        content = {"format_version": self.version, **entries, "arrays": arrays}
        write_atomically(folder / self.header, header_text(content))

    def read_header(self, path: Path) -> dict[str, Any]:
        """Return the plain entries of the header of the artifact at ``path``, else GraphError."""
        file = path / self.header
        try:
            size = file_bytes(file)
        except GraphError:
            unreadable = os.path.isdir(path) and not os.access(path, os.X_OK)
            if unreadable or os.path.exists(file):
                raise
            raise GraphError(f"{path}: not a {self.name}, it has no {self.header}") from None
        if size > self.max_bytes:
            raise self.refused(path, f"more than {self.max_bytes >> 20} MiB")
        entries = parse_json(read_file(file), source=file)
        version = entries.get("format_version")
        if type(version) is not int or version != self.version:
            raise self.refused(
                path, f"format version {brief(version)}, this release reads {self.version}"
            )
        return entries

    def record(self, cls: type[T], entries: Mapping[str, Any], path: Path) -> T:
        """Return ``entries`` of the header of the artifact at ``path`` as dataclass ``cls``."""
        try:
            return decode(cls, entries, source="entry")
        except ValueError as error:
            raise self.refused(path, error) from None

    def arrays(
        self,
        path: Path,
        entries: Mapping[str, ArrayEntry],
        forms: Mapping[str, Form],
        *,
        load: bool = False,
    ) -> dict[str, Array]:
        """Return the arrays of the artifact at ``path``, by name.

        ``entries`` describe them in the header, ``forms`` are their expected types and shapes.
        Arrays are mapped, or with ``load`` read and verified by their checksums.
        """
        if entries.keys() != forms.keys():
            raise self.refused(
                path, f"arrays: expected {brief(sorted(forms))}, got {brief(sorted(entries))}"
            )
        return {
            name: self._array(path / f"{name}.npy", entries[name], form, load)
            for name, form in forms.items()
        }

    def _array(self, file: Path, entry: ArrayEntry, form: Form, load: bool) -> Array:
        try:
            if (size := file_bytes(file)) != entry.bytes:
                raise GraphError(
                    f"{file}: {size} bytes, {self.header} says {entry.bytes} (truncated?)"
                )
            array = map_npy(file)
            stored = f"{array.dtype}{list(array.shape)}"
            dtype, shape = form
            axes = zip(array.shape, shape, strict=False)
            fits = array.ndim == len(shape) and all(size in (None, n) for n, size in axes)
            if array.dtype != dtype or not fits:
                sizes = ", ".join("n" if size is None else str(size) for size in shape)
                raise GraphError(f"{file}: expected {dtype}[{sizes}], got {stored}")
            if (array.shape, str(array.dtype)) != (entry.shape, entry.dtype):
                recorded = f"{brief(entry.dtype)}{brief(list(entry.shape))}"
                raise GraphError(f"{file}: {stored}, {self.header} says {recorded}")
            if not array.flags.aligned:
                raise GraphError(
                    f"{file}: its header has an odd size, NumPy's have a multiple of 64 bytes"
                )
            if load:
                array = np.array(array)
                if (crc32 := zlib.crc32(array.reshape(-1).view(np.uint8).data)) != entry.crc32:
                    raise GraphError(
                        f"{file}: checksum {crc32}, {self.header} says {brief(entry.crc32)}"
                    )
            return array
        except GraphError as error:
            if os.path.exists(file) and not os.access(file, os.R_OK):
                raise  # making the artifact again would not help
            raise self.error_with_hint(file.parent, error) from None

    def check_same(
        self, path: Path, options: Mapping[str, object], stored: Mapping[str, object]
    ) -> None:
        """Raise GraphError unless ``options`` equal those ``stored`` of the artifact ``path``."""
        for name in (*options, *stored):
            if options.get(name) != stored.get(name):
                raise GraphError(
                    f"{path}: made with {brief(name)}={brief(stored.get(name))}, now "
                    f"{brief(name)}={brief(options.get(name))}; {self.otherwise(path)}"
                )

    def otherwise(self, path: Path) -> str:
        """Return a hint for a user who needs another artifact than the one at ``path``."""
        if self.command is None:
            return f"remove {path}, and it is made again"
        return f"name another {self.option}, or run {self.command} with force=true"

    def refused(self, path: Path, problem: object) -> GraphError:
        """Return the error for a ``problem`` in the header of the artifact at ``path``."""
        return self.error_with_hint(path, f"{path / self.header}: {problem}")

    def error_with_hint(self, path: Path, problem: object) -> GraphError:
        """Return the error for a ``problem``, with a hint on making the artifact again."""
        again = f"run {self.command} again with force=true"
        return GraphError(f"{problem}; {again if self.command else self.otherwise(path)}")
