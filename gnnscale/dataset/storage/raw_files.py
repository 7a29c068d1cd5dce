"""What a store was made of, and whether that is still so: options and published files."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from gnnscale.artifact.files import read_file
from gnnscale.artifact.graph_store import GRAPH_STORE, StoreMeta
from gnnscale.artifact.header import header_text, parse_json
from gnnscale.artifact.key import file_sha256
from gnnscale.core.errors import GraphError

__all__ = ["RawFile", "changed_file", "check_options", "check_replaceable", "raw_records"]

_UNFINISHED_META = ".meta.json.tmp"


@dataclass(frozen=True, kw_only=True)
class RawFile:
    """A published file as ``meta.json`` records it.

    Attributes:
        name: its path inside ``dataset.raw``.
        bytes: its size.
        mtime_ns: when it was last changed, in ns since 1970.
        sha256: of its content.
    """

    name: str
    bytes: int
    mtime_ns: int
    sha256: str


@contextmanager
def raw_records(files: Sequence[Path], root: Path) -> Iterator[Callable[[], list[RawFile]]]:
    """Hash ``files`` in a thread, beside what the ``with`` block does.

    Args:
        files: each of them, anywhere in ``root`` or ``root`` itself.
        root: the file or folder that names are relative to.

    Yields:
        What returns size, time and hash of each of ``files``, once they are known.
    """
    stop = threading.Event()

    def record(file: Path) -> RawFile:
        status = file.stat()
        sha256 = file_sha256(file, stop)
        return RawFile(
            name=_name(file, root),
            bytes=status.st_size,
            mtime_ns=status.st_mtime_ns,
            sha256=sha256,
        )

    with ThreadPoolExecutor(1, "gnnscale-checking") as pool:
        records = [pool.submit(record, file) for file in files]
        try:
            yield lambda: [each.result() for each in records]
        finally:
            stop.set()


def changed_file(store: Path, meta: StoreMeta, files: Sequence[Path], root: Path) -> Path | None:
    """Return the first of ``files`` whose content is not what ``store`` was made of, else None.

    If size and time are those recorded, so is the content; otherwise it is hashed. Times that
    are found out of date are recorded anew if that is possible, so that the next look is quick.

    Args:
        store: the store's directory.
        meta: its ``meta.json``.
        files: what is to be compared.
        root: the file or folder that names are relative to.

    Raises:
        GraphError: the record of the files is damaged.
    """
    recorded = _recorded(meta, store)
    found: list[RawFile] = []
    for file in files:
        name, status = _name(file, root), file.stat()
        before = recorded.get(name)
        if before and (before.bytes, before.mtime_ns) == (status.st_size, status.st_mtime_ns):
            continue
        known = (before,) if before else tuple(recorded.values())
        if status.st_size not in (each.bytes for each in known):
            return file
        sha256 = file_sha256(file)
        same = next((each for each in known if each.sha256 == sha256), None)
        if same is None:
            return file
        found.append(replace(same, name=name, mtime_ns=status.st_mtime_ns))
    if found:
        _record_anew(store, recorded | {each.name: each for each in found})
    return None


def _name(file: Path, root: Path) -> str:
    return file.name if file == root else os.path.relpath(file, root)


@dataclass(frozen=True, kw_only=True)
class _Recorded:
    """The entry of ``meta.json`` that records the published files."""

    raw: tuple[RawFile, ...]


def _recorded(meta: StoreMeta, store: Path) -> dict[str, RawFile]:
    found = GRAPH_STORE.record(_Recorded, meta.entries, store)
    return {file.name: file for file in found.raw}


def _record_anew(store: Path, records: Mapping[str, RawFile]) -> None:
    """Write other records of the published files into ``meta.json``, if that is possible.

    All goes through the directory as it was opened: another process may put a new store into its
    place at any time, and that one must not get an old ``meta.json``.
    """
    with suppress(OSError):  # it only saves time
        folder = os.open(store, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with _open_in(folder, "meta.json", os.O_RDONLY) as stream:
                entries = json.load(stream)
            entries["raw"] = [asdict(record) for record in records.values()]
            with _open_in(folder, _UNFINISHED_META, os.O_RDWR | os.O_CREAT | os.O_EXCL) as stream:
                stream.write(header_text(entries))
            os.replace(_UNFINISHED_META, "meta.json", src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)


def _open_in(folder: int, name: str, flags: int) -> IO[str]:
    descriptor = os.open(name, flags, 0o666, dir_fd=folder)
    return os.fdopen(descriptor, "r" if flags == os.O_RDONLY else "w")


def check_options(store: Path, meta: StoreMeta, options: Mapping[str, Any]) -> None:
    """Refuse a store that was prepared from another layout or with other options.

    Raises:
        GraphError: names the first that differs, or what is wrong with ``meta.json``.
    """
    before = meta.entries.get("options")
    if not isinstance(before, dict):
        raise GRAPH_STORE.refused(store, "options are missing")
    GRAPH_STORE.check_same(store, options, before)


def check_replaceable(path: Path) -> None:
    """Refuse to replace a directory that holds anything but a graph store, even by force.

    Raises:
        GraphError: names what it holds.
    """
    try:
        entries = parse_json(read_file(path / GRAPH_STORE.header), source=path)
    except GraphError:
        entries = {}
    if not {"format_version", "arrays"} <= set(entries):
        raise GraphError(
            f"{path}: exists and is not a graph store, so it is never replaced; "
            "name another dataset.store, or remove it"
        )
    GRAPH_STORE.check_replaceable(path)
