"""Arrays in an untrusted ``.npz`` file, beside an untrusted JSON file that describes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.core.errors import GraphError, shown
from gnnscale.dataset.formats.archive import Archive
from gnnscale.graph_files import ArrayEntry
from gnnscale.npy import NpyError, read_header

#: The type and the shape that an array must have.
Form = tuple[np.dtype[Any], tuple[int, ...]]
_MAX_HEADER_BYTES = 4096


def write_npz(file: Path, arrays: Mapping[str, NDArray[Any]]) -> dict[str, ArrayEntry]:
    """Write ``arrays`` to ``file``, and return the JSON file's description of each."""
    np.savez(file, **arrays)  # type: ignore[arg-type]
    with Archive(file) as archive:
        return {
            name: ArrayEntry(
                shape=array.shape,
                dtype=str(array.dtype),
                bytes=archive.member_bytes(f"{name}.npy")[0],
                crc32=archive.member_crc32(f"{name}.npy"),
            )
            for name, array in arrays.items()
        }


def read_npz(
    file: Path,
    entries: Mapping[str, ArrayEntry],
    forms: Mapping[str, Form],
    *,
    json_name: str,
    again: str,
) -> dict[str, NDArray[Any]]:
    """Return the arrays in a ``file`` that ``write_npz`` wrote, of the declared types and shapes.

    Args:
        file: the archive.
        entries: the JSON file's description of each.
        forms: type and shape of each array with an entry; others may be among them.
        json_name: the JSON file's name, for errors.
        again: how to remake both files, for errors.

    Raises:
        GraphError: it is damaged, or not the file that ``entries`` describe.
    """
    with Archive(file) as archive:
        if sorted(archive.names) != sorted(f"{name}.npy" for name in entries):
            raise GraphError(
                f"{file}: members are {shown(sorted(archive.names))}, {json_name} tells of "
                f"{shown(sorted(entries))}"
            )
        return {
            name: _read_array(archive, name, forms[name], entry, json_name, again)
            for name, entry in entries.items()
        }


def _read_array(
    archive: Archive, name: str, form: Form, entry: ArrayEntry, json_name: str, again: str
) -> NDArray[Any]:
    dtype, shape = form
    source = f"{archive.path}/{name}.npy"
    unpacked, _ = archive.member_bytes(f"{name}.npy")
    num_bytes = math.prod(shape) * dtype.itemsize
    if not num_bytes <= unpacked <= min(num_bytes + _MAX_HEADER_BYTES, archive.file_bytes):
        raise GraphError(f"{source}: {unpacked} bytes, {dtype}{list(shape)} has {num_bytes}")
    declared = (entry.bytes, entry.crc32, entry.dtype, entry.shape)
    if declared != (unpacked, archive.member_crc32(f"{name}.npy"), str(dtype), shape):
        raise GraphError(f"{source}: not the array that {json_name} tells of; {again}")
    with archive.open(f"{name}.npy") as stream:
        try:
            header = read_header(stream)
        except NpyError as error:
            raise GraphError(f"{source}: not a readable .npy array ({error})") from None
        if (header.dtype, header.shape) != (dtype, shape):
            raise GraphError(
                f"{source}: {header.dtype}{list(header.shape)}, needed is {dtype}{list(shape)}"
            )
        if unpacked != header.offset + num_bytes:
            raise GraphError(
                f"{source}: {unpacked - header.offset} bytes of data, needed are {num_bytes}"
            )
        array = np.empty(shape, dtype)
        found = stream.readinto(array.reshape(-1).view(np.uint8).data)  # type: ignore[attr-defined]
        # The checksum is compared when the end is read.
        if found != num_bytes or stream.read(1):
            raise GraphError(f"{source}: ends after {found} bytes of data of {num_bytes}")
    return array
