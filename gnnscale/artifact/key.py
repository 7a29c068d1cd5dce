"""Keys of artefacts: digests of what decides how one comes out, and of files."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from gnnscale.artifact.files import open_regular
from gnnscale.core.progress import track

__all__ = ["digest", "file_sha256", "plain"]

#: Few enough to be in the cache still when they are hashed.
_CHUNK_BYTES = 1 << 18


def digest(values: object, *, size: int = 16) -> str:
    """Return a hash of plain values, as ``2 * size`` hexadecimal digits."""
    text = json.dumps(values, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def plain(value: Any) -> Any:
    """Return options as JSON would give them back; those within others name their class."""
    if is_dataclass(value) and not isinstance(value, type):
        inner = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        return {"_target_": f"{type(value).__module__}.{type(value).__qualname__}", **inner}
    return json.loads(json.dumps(value))


def file_sha256(file: Path, stop: threading.Event | None = None) -> str:
    """Return the SHA-256 of a file's content as hex digits, showing progress.

    Args:
        file: the file.
        stop: ends the work early when it is set; what is returned is of no use then.

    Raises:
        GraphError: it is no regular file, or cannot be opened.
    """
    found = hashlib.sha256()
    total = file.stat().st_size
    chunk = memoryview(bytearray(_CHUNK_BYTES))
    with (
        track(f"checking {file.name}", total, "bytes") as advance,
        open_regular(file) as stream,
    ):
        while (count := stream.readinto(chunk)) and not (stop and stop.is_set()):
            found.update(chunk[:count])
            advance(count)
    return found.hexdigest()
