"""Stored rows of an aggregation: ``rows.npy``, and ``preaggregated.json`` that says of what.

Nothing in either is executed. Whoever opens them gets rows of the graph, or one line.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnscale.core.errors import GraphError, shown
from gnnscale.core.files import write_atomically
from gnnscale.dataset.checks import check_features
from gnnscale.dataset.formats.json_file import read_versioned
from gnnscale.dataset.formats.npy import map_npy, row_slices
from gnnscale.dataset.formats.plain import file_bytes
from gnnscale.graph import Graph
from gnnscale.graph_files import ArrayEntry
from gnnscale.partition.storage.identity import Divided, describe, place_in_home
from gnnscale.plain_records import record_from

__all__ = [
    "JSON_FILE",
    "ROWS_FILE",
    "AggregatedRows",
    "Identity",
    "check_rows",
    "identify",
    "open_rows",
    "rows_place",
    "write_meta",
]

FORMAT_VERSION = 1
JSON_FILE = "preaggregated.json"
ROWS_FILE = "rows.npy"

_MAX_JSON_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What decides the rows.

    Attributes:
        graph: whose features are aggregated; its content hash covers them.
        layer: class of the layer, whose coefficients no weight changes.
        width: of an aggregated row.
    """

    graph: Divided
    layer: str
    width: int


@dataclass(frozen=True, kw_only=True)
class AggregatedRows:
    """Rows that were opened.

    Attributes:
        rows: ``[num_vertices, width]`` float32, mapped.
        content: hash of what they hold.
    """

    rows: NDArray[np.float32]
    content: str


@dataclass(frozen=True, kw_only=True)
class _Said:
    """The entries of ``preaggregated.json`` beside its version."""

    identity: Identity
    rows: ArrayEntry


def identify(graph: Graph, *, layer: type[object], width: int) -> Identity:
    """Return what decides the rows of ``graph`` aggregated by ``layer``.

    Raises:
        GraphError: the graph is in memory alone, where nothing tells its features apart.
    """
    if graph.content is None:
        raise GraphError(f"{graph.name}: in memory, features are preaggregated of a store alone")
    name = f"{layer.__module__}.{layer.__qualname__}"
    return Identity(graph=describe(graph), layer=name, width=width)


def rows_place(identity: Identity) -> Path:
    """Return the directory of the rows."""
    said = {"format": FORMAT_VERSION, **asdict(identity)}
    kind = identity.layer.rpartition(".")[2]
    return place_in_home("preaggregated", identity.graph.name, kind, said)


def write_meta(folder: Path, identity: Identity, rows: ArrayEntry) -> None:
    """Write ``preaggregated.json`` into ``folder``, whose ``rows.npy`` is as ``rows`` says."""
    said = _Said(identity=identity, rows=rows)
    content = {"format_version": FORMAT_VERSION, **asdict(said)}
    write_atomically(folder / JSON_FILE, json.dumps(content, indent=1) + "\n")


def open_rows(path: Path, graph: Graph) -> AggregatedRows:
    """Map the rows of ``graph`` at ``path``. Their checksum is told, and not compared.

    Raises:
        GraphError: they are of another graph, or damaged.
    """
    said = _read_meta(path)
    identity, found = said.identity, describe(graph)
    again = _again(path)
    if identity.graph != found:
        raise GraphError(
            f"{path}: has rows of {shown(identity.graph.name)} "
            f"(content {shown(identity.graph.content)}), not of {shown(found.name)} "
            f"(content {found.content}); {again}"
        )
    file, shape = path / ROWS_FILE, (graph.num_vertices, identity.width)
    if file_bytes(file) != said.rows.bytes:
        raise GraphError(
            f"{file}: {file_bytes(file)} bytes, {JSON_FILE} says {said.rows.bytes} (truncated?); "
            f"{again}"
        )
    rows = map_npy(file, axes=2)
    if rows.dtype != np.float32 or rows.shape != shape or not rows.flags.aligned:
        raise GraphError(
            f"{file}: {rows.dtype}{list(rows.shape)}, must be float32{list(shape)}; {again}"
        )
    if (said.rows.dtype, said.rows.shape) != (str(rows.dtype), rows.shape):
        raise GraphError(f"{file}: not the rows that {JSON_FILE} tells of; {again}")
    text = json.dumps(asdict(said), sort_keys=True)
    return AggregatedRows(
        rows=rows, content=hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    )


def check_rows(path: Path, graph: Graph, identity: Identity) -> None:
    """Read the rows of ``graph`` at ``path`` as a whole, once for all processes that map them.

    Raises:
        GraphError: as ``open_rows``; they are of another layer, or one is not finite.
    """
    rows = open_rows(path, graph).rows
    again, file = _again(path), path / ROWS_FILE
    found = _read_meta(path).identity
    if found != identity:
        raise GraphError(
            f"{path / JSON_FILE}: has rows of {found.width} features of {shown(found.layer)}, not "
            f"of {identity.width} features of {identity.layer}; {again}"
        )
    # Read, not mapped: mapped pages would count as memory of this process.
    with file.open("rb") as stream:
        stream.seek(file_bytes(file) - rows.nbytes)
        for part in row_slices(len(rows), rows[:1].nbytes):
            some = np.fromfile(stream, np.float32, (part.stop - part.start) * rows.shape[1])
            try:
                check_features(some.reshape(-1, rows.shape[1]), part.start, file)
            except GraphError as error:
                raise GraphError(f"{error}; {again}") from None


def _again(path: Path) -> str:
    return f"remove {path}, and it is made again"


def _read_meta(path: Path) -> _Said:
    file = path / JSON_FILE
    again = _again(path)
    entries = read_versioned(file, version=FORMAT_VERSION, max_bytes=_MAX_JSON_BYTES, again=again)
    try:
        return record_from(_Said, entries, where="entry")
    except (ValueError, RecursionError) as error:
        raise GraphError(f"{file}: {str(error) or 'nested too deeply'}; {again}") from None
