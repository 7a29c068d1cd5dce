"""Edits of zip and gzip files: of what is packed, and of how."""

from __future__ import annotations

import functools
import io
import random
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from typing import TypeAlias

from .mutate import BYTES, INTEGERS

__all__ = ["gzip_inner", "zip_bomb", "zip_fields", "zip_member"]

#: Edits the content of a file that has a name.
Inner: TypeAlias = Callable[[str, bytes, random.Random], bytes]

_NAMES = (
    *(
        "../../esc.npy",
        "/esc.npy",
        "..\\esc.npy",
        "a\x00b.npy",
        "x" * 300,
        "",
        "indptr.npy",
        "\x1b[2J",
    ),
    *("target.csv", "data.pkl", "../../../executed", "__init__.py", "CON"),
)


def zip_member(data: bytes, rng: random.Random, edit: Inner) -> bytes:
    """Edit what is inside a member of a zip, or its name, and pack it again."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:  # it is damaged already, by an earlier edit
        return rng.choice(BYTES)(data, rng)
    kind, at = rng.randrange(12), rng.randrange(len(members)) if members else 0
    if not members:
        return data
    name, content = members[at]
    if kind == 0:
        members[at] = (rng.choice(_NAMES), content)
    elif kind == 1:
        members.append((name, edit(name, content, rng)))
    elif kind == 2:
        del members[at]
    else:
        members[at] = (name, edit(name, content, rng))
    out = io.BytesIO()
    method = rng.choice((0, 8, 8, 12, 14))
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as archive:
        warnings.simplefilter("ignore")  # names may repeat
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            archive.writestr(info, content)
    return out.getvalue()


def zip_fields(data: bytes, rng: random.Random) -> bytes:
    """Overwrite flags, method, checksum, sizes or offsets in the headers of a zip."""
    changed = bytearray(data)
    heads = [found.start() for found in re.finditer(rb"PK\x01\x02|PK\x03\x04|PK\x05\x06", data)]
    if not heads:
        return data
    for _ in range(rng.choice((1, 1, 2))):
        head = rng.choice(heads)
        kind = changed[head + 2]
        if kind == 5:
            at, width = rng.choice(((8, 2), (10, 2), (12, 4), (16, 4), (20, 2)))
        else:
            shift = 2 if kind == 1 else 0
            at, width = rng.choice(
                ((4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2))
            )
            at += shift
        values = (1, 8, 9, 12, 14, 93, 95, 99, 0x800, 0x2041, rng.choice(INTEGERS))
        value = (rng.choice(values) % (1 << 8 * width)).to_bytes(width, "little")
        changed[head + at : head + at + width] = value
    return bytes(changed)


def zip_bomb(data: bytes, rng: random.Random) -> bytes:
    """Let a member unpack to 4 GB; seldom, since it takes time."""
    if rng.random() > 0.05:
        return zip_fields(data, rng)
    try:
        names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    except Exception:
        return data
    name = rng.choice(names).encode("utf-8", "replace") if names else b"x"
    packed = _many_times(rng.choice((b"1,1\n", b"[", b" ", b"\x80", b"\x00")))
    sizes = struct.pack("<III", 0, len(packed), 2**32 - 2)
    fields = struct.pack("<HHHHH", 20, 0, 8, 0, 0x21) + sizes
    local = b"PK\x03\x04" + fields + struct.pack("<HH", len(name), 0) + name + packed
    central = (
        b"PK\x01\x02\x14\x00" + fields + struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, 0) + name
    )
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)
    return local + central + end


#: Bytes of a text that is edited.
_MAX_INNER = 64 << 20


def gzip_inner(name: str, data: bytes, rng: random.Random, edit: Inner) -> bytes:
    """Edit what is inside a .gz file; or its bytes; seldom let it unpack to 4 GB."""
    kind = rng.random()
    if kind < 0.2:
        return rng.choice(BYTES)(data, rng)
    if kind < 0.205:
        return data[:10] + _many_times(rng.choice((b"1,1\n", b"9", b"\n", b",")))
    unpack = zlib.decompressobj(31)
    try:
        inner = unpack.decompress(data, _MAX_INNER)
    except zlib.error:
        return rng.choice(BYTES)(data, rng)
    if not unpack.eof:  # an earlier edit made it a bomb, or cut it off
        return rng.choice(BYTES)(data, rng)
    pack = zlib.compressobj(1, zlib.DEFLATED, 31)
    return pack.compress(edit(name[: -len(".gz")], inner, rng)) + pack.flush()


@functools.lru_cache
def _many_times(pattern: bytes) -> bytes:
    """Return a deflate stream of about 4 GB of ``pattern``, made of equal blocks."""
    pack = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = pack.compress(pattern * ((16 << 20) // len(pattern))) + pack.flush(zlib.Z_FULL_FLUSH)
    return block * 255 + pack.flush()
