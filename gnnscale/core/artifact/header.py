"""Headers of artifacts in strict JSON, and digests of options and files."""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from gnnscale.core import GraphError, brief, printable, track
from gnnscale.core.artifact.files import open_regular
from gnnscale.core.config.renamed import stored_path


def parse_json(data: bytes, *, source: object) -> dict[str, Any]:
    """Return the JSON object in ``data``; GraphError for anything else, NaN, or a repeated key."""
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_object)
    # Brackets nested too deeply raise RecursionError, numbers of thousands of digits ValueError.
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise GraphError(f"{source}: cannot be read as JSON ({reason})") from None
    if not isinstance(value, dict):
        raise GraphError(f"{source}: expected a JSON object, got a {type(value).__name__}")
    return value


def header_text(entries: Mapping[str, Any]) -> str:
    """Return an object as JSON with one line for each entry."""
    lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def check_lines(file: Path, texts: Iterable[str], max_characters: int) -> None:
    """Raise GraphError for a text that is not printable or exceeds ``max_characters``."""
    for text in texts:
        if len(text) > max_characters or not printable(text):
            raise GraphError(
                f"{file}: expected a line of up to {max_characters} characters, got {brief(text)!r}"
            )


def check_limits(file: Path, limits: Iterable[tuple[str, float | None, float]]) -> None:
    """Raise GraphError for a (name, value, maximum) with a value below 0 or above its maximum."""
    for name, value, limit in limits:
        if value is not None and not 0 <= value <= limit:
            raise GraphError(f"{file}: {name}: expected 0 to {limit}, got {brief(value)}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"key '{brief(twice)}' stands twice in one object")
    return value


#: Bytes read at a time: they stay in the processor's cache until they are hashed.
_CHUNK_BYTES = 1 << 18


def digest(values: object, *, size: int = 16) -> str:
    """Return a hash of plain values, as ``2 * size`` hexadecimal digits."""
    text = json.dumps(values, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def plain(value: Any) -> Any:
    """Return options as plain JSON values; a nested options object also names its class."""
    if is_dataclass(value) and not isinstance(value, type):
        inner = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        return {"_target_": stored_path(type(value)), **inner}
    return json.loads(json.dumps(value))


def file_sha256(file: Path, stop: threading.Event | None = None) -> str:
    """Return the SHA-256 of a regular file in hex; after ``stop`` the result is meaningless."""
    sha256 = hashlib.sha256()
    total = file.stat().st_size
    chunk = memoryview(bytearray(_CHUNK_BYTES))
    with track(f"checking {file.name}", total, "bytes") as advance, open_regular(file) as stream:
        while (count := stream.readinto(chunk)) and not (stop and stop.is_set()):
            sha256.update(chunk[:count])
            advance(count)
    return sha256.hexdigest()
