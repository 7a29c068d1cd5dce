"""Files of artifacts: reading, headers in strict JSON, digests, atomic creation, free space."""

import errno
import hashlib
import json
import os
import shutil
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

from gnnscale.core import ConfigError, GraphError, brief, errors, hardware, locks, printable, track
from gnnscale.core.config.renamed import stored_path
from gnnscale.core.files import expanded, unfinished_folder
from gnnscale.core.hardware import home

_MAX_BYTES = 2 << 30
#: Upper bound in seconds for the two renames that replace a directory.
_PUBLISHING_S = 0.05


def file_bytes(path: Path) -> int:
    """Return the size of a regular file; GraphError for a missing file and for a pipe or folder."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise GraphError(f"{path}: missing") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise GraphError(f"{path}: cannot be read ({_reason(error)})") from None
    if not stat.S_ISREG(status.st_mode):
        raise GraphError(f"{path}: not a regular file")
    return status.st_size


def open_regular(path: Path) -> FileIO:
    """Open a regular file to read bytes, unbuffered; GraphError for any other, such as a pipe."""
    file_bytes(path)
    try:
        # O_NONBLOCK: the path may have become a pipe since, and opening a pipe blocks.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise GraphError(f"{path}: cannot be read ({_reason(error)})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise GraphError(f"{path}: not a regular file")
    return FileIO(descriptor)


def total_bytes(paths: list[Path]) -> int:
    """Return the sum of the sizes of regular files."""
    return sum(map(file_bytes, paths))


def read_file(path: Path) -> bytes:
    """Return the content of a file; GraphError if it is unreadable or larger than 2 GiB."""
    size = file_bytes(path)
    if size > _MAX_BYTES:
        raise GraphError(f"{path}: expected at most {_MAX_BYTES} bytes, got {size}")
    try:
        with open_regular(path) as stream, BufferedReader(stream) as buffered:
            return buffered.read(size)  # not read(): the file may grow without end
    except OSError as error:
        raise GraphError(f"{path}: cannot be read ({_reason(error)})") from None


@contextmanager
def readable(source: object) -> Iterator[None]:
    """Turn any exception of the block, such as zipfile's, into a GraphError about ``source``."""
    try:
        yield
    except GraphError:
        raise
    except Exception as error:
        raise GraphError(
            f"{source}: cannot be read ({str(error) or type(error).__name__})"
        ) from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def new_folder(path: Path, *, replace: Callable[[], bool] | None = None) -> Iterator[Path | None]:
    """Fill a temporary directory in the ``with`` block, then rename it to ``path``.

    The temporary directory is locked: a second process waits for the first. Leftovers of a killed
    process are removed, and an exception in the block, Ctrl-C included, leaves nothing. Yields
    None: ``path`` exists and is not replaced.

    Args:
        replace: whether to replace an existing, non-empty directory. It is called again under the
            lock, since another process may just have replaced the directory. None: never.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            is_final = _is_final(path, replace)  # unlocked: a lock needs permission to write
        except GraphError:
            # Another process may have replaced the directory during the check.
            time.sleep(_PUBLISHING_S)
            is_final = _is_final(path, replace)
        if is_final:
            yield None
            return
        lock = _lock_empty(partial)
        try:
            with unfinished_folder(partial):
                if _is_final(path, replace):
                    shutil.rmtree(partial, ignore_errors=True)
                    yield None
                    return
                yield partial
                _publish(partial, path)
        finally:
            # After the rename a directory of this name belongs to another process.
            locks.release(lock)
    except OSError as error:
        if error.errno in _FULL:
            free = shutil.disk_usage(path.parent).free
            raise GraphError(
                f"{path}: cannot be written, {os.strerror(error.errno)} ({free >> 20} MiB free)"
            ) from None
        raise GraphError(f"{error.filename or path}: {error.strerror or error}") from None


def check_no_link(folder: Path) -> None:
    """Raise GraphError if ``folder``, an output directory, is a symbolic link."""
    if folder.is_symlink():
        raise GraphError(f"{folder}: expected a folder, got a link; remove it")


def check_store_directory(store: str, *, option: str = "dataset.store") -> None:
    """Raise ConfigError if ``store`` is ``/``, home, or a folder of all stores or downloads."""
    path = store_directory(store, option=option)
    reserved = {
        "the file system's root": Path("/"),
        "the home directory": Path("~").expanduser(),
        "GNNSCALE_HOME": home(),
        "the folder of all stores": home() / "graphs",
        "the folder of all partitions": home() / "partitions",
        "the folder of all cache plans": home() / "cache_plans",
        "the folder of downloads": home() / "raw",
    }
    for role, directory in reserved.items():
        if path == Path(os.path.realpath(directory)):
            raise ConfigError(f"{option}={store}: expected a directory of its own, got {role}")


def store_directory(store: str, *, option: str = "dataset.store") -> Path:
    """Return the directory ``store`` with links resolved; ConfigError: it is not a path."""
    try:
        return Path(os.path.realpath(expanded(store)))
    except (RuntimeError, OSError, ValueError) as error:  # an unknown ~user, a zero byte
        raise ConfigError(f"{option}={brief(store)}: not a path ({error})") from None


def _is_final(path: Path, replace: Callable[[], bool] | None) -> bool:
    """Whether ``path`` exists, is not empty, and ``replace`` is false; GraphError: it is a file."""
    try:  # one system call: another process may replace the directory between two
        empty = not os.listdir(path)
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise GraphError(f"{path}: expected a directory, got a file") from None
    return not empty and (replace is None or not replace())


def _lock_empty(partial: Path) -> int:
    """Create ``partial`` if it is missing, lock it, empty it, and return its descriptor."""
    while True:
        # exist_ok would raise if another process renames the directory at this moment.
        with suppress(FileExistsError):
            partial.mkdir()
        try:
            # O_NOFOLLOW: the directory is emptied, and another user may have placed a link.
            lock = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:  # another process has just renamed or removed the directory
            continue
        locks.lock(lock, partial)
        # The former owner has renamed or removed the directory, or was killed.
        if locks.is_at(partial, lock):
            _empty(partial)
            return lock
        locks.release(lock)


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _publish(partial: Path, path: Path) -> None:
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    try:
        partial.rename(path)
    except OSError:
        if old.exists():
            old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


#: Bytes of memory below which ``check_space`` does not ask the system.
_SMALL = 64 << 20


class NoSpaceError(errors.GraphError):
    """Error for a lack of memory or disk space; the input files are intact."""


def check_space(task: object, folder: Path, *, memory: int = 0, disk: int = 0) -> None:
    """Raise NoSpaceError, naming ``task``, unless ``memory`` and, in ``folder``, ``disk`` are free.

    Both are bytes.
    """
    problems = []
    if memory > _SMALL and memory > (available := hardware.find_machine().memory.available):
        problems.append(f"{size(memory)} of memory, and {size(available)} are available")
    if disk > (free := shutil.disk_usage(folder).free):
        # Do not name a hidden temporary folder.
        disk_folder = folder.parent if folder.name.startswith(".") else folder
        problems.append(f"{size(disk)} of disk, and {size(free)} are free in {disk_folder}")
    if problems:
        raise NoSpaceError(f"{task}: needs {'; '.join(problems)}")


def size(num_bytes: int) -> str:
    """Return a number of bytes in MiB or GiB, for a message."""
    unit, name = (1 << 30, "GiB") if num_bytes >= 1 << 30 else (1 << 20, "MiB")
    return f"{num_bytes / unit:,.1f} {name}"


def parse_json(data: bytes, *, source: object) -> dict[str, Any]:
    """Return the JSON object in ``data``; GraphError for anything else, NaN, or a repeated key."""
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_object)
    # Brackets nested too deeply raise RecursionError, numbers of thousands of digits ValueError.
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise GraphError(f"{source}: cannot be read as JSON ({reason})") from None
    if not isinstance(value, dict):
        raise GraphError(f"{source}: expected a JSON object, got a {type(value).__name__}")
    return value


def header_text(entries: Mapping[str, Any]) -> str:
    """Return an object as JSON with one line for each entry."""
    lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def check_lines(file: Path, texts: Iterable[str], max_characters: int) -> None:
    """Raise GraphError for a text that is not printable or exceeds ``max_characters``."""
    for text in texts:
        if len(text) > max_characters or not printable(text):
            raise GraphError(
                f"{file}: expected a line of up to {max_characters} characters, got {brief(text)!r}"
            )


def check_limits(file: Path, limits: Iterable[tuple[str, float | None, float]]) -> None:
    """Raise GraphError for a (name, value, maximum) unless the value is None or 0 to maximum."""
    for name, value, limit in limits:
        if value is not None and not 0 <= value <= limit:
            raise GraphError(f"{file}: {name}: expected 0 to {limit}, got {brief(value)}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"key '{brief(twice)}' stands twice in one object")
    return value


#: Bytes read at a time: they stay in the processor's cache until they are hashed.
_CHUNK_BYTES = 1 << 18


def digest(values: object, *, size: int = 16) -> str:
    """Return a hash of plain values, as ``2 * size`` hexadecimal digits."""
    text = json.dumps(values, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def plain(value: Any) -> Any:
    """Return options as plain JSON values; an object names its class as ``_target_``."""
    if is_dataclass(value) and not isinstance(value, type):
        inner = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        return {"_target_": stored_path(type(value)), **inner}
    return json.loads(json.dumps(value))


def file_sha256(file: Path, stop: threading.Event | None = None) -> str:
    """Return the SHA-256 of a regular file in hex; ``stop``, once set, ends the call early."""
    sha256 = hashlib.sha256()
    total = file.stat().st_size
    chunk = memoryview(bytearray(_CHUNK_BYTES))
    with track(f"checking {file.name}", total, "bytes") as advance, open_regular(file) as stream:
        while (count := stream.readinto(chunk)) and not (stop and stop.is_set()):
            sha256.update(chunk[:count])
            advance(count)
    return sha256.hexdigest()
