"""A kind of artefact: a directory of arrays with a header, made once, checked, and reopened.

Nothing in such a directory is executed. Sizes are those of the files before memory is taken.
"""

import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gnnscale.core import Array, GraphError, decode, home, shown, write_atomically
from gnnscale.core.artifact.files import file_bytes, new_folder, read_file, store_place
from gnnscale.core.artifact.header import digest, header_text, parse_json
from gnnscale.core.artifact.npy import ArrayEntry, map_npy

T = TypeVar("T")
#: Type and shape of an array; None is an axis of any length.
Form = tuple[np.dtype[Any], tuple[int | None, ...]]

_MAX_NAME = 100


@dataclass(frozen=True, kw_only=True)
class ArtifactType:
    """How artefacts of one kind are kept."""

    name: str  #: what messages call one
    header: str  #: name of the header's file, JSON
    version: int  #: of the format, which the header records
    folder: str  #: of ``GNNSCALE_HOME``, for all of this kind
    option: str | None = None  #: names the directory; None if the user cannot
    command: str | None = None  #: of the user, that makes one; None if runs alone do
    files: str = ""  #: regular expression of names of files that a directory of this kind may hold
    max_bytes: int = 64 << 20  #: of the header

    def place(
        self, store: str | None, graph: str, how: str | None, identity: Mapping[str, Any]
    ) -> Path:
        """Return the directory of an artefact: ``store``, or if None one in ``GNNSCALE_HOME``.

        Its name there depends on the printable name of the ``graph``, on ``how`` it is made, a word
        or None, and on the plain values that decide how it comes out.
        """
        if store is not None:
            assert self.option is not None
            return store_place(store, option=self.option)
        key = digest({"format": self.version, **identity}, size=4)
        name = re.sub(r"[^A-Za-z0-9._+-]", "_", graph)[:_MAX_NAME].lstrip(".")
        return home() / self.folder / "-".join(filter(None, (name, how, key)))

    @contextmanager
    def making(
        self,
        path: Path,
        *,
        fits: Callable[[], object],
        force: bool = False,
        holds: Callable[[Path], bool] = lambda entry: False,
    ) -> Iterator[Path | None]:
        """Fill ``path`` atomically in the ``with`` block unless that is done.

        ``fits`` raises GraphError unless the artefact at ``path`` is the wanted one; ``force``
        makes it again in any case; ``holds`` returns whether a directory of this kind may hold an
        entry beside ``files``. Yields the directory to fill, None if the artefact is there.

        Raises:
            GraphError: ``path`` holds something else, or cannot be written.
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
        """Raise GraphError if a directory holds anything else: it is not replaced even by force."""
        for entry in sorted(path.iterdir()):
            file = re.fullmatch(self.files, entry.name) and not entry.is_dir()
            if not (file or holds(entry)):
                raise GraphError(
                    f"{path}: holds {shown(entry.name)}, which is no file of a {self.name}, so it "
                    f"is not replaced; name another {self.option}, or move that away"
                )

    def write_header(self, folder: Path, entries: Mapping[str, Any]) -> None:
        """Write the header into ``folder``, which exists, after all arrays.

        ``entries`` are plain values, and an ``ArrayEntry`` for each array as ``arrays``.
        """
        arrays = {name: asdict(entry) for name, entry in entries["arrays"].items()}
        content = {"format_version": self.version, **entries, "arrays": arrays}
        write_atomically(folder / self.header, header_text(content))

    def read_header(self, path: Path) -> dict[str, Any]:
        """Return the entries of the header of the artefact at ``path``, plain values.

        Raises:
            GraphError: it is missing, too large, no JSON object, or of another version.
        """
        file = path / self.header
        try:
            size = file_bytes(file)
        except GraphError:
            closed = os.path.isdir(path) and not os.access(path, os.X_OK)
            if closed or os.path.exists(file):  # False for a path that cannot be one
                raise
            raise GraphError(f"{path}: not a {self.name}, it has no {self.header}") from None
        if size > self.max_bytes:
            raise self.refused(path, f"more than {self.max_bytes >> 20} MiB")
        entries = parse_json(read_file(file), source=file)
        version = entries.get("format_version")
        if type(version) is not int or version != self.version:
            raise self.refused(
                path, f"format version {shown(version)}, this release reads {self.version}"
            )
        return entries

    def record(self, cls: type[T], entries: Mapping[str, Any], path: Path) -> T:
        """Return entries of the header of the artefact at ``path`` as the record ``cls``.

        Raises:
            GraphError: an entry is missing, or not of the type that it must have.
        """
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
        """Return the arrays of the artefact at ``path``, mapped, or read and checked if ``load``.

        ``entries`` are what its header records of each, ``forms`` their types and shapes.

        Raises:
            GraphError: one is missing, or not what the header records, or of another form.
        """
        if entries.keys() != forms.keys():
            raise self.refused(
                path, f"arrays are {shown(sorted(entries))}, allowed are {shown(sorted(forms))}"
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
            found = f"{array.dtype}{list(array.shape)}"
            dtype, shape = form
            axes = zip(array.shape, shape, strict=False)
            if (
                array.dtype != dtype
                or array.ndim != len(shape)
                or any(wanted not in (None, size) for size, wanted in axes)
            ):
                needed = ", ".join("n" if size is None else str(size) for size in shape)
                raise GraphError(f"{file}: {found}, must be {dtype}[{needed}]")
            if (array.shape, str(array.dtype)) != (entry.shape, entry.dtype):
                recorded = f"{shown(entry.dtype)}{shown(list(entry.shape))}"
                raise GraphError(f"{file}: {found}, {self.header} says {recorded}")
            if not array.flags.aligned:
                raise GraphError(
                    f"{file}: its header has an odd size, NumPy's have a multiple of 64 bytes"
                )
            if load:
                array = np.array(array)
                if (crc32 := zlib.crc32(array.reshape(-1).view(np.uint8).data)) != entry.crc32:
                    raise GraphError(
                        f"{file}: checksum {crc32}, {self.header} says {shown(entry.crc32)}"
                    )
            return array
        except GraphError as error:
            if os.path.exists(file) and not os.access(file, os.R_OK):
                raise  # making it again is no remedy
            raise self.worded(file.parent, error) from None

    def check_same(
        self, path: Path, now: Mapping[str, object], before: Mapping[str, object]
    ) -> None:
        """Raise GraphError if what decided the artefact at ``path`` differs; names the first."""
        for name in (*now, *before):
            if now.get(name) != before.get(name):
                raise GraphError(
                    f"{path}: made with {shown(name)}={shown(before.get(name))}, now "
                    f"{shown(name)}={shown(now.get(name))}; {self.otherwise(path)}"
                )

    def otherwise(self, path: Path) -> str:
        """Return what a user can do who needs another artefact than the one at ``path``."""
        if self.command is None:
            return f"remove {path}, and it is made again"
        return f"name another {self.option}, or run {self.command} with force=true"

    def refused(self, path: Path, problem: object) -> GraphError:
        """Return the error for a header of the artefact at ``path`` that is not what it must be."""
        return self.worded(path, f"{path / self.header}: {problem}")

    def worded(self, path: Path, problem: object) -> GraphError:
        """Return an error that ends with what makes the artefact at ``path`` anew."""
        again = f"run {self.command} again with force=true"
        return GraphError(f"{problem}; {again if self.command else self.otherwise(path)}")
