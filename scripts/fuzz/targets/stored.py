"""What stored partitions and cache plans have in common: a JSON file that tells of an archive."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gnnscale.graph import Graph

from ..case import case_rng

__all__ = ["agreeing", "retold", "small_graph", "without_times"]

#: What may stand in the place of any value.
_VALUES: tuple[Any, ...] = (
    *(-1, 0, 1, 2, 7, 60, 61, 2**31, 2**62, -(2**63), 2**63 - 1, 10**30, 0.5, -0.5, 1e300, -1e300),
    *(None, True, "", "x", "\x1b[2J", "a\nb", "\ud800", "[bold]x[/]", "<svg>", "x" * 1000),
    *([], [1], [0, 0], [[0, 1], [2]], [1, 0, 2, 5], {}, {"0": 1}),
)


def small_graph(num_vertices: int, num_edges: int) -> Graph:
    """Return a graph of random edges, half of whose vertices train."""
    rng = np.random.default_rng(0)
    ends = np.sort(rng.integers(0, num_edges + 1, num_vertices - 1))
    vertices = np.arange(num_vertices, dtype=np.int32)
    return Graph(
        name="fuzzed",
        indptr=np.concatenate([[0], ends, [num_edges]]).astype(np.int64),
        indices=rng.integers(0, num_vertices, num_edges, dtype=np.int32),
        features=np.zeros((num_vertices, 5), np.float32),
        feature_dtype="float32",
        labels=np.zeros(num_vertices, np.int64),
        num_classes=1,
        train_idx=vertices[::2],
        valid_idx=vertices[1::4],
        test_idx=vertices[3::4],
    )


def without_times(archive: bytes) -> bytes:
    """Return an archive that says nothing of when it was written."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(packed, "w") as copy:
        for info in source.infolist():
            copy.writestr(zipfile.ZipInfo(info.filename), source.read(info))
    return packed.getvalue()


def retold(
    files: Mapping[str, bytes], name: str, key: str, number: int, keep: frozenset[int] | None
) -> tuple[dict[str, bytes], list[str]]:
    """Return the files with other values here and there in ``name.json``, and which these are.

    Every edit has random numbers of its own, so that one can be left out and the others stay.
    """
    said, edits = json.loads(files[f"{name}.json"]), []
    for place in range(case_rng(key, number, "edits").choice((1, 1, 2, 4))):
        rng = case_rng(key, number, place)
        holder, index = rng.choice(list(_places(said)))
        if keep is None or place in keep:
            holder[index] = rng.choice(_VALUES)
            edits.append(f"{place}: {name}.json")
    return {**files, f"{name}.json": json.dumps(said).encode()}, edits


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in nested lists and mappings, as what holds it and its index or key."""
    if not isinstance(value, (dict, list)):
        return
    for index in value if isinstance(value, dict) else range(len(value)):
        yield value, index
        yield from _places(value[index])


def agreeing(files: Mapping[str, bytes], name: str) -> dict[str, bytes]:
    """Write into ``name.json`` what ``name.npz`` says, as somebody with bad intent would."""
    try:
        said = json.loads(files[f"{name}.json"])
        with zipfile.ZipFile(io.BytesIO(files[f"{name}.npz"])) as archive:
            for info in archive.infolist():
                entry = said["arrays"].get(info.filename.removesuffix(".npy"))
                if entry:
                    entry.update(bytes=info.file_size, crc32=info.CRC)
    except Exception:  # damaged itself
        return dict(files)
    return {**files, f"{name}.json": json.dumps(said).encode()}
