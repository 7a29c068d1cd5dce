"""Untrusted zip archives, whose members (stored or deflated) are limited in number and size.

Deflate expands a byte to about 1,032 at most, so a declared size also limits the unpacked size.
"""

import io
import shutil
import stat
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO, Any

from gnnscale.core import GraphError
from gnnscale.core.artifact.files import NoSpaceError, file_bytes, readable

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MAX_MEMBERS = 10_000
_BUFFER_BYTES = 1 << 20
#: Flags of encryption, patches and strong encryption: members that need more than inflating.
_UNREADABLE_FLAGS = 0x1 | 0x20 | 0x40


class Archive:
    """Zip file, open for reading; GraphError: damage, over 10,000 members, or two of one name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file_bytes = file_bytes(path)
        with readable(path):
            self._zip = zipfile.ZipFile(path)
        self._members = {info.filename: info for info in self._zip.infolist()}
        num_members = len(self._zip.infolist())
        try:
            if num_members > _MAX_MEMBERS:
                raise GraphError(f"{path}: {num_members} members, allowed are {_MAX_MEMBERS}")
            if num_members != len(self._members):
                raise GraphError(f"{path}: several members have one name")
        except GraphError:
            self._zip.close()
            raise

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, *error: object) -> None:
        self._zip.close()

    @property
    def names(self) -> list[str]:
        """Names of the members, folders (which end in a slash) included."""
        return list(self._members)

    def member_bytes(self, name: str) -> tuple[int, int]:
        """Return the unpacked size and the packed size of a member, in bytes."""
        info = self._members[name]
        return info.file_size, info.compress_size

    def check_size(
        self, name: str, *, allowance: int, ratio: int, needs: int | None = None, advice: str
    ) -> None:
        """Raise GraphError, which ends in ``advice``, if a member would take too much memory.

        It takes ``needs`` bytes (None: its unpacked size). Allowed are ``allowance`` bytes plus
        ``ratio`` times the member's packed size.
        """
        unpacked, packed = self.member_bytes(name)
        needs = unpacked if needs is None else needs
        if needs > allowance + ratio * packed:
            raise GraphError(
                f"{self.path}/{name}: {needs} bytes from {packed} in the archive, allowed are "
                f"{allowance + ratio * packed}; {advice}"
            )

    def open(self, name: str) -> IO[bytes]:
        """Open a member for reading, stored or deflated.

        GraphError, on opening or on reading: damage, encryption, or another compression.
        """
        source = f"{self.path}/{name}"
        info = self._members[name]
        if info.flag_bits & _UNREADABLE_FLAGS:
            raise GraphError(f"{source}: encrypted, read are plain members")
        if info.compress_type not in _METHODS:
            raise GraphError(
                f"{source}: compressed by method {info.compress_type}, "
                "allowed are 0 (stored) and 8 (deflated)"
            )
        with readable(source):
            return io.BufferedReader(_Member(self._zip.open(info), source), _BUFFER_BYTES)

    def read(self, name: str, *, allowance: int, ratio: int, advice: str) -> bytes:
        """Return the content of a member; GraphError, with ``advice``, if it is too large.

        Allowed are ``allowance`` bytes plus ``ratio`` times its packed size.
        """
        self.check_size(name, allowance=allowance, ratio=ratio, advice=advice)
        with self.open(name) as file:
            return file.read()


class _Member(io.RawIOBase):
    """Stream of a zip member that raises GraphError where zipfile or zlib raises its own errors."""

    def __init__(self, file: IO[bytes], source: str) -> None:
        self._file = file
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with readable(self._source):
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def extract_all(path: Path, folder: Path) -> None:
    """Unpack a zip archive into ``folder``, which exists.

    Raises GraphError if the archive is damaged, a member leads out of the folder or is a link, or
    members exceed the free disk, or 1 GiB plus 200 times the size of the archive. Raises OSError if
    the disk is full or a name cannot be written.
    """
    with Archive(path) as archive:
        archive_infos = archive._members.values()
        for info in archive_infos:
            _check_place(info, path)
        needed = sum(info.file_size for info in archive_infos)
        allowed = (1 << 30) + 200 * archive.file_bytes
        free = shutil.disk_usage(folder).free
        if needed > allowed:
            raise GraphError(f"{path}: unpacks to {needed} bytes, allowed are {allowed}")
        if needed > free:
            raise NoSpaceError(f"{path}: unpacks to {needed} bytes, {free} are free in {folder}")
        for info in archive_infos:
            target = folder / info.filename
            if info.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info.filename) as source, target.open("xb") as copy:
                shutil.copyfileobj(source, copy, _BUFFER_BYTES)


def _check_place(info: zipfile.ZipInfo, path: Path) -> None:
    """Raise GraphError if a member leads out of the folder to unpack to, or is a link or a device.

    ``path`` is the archive, for errors.
    """
    name = info.filename
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        raise GraphError(f"{path}: member {name!r} leads out of the folder it is unpacked to")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise GraphError(f"{path}: member {name!r} is a link or a device, allowed are files")
