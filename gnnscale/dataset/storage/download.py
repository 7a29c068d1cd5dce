"""Published files by their address: resumed where broken off, checked, complete or absent."""

from __future__ import annotations

import http.client
import json
import logging
import shutil
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from gnnscale.artifact.folder import new_folder
from gnnscale.artifact.key import file_sha256
from gnnscale.dataset.formats.archive import extract_all
from gnnscale.dataset.storage.space import NoSpaceError, check_space, size
from gnnscale.errors import shown
from gnnscale.graph import GraphError
from gnnscale.hardware import home
from gnnscale.progress import track

__all__ = ["Published", "RemoteFile", "discard", "download"]

_LOG = logging.getLogger(__name__)
_CHUNK_BYTES = 1 << 20
_TIMEOUT_S = 30
#: What a connection may raise while it is read.
_BROKEN = (TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException)
#: A host that does not say how much it sends may fill the disk up to this.
_SPARE_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One file.

    Attributes:
        url: its address.
        sha256: its checksum where it is known beforehand.
        unpack: it is a zip archive of which the members are wanted.
    """

    url: str
    sha256: str | None = None
    unpack: bool = False

    @property
    def name(self) -> str:
        """Its name in the folder."""
        return Path(urlsplit(self.url).path).name


@dataclass(frozen=True, kw_only=True)
class Published:
    """The files of a dataset.

    Attributes:
        name: name of the folder they go to.
        licence: shown when they are downloaded.
        files: what to download.
    """

    name: str
    licence: str
    files: tuple[RemoteFile, ...]


def download(published: Published) -> Path:
    """Download what is not there yet, and return the folder.

    Folders are in ``${GNNSCALE_HOME:-~/.cache/gnnscale}/raw``. A download that broke off goes on
    where it stopped. ``download.json`` records address, size and SHA-256 of every file.

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
    return home() / "raw" / published.name


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
    """Follows to other addresses of the web alone, and not from an encrypted one to an open one."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Refuse what is not to be followed."""
        allowed = ("https",) if req.type == "https" else ("http", "https")
        if urlsplit(newurl).scheme not in allowed:
            raise GraphError(f"{req.full_url}: the host redirects to {shown(newurl)}, refused")
        return super().redirect_request(req, fp, code, msg, headers, newurl)

    def http_error_302(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any
    ) -> Any:
        """Close the connection where it is not followed."""
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
    """Download ``url`` to ``part``, going on from the bytes that are there."""
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
                _copy(response, file, url, total)
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
    """Whether the host sends what was asked for; some do not say."""
    return headers.get("Content-Range", f"bytes {done}-").startswith(f"bytes {done}-")


def _content_length(url: str, headers: Message) -> int | None:
    length = headers.get("Content-Length")
    if length is None:
        return None
    if not (length.isascii() and length.isdigit() and len(length) < 19):
        raise GraphError(f"{url}: the host says it sends {shown(repr(length))} bytes")
    return int(length)


def _copy(response: Any, file: IO[bytes], url: str, total: int | None) -> None:
    """Write what the host sends; never more than the disk can take."""
    folder, name = Path(file.name).parent, Path(file.name).stem
    free = shutil.disk_usage(folder).free
    if total is not None:
        check_space(url, folder, disk=total - file.tell())
    limit = file.tell() + free - min(_SPARE_BYTES, free // 10)
    with track(f"downloading {name}", total, "bytes") as advance:
        advance(file.tell())
        while chunk := response.read(_CHUNK_BYTES):
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
    """Return the file's record; refuse and remove it where the checksum differs."""
    digest = file_sha256(part)
    if file.sha256 not in (None, digest):
        part.unlink()
        raise GraphError(f"{file.url}: SHA-256 is {digest}, expected {file.sha256}")
    return {"url": file.url, "bytes": part.stat().st_size, "sha256": digest}


def _unpack(archive: Path, folder: Path) -> None:
    try:
        with track(f"unpacking {archive.name}"):
            extract_all(archive, folder)
    except NoSpaceError:
        raise
    except GraphError as error:
        archive.unlink()
        raise GraphError(
            f"{error}; the download is removed, the next attempt downloads it again"
        ) from None
