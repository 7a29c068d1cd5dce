"""What a store was made of, and whether that is still so: options and published files."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from gnnscale.core.errors import ConfigError, GraphError, shown
from gnnscale.core.hardware import home
from gnnscale.core.progress import track
from gnnscale.dataset.formats.plain import open_regular
from gnnscale.graph_files import ARRAYS, DEGREES, WEIGHTS, StoreMeta, read_entries

__all__ = [
    "RawFile",
    "changed_file",
    "check_options",
    "check_place",
    "check_replaceable",
    "file_sha256",
    "raw_records",
    "store_place",
]

#: Few enough to be in the cache still when they are hashed.
_CHUNK_BYTES = 1 << 18
_UNFINISHED_META = ".meta.json.tmp"
_STORE_FILES = {
    "meta.json",
    _UNFINISHED_META,
    "ids.npy",
    "ids.parquet",
    *(f"{name}.npy" for name in (*ARRAYS, DEGREES, WEIGHTS)),
}


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


def file_sha256(file: Path, stop: threading.Event | None = None) -> str:
    """Return the SHA-256 of a file's content as hex digits, showing progress.

    Args:
        file: the file.
        stop: ends the work early where it is set; what is returned is of no use then.

    Raises:
        GraphError: it is no regular file, or cannot be opened.
    """
    digest = hashlib.sha256()
    total = file.stat().st_size
    chunk = memoryview(bytearray(_CHUNK_BYTES))
    with (
        track(f"checking {file.name}", total, "bytes") as advance,
        open_regular(file) as stream,
    ):
        while (count := stream.readinto(chunk)) and not (stop and stop.is_set()):
            digest.update(chunk[:count])
            advance(count)
    return digest.hexdigest()


def changed_file(store: Path, meta: StoreMeta, files: Sequence[Path], root: Path) -> Path | None:
    """Return the first of ``files`` whose content is not what ``store`` was made of, else None.

    Where size and time are those recorded, so is the content; otherwise it is hashed. Times that
    are found out of date are recorded anew where that is possible, so that the next look is quick.

    Args:
        store: the store's directory.
        meta: its ``meta.json``.
        files: what is to be compared.
        root: the file or folder that names are relative to.

    Raises:
        GraphError: the record of the files is damaged.
    """
    recorded = _recorded(meta, store / "meta.json")
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


def _recorded(meta: StoreMeta, file: Path) -> dict[str, RawFile]:
    entries = meta.entries.get("raw")
    kinds = {"name": str, "bytes": int, "mtime_ns": int, "sha256": str}
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict)
        and set(entry) == set(kinds)
        and all(type(entry[key]) is kind for key, kind in kinds.items())
        for entry in entries
    ):
        raise GraphError(f"{file}: raw is not a list of files; prepare it again with force=true")
    return {entry["name"]: RawFile(**entry) for entry in entries}


def _record_anew(store: Path, records: Mapping[str, RawFile]) -> None:
    """Write other records of the published files into ``meta.json``, where it is possible.

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
                stream.write(json.dumps(entries, indent=1) + "\n")
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
        raise GraphError(
            f"{store / 'meta.json'}: options are missing; prepare it again with force=true"
        )
    for name in (*options, *before):
        if before.get(name) != options.get(name):
            raise GraphError(
                f"{store}: prepared with {shown(name)}={shown(before.get(name))}, "
                f"now {shown(name)}={shown(options.get(name))}; name another dataset.store, or "
                "run gnnscale prepare with force=true"
            )


def check_place(store: str, *, option: str = "dataset.store") -> None:
    """Refuse a directory that cannot be the place of a store, a partition or a cache plan.

    Raises:
        ConfigError: names ``option``; it is empty, the file system's root, the home directory, or
            where all stores, partitions, cache plans or downloads go.
    """
    path = store_place(store, option=option)
    taken = {
        "the file system's root": Path("/"),
        "the home directory": Path("~").expanduser(),
        "GNNSCALE_HOME": home(),
        "where all stores go": home() / "graphs",
        "where all partitions go": home() / "partitions",
        "where all cache plans go": home() / "cache_plans",
        "where downloads go": home() / "raw",
    }
    for what, place in taken.items():
        if path == Path(os.path.realpath(place)):
            raise ConfigError(f"{option}={store}: is {what}, name a directory of its own")


def store_place(store: str, *, option: str = "dataset.store") -> Path:
    """Return the directory that ``option`` means, links followed."""
    try:
        return Path(os.path.realpath(Path(store).expanduser()))
    except (RuntimeError, OSError, ValueError) as error:  # an unknown ~user, a zero byte
        raise ConfigError(f"{option}={shown(store)}: not a path ({error})") from None


def check_replaceable(path: Path) -> None:
    """Refuse to replace a directory that holds anything but a graph store, even by force.

    Raises:
        GraphError: names what it holds.
    """
    try:
        entries = read_entries(path)
    except GraphError:
        entries = {}
    if not {"format_version", "arrays"} <= set(entries):
        raise GraphError(
            f"{path}: exists and is not a graph store, so it is never replaced; "
            "name another dataset.store, or remove it"
        )
    for entry in sorted(path.iterdir()):
        if entry.name not in _STORE_FILES or entry.is_dir():
            raise GraphError(
                f"{path}: holds {shown(entry.name)}, which is no file of a store, so it is not "
                "replaced; name another dataset.store, or move that away"
            )
