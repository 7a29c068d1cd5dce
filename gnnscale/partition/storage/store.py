"""A stored partition: ``partition.npz`` with the arrays, ``partition.json`` with the figures.

Nothing in either is executed. Whoever reads one gets parts that fit the graph, or one line.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.core.errors import GraphError, shown
from gnnscale.core.files import write_atomically
from gnnscale.dataset.formats.json_file import read_versioned
from gnnscale.dataset.formats.npz import Form, read_npz, write_npz
from gnnscale.graph import Graph
from gnnscale.graph_files import ArrayEntry
from gnnscale.partition.figures import PartitionFigures
from gnnscale.partition.partitioner import MAX_PARTS, Parts
from gnnscale.partition.storage.checks import check_figures, problem_of
from gnnscale.partition.storage.identity import FORMAT_VERSION, Divided, Identity, describe
from gnnscale.plain_records import record_from

__all__ = [
    "JSON_FILE",
    "NPZ_FILE",
    "Partition",
    "PartitionMeta",
    "check_graph",
    "read_meta",
    "read_partition",
    "write_partition",
]

JSON_FILE = "partition.json"
NPZ_FILE = "partition.npz"

_MAX_JSON_BYTES = 64 << 20
_AGAIN = "run gnnscale partition again with force=true"


@dataclass(frozen=True, kw_only=True)
class PartitionMeta:
    """What ``partition.json`` says.

    Attributes:
        identity: what decided how the partition came out.
        columns: see ``Parts``.
        arrays: an entry for each array in ``partition.npz``, ``owner`` and ``hops``.
        figures: what is known of it.
    """

    identity: Identity
    columns: tuple[tuple[int, ...], ...] | None
    arrays: dict[str, ArrayEntry]
    figures: PartitionFigures

    @property
    def content(self) -> str:
        """Hex digest that tells partitions with other parts, or of other graphs, apart."""
        said = [
            asdict(self.identity.graph),
            [self.identity.num_parts, self.identity.num_hops, self.columns],
            [(name, entry.shape, entry.crc32) for name, entry in sorted(self.arrays.items())],
        ]
        return hashlib.blake2b(json.dumps(said).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A partition that was read.

    Attributes:
        parts: the graph divided.
        figures: what is known of it.
        path: its directory.
        content: hash of what it holds.
    """

    parts: Parts
    figures: PartitionFigures
    path: Path
    content: str


def write_partition(
    folder: Path, identity: Identity, parts: Parts, figures: PartitionFigures
) -> None:
    """Write both files into ``folder``, which exists."""
    found = {"owner": parts.owner, "hops": parts.hops}
    arrays = {name: array for name, array in found.items() if array is not None}
    entries = write_npz(folder / NPZ_FILE, arrays)
    content = {
        "format_version": FORMAT_VERSION,
        **asdict(figures),
        "graph": asdict(identity.graph),
        "options": identity.options,
        "num_hops": identity.num_hops,
        "columns": parts.columns,
        "arrays": {name: asdict(entry) for name, entry in entries.items()},
    }
    # A line for each entry: the counts between parts would have a line each otherwise.
    lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    write_atomically(folder / JSON_FILE, "{\n" + ",\n".join(lines) + "\n}\n")


def read_meta(path: Path) -> PartitionMeta:
    """Read and check ``partition.json`` of the partition at ``path``.

    Raises:
        GraphError: it is missing, of another version, or an entry is not what it must be.
    """
    file = path / JSON_FILE
    if not file.exists():
        raise GraphError(f"{path}: not a partition, it has no {JSON_FILE}")
    entries = read_versioned(file, version=FORMAT_VERSION, max_bytes=_MAX_JSON_BYTES, again=_AGAIN)
    try:
        said = record_from(_Said, entries, where="entry")
        figures = record_from(PartitionFigures, entries, where="entry")
    except (ValueError, RecursionError) as error:
        raise GraphError(f"{file}: {str(error) or 'nested too deeply'}") from None
    options = entries.get("options")
    if not isinstance(options, dict):
        raise GraphError(f"{file}: options is {shown(options)}, allowed is an object")
    if not 1 <= figures.num_parts <= MAX_PARTS:
        raise GraphError(f"{file}: num_parts is {figures.num_parts}, allowed are 1 to {MAX_PARTS}")
    identity = Identity(
        graph=said.graph,
        algorithm=figures.algorithm,
        options=options,
        num_parts=figures.num_parts,
        num_hops=said.num_hops,
    )
    check_figures(file, figures, said.graph)
    return PartitionMeta(
        identity=identity, columns=said.columns, arrays=said.arrays, figures=figures
    )


@dataclass(frozen=True, kw_only=True)
class _Said:
    """The entries of ``partition.json`` that are no figures."""

    graph: Divided
    num_hops: int | None
    columns: tuple[tuple[int, ...], ...] | None
    arrays: dict[str, ArrayEntry]


def read_partition(path: Path, graph: Graph) -> Partition:
    """Read the partition of ``graph`` at ``path``.

    Raises:
        GraphError: it is no partition, one of another graph, or damaged.
    """
    meta = read_meta(path)
    check_graph(path, meta, describe(graph))
    arrays = _read_arrays(path / NPZ_FILE, meta)
    parts = Parts(
        num_parts=meta.identity.num_parts,
        owner=arrays.get("owner"),
        hops=arrays.get("hops"),
        num_hops=(meta.identity.num_hops or 0) if "hops" in arrays else 0,
        columns=None if meta.columns is None else _pairs(path / JSON_FILE, meta.columns),
        notes=meta.figures.notes,
    )
    problem = problem_of(parts, graph)
    if problem is not None:
        raise GraphError(f"{path / NPZ_FILE}: {problem}; {_AGAIN}")
    return Partition(parts=parts, figures=meta.figures, path=path, content=meta.content)


def check_graph(path: Path, meta: PartitionMeta, graph: Divided) -> None:
    """Refuse a partition of another graph.

    Raises:
        GraphError: names both.
    """
    other = meta.identity.graph
    if other == graph:
        return
    what = f"of {shown(other.name)}"
    if other.name == graph.name:
        what = f"of another {shown(graph.name)} ({other.num_vertices} vertices, other content)"
    raise GraphError(
        f"{path}: is a partition {what}, not of {shown(graph.name)} ({graph.num_vertices} "
        "vertices); name another partitioner.store, or run gnnscale partition with force=true"
    )


def _pairs(file: Path, columns: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, int], ...]:
    if any(len(each) != 2 for each in columns):
        raise GraphError(f"{file}: columns is no list of pairs")
    return tuple((each[0], each[1]) for each in columns)


def _read_arrays(file: Path, meta: PartitionMeta) -> dict[str, NDArray[Any]]:
    """Return the arrays in ``partition.npz``, of the types and shapes that they must have."""
    num_parts, num_vertices = meta.identity.num_parts, meta.identity.graph.num_vertices
    forms: dict[str, Form] = {
        "owner": (np.dtype(np.int16), (num_vertices,)),
        "hops": (np.dtype(np.uint8), (num_parts, num_vertices)),
    }
    if set(meta.arrays) not in (set(), {"owner"}, {"owner", "hops"}):
        raise GraphError(
            f"{file.with_name(JSON_FILE)}: arrays are {shown(sorted(meta.arrays))}, allowed are "
            "owner and hops"
        )
    return read_npz(file, meta.arrays, forms, json_name=JSON_FILE, again=_AGAIN)
