"""Edits of bytes and text that know nothing of formats; random numbers fix what they do."""

import random
import re
from collections.abc import Callable
from typing import TypeAlias

Edit: TypeAlias = Callable[[bytes, random.Random], bytes]
#: Whole numbers at which something may go wrong.
INTEGERS = (
    *(0, 1, 2, -1, 7, 127, 128, 255, 256, 32767, 32768, 65535, 2**24, 10**9, 2**30),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 5, 2**53, 2**62, 2**63 - 1),
    *(-(2**31), -(2**63), -2, -128),
)


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


#: Numbers as text, some of which are none.
NUMBERS = (
    *map(str, INTEGERS),
    *("2147483648000", "9" * 20, "9" * 30, "-" + "9" * 30, "1" + "0" * 30, "9" * 400, "", " "),
    *words("nan -nan inf -inf Infinity 1e300 1e-300 1e400 -0 +1 0x10 1_000 1.5 . - 1,2 true null"),
    *("abc", "\u0663", "1\x00", "'1'", "01"),
)
_TOKENS = (
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n\n", b"\t", b"  ", b"\x7f"),
    *(b"\x1b[31m", b"\x1b]0;x\x07", b"\xc3\x28", b"\xed\xa0\x80", b"\xe2\x80\xae"),
    *b", \" ' # { [ %n%s ../ // ; : ,,,, NaN None \xf0\x9f\x92\xa9".split(),
)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def flip_bits(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8)) if data else 0):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def set_bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8)) if data else 0):
        changed[rng.randrange(len(data))] = rng.choice((0, 255, 127, 128, rng.randrange(256)))
    return bytes(changed)


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.choice((0, 1, len(data) // 2, max(0, len(data) - 1), _place(data, rng)))]


def insert(data: bytes, rng: random.Random) -> bytes:
    """Insert random bytes, rarely many."""
    at, size = _place(data, rng), rng.choice((1, 1, 2, 4, 8, 64, 4096))
    return data[:at] + rng.randbytes(size) + data[at:]


def delete(data: bytes, rng: random.Random) -> bytes:
    begin, end = _piece(data, rng)
    return data[:begin] + data[end:]


def duplicate(data: bytes, rng: random.Random) -> bytes:
    """Repeat a piece, rarely a thousand times."""
    begin, end = _piece(data, rng)
    times = min(rng.choice((1, 1, 2, 10, 1000)), (1 << 20) // max(1, end - begin))
    return data[:end] + data[begin:end] * times + data[end:]


def move(data: bytes, rng: random.Random) -> bytes:
    """Put a piece where another one is."""
    (begin, end), at = _piece(data, rng), _place(data, rng)
    return data[:at] + data[begin:end] + data[at + end - begin :]


def set_integer(data: bytes, rng: random.Random) -> bytes:
    """Overwrite an integer of 1 to 8 bytes where one may stand."""
    size = rng.choice((1, 2, 4, 4, 8, 8))
    if len(data) < size:
        return data
    at = rng.randrange(len(data) - size + 1)
    if rng.random() < 0.7:
        at -= at % size
    value = rng.choice(INTEGERS) % (1 << 8 * size)
    order = rng.choice(("little", "little", "little", "big"))
    return data[:at] + value.to_bytes(size, order) + data[at + size :]


def edit_number(data: bytes, rng: random.Random) -> bytes:
    """Replace a number in text."""
    found = list(_NUMBER.finditer(data, 0, 1 << 16))
    if not found:
        return insert_token(data, rng)
    number = rng.choice(found)
    return data[: number.start()] + rng.choice(NUMBERS).encode() + data[number.end() :]


def insert_token(data: bytes, rng: random.Random) -> bytes:
    """Insert a token that parsers stumble over."""
    at = _place(data, rng)
    return data[:at] + rng.choice(_TOKENS) * rng.choice((1, 1, 1, 2, 50)) + data[at:]


def edit_lines(data: bytes, rng: random.Random) -> bytes:
    """Leave out, repeat, exchange or lengthen lines."""
    lines = data.split(b"\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(5)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines[at:at] = [lines[other]] * rng.choice((1, 2, 500))
    elif kind == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 3:
        lines[at] = lines[at][: _place(lines[at], rng)]
    else:
        lines[at] += rng.choice((b",1", b" 1", b",", b"x", b'"', b"\t7\t8"))
    return b"\n".join(lines)


def long_field(data: bytes, rng: random.Random) -> bytes:
    """Insert a very long run of one character; seldom, since it takes time."""
    size = rng.choice((1000, 70_000, 70_000, 3_000_000 if rng.random() < 0.05 else 10_000))
    at, character = _place(data, rng), rng.choice(b'9a ["\n-0')
    return data[:at] + bytes([character]) * size + data[at:]


def _place(data: bytes, rng: random.Random) -> int:
    return rng.randrange(len(data) + 1)


def _piece(data: bytes, rng: random.Random) -> tuple[int, int]:
    begin = _place(data, rng)
    return begin, min(len(data), begin + rng.choice((1, 2, 4, 8, 16, 100, len(data))))


BYTES: tuple[Edit, ...] = (flip_bits, set_bytes, set_integer, set_integer, truncate, insert)
BYTES += (delete, duplicate, move)
TEXT: tuple[Edit, ...] = (
    *(edit_number, edit_number, edit_number, insert_token, insert_token, edit_lines, edit_lines),
    *(long_field, flip_bits, truncate, delete, duplicate),
)
