"""Published files by their address: resumed where broken off, checked, complete or absent."""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import os
import urllib.error
import urllib.request
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gnnscale.dataset.storage.folder import new_folder
from gnnscale.graph import GraphError
from gnnscale.hardware import home
from gnnscale.progress import track

__all__ = ["Published", "RemoteFile", "download"]

_LOG = logging.getLogger(__name__)
_CHUNK_BYTES = 1 << 20
_TIMEOUT_S = 30


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
    path = home() / "raw" / published.name
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


def _fetch(url: str, part: Path) -> None:
    """Download ``url`` to ``part``, going on from the bytes that are there."""
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
            length = response.headers.get("Content-Length")
            total = None if length is None else int(length) + (done if resumed else 0)
            with part.open("ab" if resumed else "wb") as file:
                _copy(response, file, f"downloading {part.stem}", total)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and done:
            if error.headers.get("Content-Range") != f"bytes */{done}":
                part.unlink()
                _fetch(url, part)
            return  # what was there is complete
        raise GraphError(f"{url}: the host answers {error.code} {error.reason}") from None
    except (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException) as e:
        reason = getattr(e, "reason", None) or e
        raise GraphError(
            f"{url}: cannot be reached ({reason}); without a network, set dataset.raw to a folder "
            "that has the file"
        ) from None


def _copy(response: Any, file: Any, description: str, total: int | None) -> None:
    with track(description, total, "bytes") as advance:
        advance(file.tell())
        while chunk := response.read(_CHUNK_BYTES):
            file.write(chunk)
            advance(len(chunk))
        if total is not None and file.tell() != total:
            raise http.client.IncompleteRead(b"", total - file.tell())


def _checked(file: RemoteFile, part: Path) -> dict[str, Any]:
    """Return the file's record; refuse and remove it where the checksum differs."""
    digest = hashlib.sha256()
    size = part.stat().st_size
    with track(f"checking {file.name}", size, "bytes") as advance, part.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
            advance(len(chunk))
    if file.sha256 not in (None, digest.hexdigest()):
        part.unlink()
        raise GraphError(f"{file.url}: SHA-256 is {digest.hexdigest()}, expected {file.sha256}")
    return {"url": file.url, "bytes": size, "sha256": digest.hexdigest()}


def _unpack(archive: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as members, track(f"unpacking {archive.name}"):
            members.extractall(folder)
    except zipfile.BadZipFile as error:
        os.unlink(archive)
        raise GraphError(f"{archive.name}: not a readable zip file ({error})") from None
