"""A checksum at the end of a library: loading one that is damaged would end the process.

It tells damage, not intent: who may write the file may execute code.
"""

from __future__ import annotations

import hashlib

__all__ = ["is_sealed", "seal"]

#: As ``native/CMakeLists.txt`` appends it. A loader of shared libraries does not look there.
_MARK = b"\ngnnscale csim sha256 "
_DIGITS = 64


def seal(content: bytes) -> bytes:
    """Return the content of a library with the checksum of it behind."""
    return content + _mark_of(content)


def is_sealed(content: bytes) -> bool:
    """Return whether content ends in the checksum of what stands before."""
    size = len(content) - len(_MARK) - _DIGITS - 1
    return size >= 0 and content[size:] == _mark_of(content[:size])


def _mark_of(content: bytes) -> bytes:
    return _MARK + hashlib.sha256(content).hexdigest().encode() + b"\n"
