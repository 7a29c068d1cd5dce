"""Downloads of published datasets, and copies of remote folders by fsspec."""

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

from gnnscale.core import ConfigError, GraphError, brief, check_choice, hardware, one_line, progress
from gnnscale.core.artifact.files import NoSpaceError, check_space, file_sha256, new_folder, size
from gnnscale.data.formats.archive import extract_all

#: Accepted schemes. None opens an address that a file names, as ``reference``, archives and caches
#: do; chained addresses (``::``) are refused.
SCHEMES = (
    *("abfs", "az", "file", "gcs", "gs", "hdfs", "http", "https", "memory", "s3", "s3a", "sftp"),
)
_LOG = logging.getLogger(__name__)
_RECORD = "remote.json"
_CHUNK_BYTES = 4 << 20
#: Names of the tag, or else the time, that identifies a version of a file in a file system.
_TAGS = ("ETag", "etag", "md5Hash")
_TIMES = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")


def is_remote(location: str) -> bool:
    """Whether ``location`` is an address such as ``s3://bucket/folder``, not a path."""
    return "://" in location


def check_address(address: str) -> None:
    """Raise ConfigError unless an address has a scheme of ``SCHEMES``, and no ``::`` (a chain)."""
    if "::" in address:
        raise ConfigError(f"dataset.raw={brief(address)}: expected one address, got a chain")
    check_choice("dataset.raw: the scheme of the address", address.partition("://")[0], SCHEMES)


def copy_remote(address: str, names: Sequence[str]) -> Path:
    """Copy files of a remote folder into ``${GNNSCALE_HOME}/raw``, and return the local folder.

    ``names`` are files and subfolders; missing names are skipped. An earlier copy is reused while
    sizes, and tags or times, of all files are equal. Raises GraphError if fsspec or its driver is
    not installed, the address cannot be reached or has no such name, or the disk is too small.
    """
    check_address(address)
    digest = hashlib.blake2b(json.dumps([address, sorted(names)]).encode(), digest_size=8)
    path = hardware.home() / "raw" / f"remote-{digest.hexdigest()}"
    with _one_line_errors(address):
        system, root = _open_filesystem(address)
        files = dict(_list_files(system, root, names))
    if not files:
        raise GraphError(
            f"dataset.raw={address}: expected one of {', '.join(map(brief, names))}, got none"
        )
    with new_folder(path, replace=lambda: _recorded_versions(path) != files) as folder:
        if folder is not None:
            _copy(system, root, files, folder, address)
    return path


def _open_filesystem(address: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise GraphError(
            f"dataset.raw={address}: needs fsspec, which pip install '.[remote]' brings; or "
            "copy the files into a folder"
        ) from None
    system, root = fsspec.core.url_to_fs(address)
    system.invalidate_cache()  # drops a listing cached earlier in this process
    return system, root.rstrip("/")


def _list_files(
    system: Any, root: str, names: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield relative path and version (size, stamp) of remote files of ``root``.

    They are in ``names``, or directly in a subfolder that is.
    """
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
    return {"bytes": entry["size"], "stamp": next((str(entry[key]) for key in keys), None)}


def _recorded_versions(path: Path) -> Any:
    try:
        return json.loads((path / _RECORD).read_text())
    except (OSError, ValueError):
        return None


def _copy(
    system: Any, root: str, files: Mapping[str, Mapping[str, Any]], folder: Path, address: str
) -> None:
    total = sum(version["bytes"] for version in files.values())
    check_space(f"dataset.raw={address}", folder, disk=total)
    _LOG.info("copying %d files of %s", len(files), address)
    with (
        progress.track(f"copying {brief(address)}", total, "bytes") as advance,
        _one_line_errors(address),
    ):
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
def _one_line_errors(address: str) -> Iterator[None]:
    """Convert any exception in the ``with`` block to a GraphError of one line."""
    try:
        yield
    except GraphError:
        raise
    except Exception as error:  # file systems have no common exception
        reason = one_line(str(error) or type(error).__name__, 200)
        raise GraphError(f"dataset.raw={address}: cannot be read ({reason})") from None


_CHUNK_BYTES_DOWNLOAD = 1 << 20
_TIMEOUT_S = 30
#: Exceptions of a connection while it is read.
_BROKEN = (TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException)
#: Bytes of disk that a download of unknown length leaves free.
_SPARE_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """File to download, by URL and checksum."""

    url: str  #: address
    sha256: str | None = None  #: expected checksum. None: any.
    unpack: bool = False  #: whether the file is a zip archive to unpack

    @property
    def name(self) -> str:
        """Name of the file in the download folder, from the URL."""
        return Path(urlsplit(self.url).path).name


@dataclass(frozen=True, kw_only=True)
class Published:
    """Published files of a dataset to download, with their license."""

    name: str  #: name of the download folder
    license: str  #: license, logged at the download
    files: tuple[RemoteFile, ...]  #: files to download


def download(published: Published) -> Path:
    """Return the folder of the files, downloaded and unpacked unless it exists.

    A partial download is resumed. The folder is in ``${GNNSCALE_HOME:-~/.cache/gnnscale}/raw``;
    its ``download.json`` records address, size and SHA-256 of every file. Raises GraphError
    without a network, if the host refuses, or if a checksum differs.
    """
    path = _folder(published)
    parts = path.with_name(f".{published.name}.parts")
    with new_folder(path) as folder:
        if folder is not None:
            _LOG.info("downloading %s (license: %s)", published.name, published.license)
            parts.mkdir(exist_ok=True)
            try:
                _download_all(folder, published, parts)
            except NoSpaceError:
                raise
            except GraphError as error:
                raise GraphError(f"{error}; {_by_hand(published)}") from None
            finally:
                with suppress(OSError):  # partial files remain, to resume
                    parts.rmdir()
    return path


def discard(published: Published) -> None:
    """Remove the folder of downloaded files, so that the next attempt downloads them again."""
    shutil.rmtree(_folder(published), ignore_errors=True)


def _folder(published: Published) -> Path:
    return hardware.home() / "raw" / published.name


def _by_hand(published: Published) -> str:
    """Return a text that says which files to download by hand, from where, and how to read them."""
    addresses = [file.url.rpartition("/") for file in published.files]
    names = ", ".join(name for _, _, name in addresses)
    unpacked = ", unpacked," if published.files[0].unpack else ""
    return (
        f"to read a copy of your own, put {names}{unpacked} of {addresses[0][0]} into a folder "
        "and set dataset.raw=FOLDER"
    )


def _download_all(folder: Path, published: Published, parts: Path) -> None:
    record = {}
    for file in published.files:
        part = parts / file.name
        if not part.exists():
            _fetch(file.url, part.with_name(f"{file.name}.part"))
            part.with_name(f"{file.name}.part").rename(part)
        record[file.name] = _verify(file, part)
    for file in published.files:
        part = parts / file.name
        if file.unpack:
            _unpack(part, folder)
            part.unlink()
        else:
            part.rename(folder / file.name)
    (folder / "download.json").write_text(json.dumps(record, indent=1) + "\n")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Handler that follows redirects to http(s) addresses, but not from https to http."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Return the request of a redirect; ValueError: the new scheme is not allowed."""
        allowed = ("https",) if req.type == "https" else ("http", "https")
        if urlsplit(newurl).scheme not in allowed:
            raise ValueError(f"expected {' or '.join(allowed)}, got {brief(newurl)}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)

    def http_error_302(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any
    ) -> Any:
        """Follow the redirect; GraphError, with the connection closed, if it is refused."""
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError as error:
            fp.close()
            raise GraphError(f"{req.full_url}: cannot be redirected ({error})") from None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _fetch(url: str, part: Path) -> None:
    """Download ``url`` to ``part``, resuming after the bytes that exist."""
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        opener = urllib.request.build_opener(_Redirects)
        with opener.open(request, timeout=_TIMEOUT_S) as response:
            resumed = done > 0 and response.status == http.HTTPStatus.PARTIAL_CONTENT
            # A missing header counts as the requested range.
            sent = response.headers.get("Content-Range", f"bytes {done}-")
            if resumed and not sent.startswith(f"bytes {done}-"):
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
            return  # the partial file is complete
        raise GraphError(f"{url}: the host answers {error.code} {brief(error.reason)}") from None
    except (urllib.error.URLError, *_BROKEN) as error:
        reason = getattr(error, "reason", None) or error
        raise GraphError(f"{url}: cannot be reached ({brief(reason)})") from None


def _content_length(url: str, headers: Message) -> int | None:
    length = headers.get("Content-Length")
    if length is None:
        return None
    if not (length.isascii() and length.isdigit() and len(length) < 19):
        raise GraphError(f"{url}: Content-Length: expected a number, got {brief(repr(length))}")
    return int(length)


def _copy_download(response: Any, file: IO[bytes], url: str, total: int | None) -> None:
    """Append the response to ``file``, up to its expected size ``total`` (None: unknown).

    NoSpaceError: the disk is too small; IncompleteRead: another size.
    """
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


def _verify(file: RemoteFile, part: Path) -> dict[str, Any]:
    """Return the record of download ``part``; GraphError, and it is removed: a wrong checksum."""
    digest = file_sha256(part)
    if file.sha256 not in (None, digest):
        part.unlink()
        raise GraphError(f"{file.url}: expected SHA-256 {file.sha256}, got {digest}")
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
