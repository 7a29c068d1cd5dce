"""Files of object stores and other file systems, by fsspec: copied once, and again when changed."""

import hashlib
import http.client
import json
import logging
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import Message
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import urlsplit

from gnnscale.core import ConfigError, GraphError, check_choice, hardware, one_line, progress, shown
from gnnscale.core.artifact.files import NoSpaceError, check_space, new_folder, size
from gnnscale.core.artifact.header import file_sha256
from gnnscale.data.formats.archive import extract_all

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
    """Raise ConfigError unless an address names one file system of ``SCHEMES``, not a chain."""
    if "::" in address:
        raise ConfigError(f"dataset.raw={shown(address)}: a chain of addresses, one is allowed")
    check_choice("dataset.raw: the scheme of the address", address.partition("://")[0], SCHEMES)


def copy_remote(address: str, names: Sequence[str]) -> Path:
    """Copy files of a remote folder into ``${GNNSCALE_HOME}/raw``, and return the folder there.

    An earlier copy is used as long as every file has the same size, and the same time or tag.
    Otherwise all are copied anew. ``names`` are files, and folders with all their files; missing
    ones are left out.

    Raises:
        ConfigError: as ``check_address``.
        GraphError: fsspec, or what it needs for the address, is not installed; the address cannot
            be reached; or there is not enough room on the disk.
    """
    check_address(address)
    digest = hashlib.blake2b(json.dumps([address, sorted(names)]).encode(), digest_size=8)
    path = hardware.home() / "raw" / f"remote-{digest.hexdigest()}"
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
    with progress.track(f"copying {shown(address)}", total, "bytes") as advance, _readable(address):
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


_CHUNK_BYTES_DOWNLOAD = 1 << 20
_TIMEOUT_S = 30
#: What a connection may raise while it is read.
_BROKEN = (TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException)
#: A host that does not say how much it sends may fill the disk up to this.
_SPARE_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One file."""

    url: str  #: its address
    sha256: str | None = None  #: its checksum if it is known beforehand
    unpack: bool = False  #: it is a zip archive of which the members are wanted

    @property
    def name(self) -> str:
        """Its name in the folder."""
        return Path(urlsplit(self.url).path).name


@dataclass(frozen=True, kw_only=True)
class Published:
    """The files of a dataset."""

    name: str  #: name of the folder they go to
    licence: str  #: shown when they are downloaded
    files: tuple[RemoteFile, ...]  #: what to download


def download(published: Published) -> Path:
    """Download what is missing, and return the folder.

    Folders are in ``${GNNSCALE_HOME:-~/.cache/gnnscale}/raw``. An interrupted download continues.
    ``download.json`` records address, size and SHA-256 of every file.

    Raises:
        GraphError: there is no network, the host refuses, or a checksum differs.
    """
    path = _folder(published)
    parts = path.with_name(f".{published.name}.parts")
    with new_folder(path) as folder:
        if folder is not None:
            _LOG.info("downloading %s (licence: %s)", published.name, published.licence)
            parts.mkdir(exist_ok=True)
            try:
                _fill(folder, published, parts)
            finally:
                with suppress(OSError):  # what was not finished stays, to go on from
                    parts.rmdir()
    return path


def discard(published: Published) -> None:
    """Remove what was downloaded, so that the next attempt downloads it again."""
    shutil.rmtree(_folder(published), ignore_errors=True)


def _folder(published: Published) -> Path:
    return hardware.home() / "raw" / published.name


def _fill(folder: Path, published: Published, parts: Path) -> None:
    record = {}
    for file in published.files:
        part = parts / file.name
        if not part.exists():
            _fetch(file.url, part.with_name(f"{file.name}.part"))
            part.with_name(f"{file.name}.part").rename(part)
        record[file.name] = _checked(file, part)
    for file in published.files:
        part = parts / file.name
        if file.unpack:
            _unpack(part, folder)
            part.unlink()
        else:
            part.rename(folder / file.name)
    (folder / "download.json").write_text(json.dumps(record, indent=1) + "\n")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to web addresses alone, and not from an encrypted one to an open one."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Refuse a redirect that is not allowed."""
        allowed = ("https",) if req.type == "https" else ("http", "https")
        if urlsplit(newurl).scheme not in allowed:
            raise GraphError(f"{req.full_url}: the host redirects to {shown(newurl)}, refused")
        return super().redirect_request(req, fp, code, msg, headers, newurl)

    def http_error_302(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any
    ) -> Any:
        """Close the connection if the redirect is refused."""
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except GraphError:
            fp.close()
            raise
        except ValueError as error:
            fp.close()
            raise GraphError(
                f"{req.full_url}: the host redirects to what is no address ({error})"
            ) from None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _fetch(url: str, part: Path) -> None:
    """Download ``url`` to ``part``, continuing after the bytes that exist."""
    done = part.stat().st_size if part.exists() else 0
    try:
        with _open(url, done) as response:
            resumed = done > 0 and response.status == http.HTTPStatus.PARTIAL_CONTENT
            if resumed and not _goes_on(response.headers, done):
                part.unlink()
                _fetch(url, part)
                return
            length = _content_length(url, response.headers)
            total = None if length is None else length + (done if resumed else 0)
            with part.open("ab" if resumed else "wb") as file:
                _copy_download(response, file, url, total)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and done:
            if error.headers.get("Content-Range") != f"bytes */{done}":
                part.unlink()
                _fetch(url, part)
            return  # what was there is complete
        raise GraphError(f"{url}: the host answers {error.code} {shown(error.reason)}") from None
    except (urllib.error.URLError, *_BROKEN) as error:
        reason = getattr(error, "reason", None) or error
        raise GraphError(
            f"{url}: cannot be reached ({shown(reason)}); without a network, set dataset.raw to a "
            "folder that has the file"
        ) from None


def _open(url: str, done: int) -> Any:
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    return urllib.request.build_opener(_Redirects).open(request, timeout=_TIMEOUT_S)


def _goes_on(headers: Message, done: int) -> bool:
    """Whether the host sends the range that was requested; some do not report it."""
    return headers.get("Content-Range", f"bytes {done}-").startswith(f"bytes {done}-")


def _content_length(url: str, headers: Message) -> int | None:
    length = headers.get("Content-Length")
    if length is None:
        return None
    if not (length.isascii() and length.isdigit() and len(length) < 19):
        raise GraphError(f"{url}: the host says it sends {shown(repr(length))} bytes")
    return int(length)


def _copy_download(response: Any, file: IO[bytes], url: str, total: int | None) -> None:
    """Write what the host sends, at most what the disk can take."""
    folder, name = Path(file.name).parent, Path(file.name).stem
    free = shutil.disk_usage(folder).free
    if total is not None:
        check_space(url, folder, disk=total - file.tell())
    limit = file.tell() + free - min(_SPARE_BYTES, free // 10)
    with progress.track(f"downloading {name}", total, "bytes") as advance:
        advance(file.tell())
        while chunk := response.read(_CHUNK_BYTES_DOWNLOAD):
            if total is None and file.tell() + len(chunk) > limit:
                file.truncate(0)
                raise NoSpaceError(
                    f"{url}: the host sends more than the {size(free)} that are free"
                )
            file.write(chunk)
            advance(len(chunk))
        if total is not None and file.tell() != total:
            raise http.client.IncompleteRead(b"", total - file.tell())


def _checked(file: RemoteFile, part: Path) -> dict[str, Any]:
    """Return the file's record; refuse and remove it if the checksum differs."""
    digest = file_sha256(part)
    if file.sha256 not in (None, digest):
        part.unlink()
        raise GraphError(f"{file.url}: SHA-256 is {digest}, expected {file.sha256}")
    return {"url": file.url, "bytes": part.stat().st_size, "sha256": digest}


def _unpack(archive: Path, folder: Path) -> None:
    try:
        with progress.track(f"unpacking {archive.name}"):
            extract_all(archive, folder)
    except NoSpaceError:
        raise
    except GraphError as error:
        archive.unlink()
        raise GraphError(
            f"{error}; the download is removed, the next attempt downloads it again"
        ) from None
