"""Files of object stores and other file systems, by fsspec: copied once, and again when changed."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from gnnscale.artifact.folder import new_folder
from gnnscale.config import ConfigError, check_choice
from gnnscale.dataset.storage.space import check_space
from gnnscale.errors import one_line, shown
from gnnscale.graph import GraphError
from gnnscale.hardware import home
from gnnscale.progress import track

__all__ = ["SCHEMES", "check_address", "copy_remote", "is_remote"]

#: File systems that an address may name. None of them opens what a file or another address says,
#: as ``reference``, archives and caches do, and chains of several (``::``) are not taken at all.
SCHEMES = (
    *("abfs", "az", "file", "gcs", "gs", "hdfs", "http", "https", "memory", "s3", "s3a", "sftp"),
)
_LOG = logging.getLogger(__name__)
_RECORD = "remote.json"
_CHUNK_BYTES = 4 << 20
#: What file systems call the tag or the time that tells versions of a file apart.
_TAGS = ("ETag", "etag", "md5Hash")
_TIMES = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")


def is_remote(place: str) -> bool:
    """Whether ``place`` is an address such as ``s3://bucket/folder``, and no path."""
    return "://" in place


def check_address(address: str) -> None:
    """Refuse an address that is none of one file system of ``SCHEMES``.

    Raises:
        ConfigError: it names another one, or a chain of several.
    """
    if "::" in address:
        raise ConfigError(f"dataset.raw={shown(address)}: a chain of addresses, one is allowed")
    check_choice("dataset.raw: the scheme of the address", address.partition("://")[0], SCHEMES)


def copy_remote(address: str, names: Sequence[str]) -> Path:
    """Copy files of a remote folder into ``${GNNSCALE_HOME}/raw``, and return the folder there.

    What was copied before is used again as long as every file has the size, and the time or tag,
    that it had then. Otherwise all are copied anew.

    Args:
        address: of the folder.
        names: files in it, and folders of which all files are meant; those that are missing are
            left out.

    Raises:
        ConfigError: as ``check_address``.
        GraphError: fsspec, or what it needs for the address, is not installed; the address cannot
            be reached; or there is not so much room on the disk.
    """
    check_address(address)
    digest = hashlib.blake2b(json.dumps([address, sorted(names)]).encode(), digest_size=8)
    path = home() / "raw" / f"remote-{digest.hexdigest()}"
    with _readable(address):
        system, root = _opened(address)
        files = dict(_found(system, root, names))
    if not files:
        raise GraphError(f"dataset.raw={address}: has none of {', '.join(map(shown, names))}")
    with new_folder(path, replace=lambda: _recorded(path) != files) as folder:
        if folder is not None:
            _copy(system, root, files, folder, address)
    return path


def _opened(address: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise GraphError(
            f"dataset.raw={address}: needs fsspec, which pip install 'gnnscale[remote]' brings; or "
            "copy the files into a folder"
        ) from None
    system, root = fsspec.core.url_to_fs(address)
    system.invalidate_cache()  # a listing of earlier in this process
    return system, root.rstrip("/")


def _found(system: Any, root: str, names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the files that are there: their paths in the folder, sizes, and times or tags."""
    for entry in system.ls(root, detail=True):
        name = PurePosixPath(entry["name"]).name
        if name not in names:
            continue
        if entry["type"] != "directory":
            yield name, _version(entry)
            continue
        for inner in system.ls(entry["name"], detail=True):
            if inner["type"] != "directory":
                yield f"{name}/{PurePosixPath(inner['name']).name}", _version(inner)


def _version(entry: Mapping[str, Any]) -> dict[str, Any]:
    keys = (key for key in (*_TAGS, *_TIMES) if entry.get(key) is not None)
    stamp = next((str(entry[key]) for key in keys), None)
    return {"bytes": entry["size"], "stamp": stamp}


def _recorded(path: Path) -> Any:
    try:
        return json.loads((path / _RECORD).read_text())
    except (OSError, ValueError):
        return None


def _copy(
    system: Any, root: str, files: Mapping[str, Mapping[str, Any]], folder: Path, address: str
) -> None:
    total = sum(each["bytes"] for each in files.values())
    check_space(f"dataset.raw={address}", folder, disk=total)
    _LOG.info("copying %d files of %s", len(files), address)
    with track(f"copying {shown(address)}", total, "bytes") as advance, _readable(address):
        for name, version in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            with system.open(f"{root}/{name}", "rb") as stream, (folder / name).open("xb") as out:
                while chunk := stream.read(_CHUNK_BYTES):
                    out.write(chunk)
                    advance(len(chunk))
            if (folder / name).stat().st_size != version["bytes"]:
                raise GraphError(f"{address}/{name}: was changed while it was copied")
    (folder / _RECORD).write_text(json.dumps(files, indent=1) + "\n")


@contextmanager
def _readable(address: str) -> Iterator[None]:
    """Turn whatever a file system raises into one line."""
    try:
        yield
    except GraphError:
        raise
    except Exception as error:  # each file system has errors of its own
        reason = one_line(str(error) or type(error).__name__, 200)
        raise GraphError(f"dataset.raw={address}: cannot be read ({reason})") from None
