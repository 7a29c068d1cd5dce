"""A stored partition: ``owner.npy`` and ``hops.npy``, and ``partition.json`` with the figures."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from gnnscale.core import GraphError, shown, track
from gnnscale.core.artifact.artifact_type import ArtifactType, Form
from gnnscale.core.artifact.header import check_limits, check_lines, digest, plain
from gnnscale.core.artifact.npy import ArrayEntry, row_slices, write_array
from gnnscale.core.config.user_code import code_digest
from gnnscale.graph import Graph
from gnnscale.partition.base import MAX_PARTS, PartitionerConfig, Parts, problem_of
from gnnscale.partition.metrics import PartitionStats
from gnnscale.sampling.seed_order import labelled_vertices

PARTITION = ArtifactType(
    name="partition",
    header="partition.json",
    version=2,
    folder="partitions",
    option="partitioner.store",
    command="gnnscale partition",
    files=r"partition\.json|(owner|hops)\.npy|partition\.svg|\.partition\.svg\.tmp",
)
_MAX_TEXT = 500
#: Options that do not change what a partitioner does, or stand elsewhere.
_APART = ("num_parts", "store")


@dataclass(frozen=True, kw_only=True)
class GraphIdentity:
    """The graph that a partition is of."""

    name: str  #: what reports call it
    num_vertices: int
    num_edges: int  #: directed edges
    num_train: int  #: training vertices with a label
    content: str  #: hash of what it holds


@dataclass(frozen=True, kw_only=True)
class PartitionIdentity:
    """What decides how a partition comes out."""

    graph: GraphIdentity
    algorithm: str  #: the partitioner's name
    options: dict[str, Any]  #: its options, plain values
    num_parts: Annotated[int, Meta(ge=1, le=MAX_PARTS)]  #: number of parts, K
    num_hops: int | None  #: layers of the model, L; None if they play no part


def identify(
    config: PartitionerConfig, graph: Graph, *, num_parts: int, num_hops: int
) -> PartitionIdentity:
    """Return the identity of a partition of ``graph`` by ``config``; see ``describe``."""
    names = (field.name for field in fields(config))
    options = {name: plain(getattr(config, name)) for name in names if name not in _APART}
    code = code_digest(type(config))
    return PartitionIdentity(
        graph=describe(graph),
        algorithm=config.algorithm,
        options=options if code is None else {**options, "code": code},
        num_parts=num_parts,
        num_hops=num_hops if config.depends_on_hops else None,
    )


def describe(graph: Graph) -> GraphIdentity:
    """Return what identifies ``graph``.

    A graph in memory has no hash of its content yet: its topology and training vertices are read.
    It may have no labels, or no split, as one whose edges are predicted.
    """
    trains = graph.num_classes and len(graph.train_idx)
    train = labelled_vertices(graph, "train") if trains else graph.train_idx[:0]
    return GraphIdentity(
        name=graph.name,
        num_vertices=graph.num_vertices,
        num_edges=graph.num_edges,
        num_train=len(train),
        content=graph.content or _hashed(graph, train),
    )


def partition_place(config: PartitionerConfig, identity: PartitionIdentity) -> Path:
    """Return the directory of a partition."""
    return PARTITION.place(config.store, identity.graph.name, identity.algorithm, asdict(identity))


@dataclass(frozen=True, kw_only=True)
class PartitionMeta:
    """What ``partition.json`` says."""

    identity: PartitionIdentity
    columns: tuple[tuple[int, int], ...] | None  #: see ``Parts``
    arrays: dict[str, ArrayEntry]  #: an entry for each array, ``owner`` and ``hops``
    figures: PartitionStats

    @property
    def content(self) -> str:
        """Hex digest, which differs for other parts and other graphs."""
        return digest(
            [
                asdict(self.identity.graph),
                [self.identity.num_parts, self.identity.num_hops, self.columns],
                [(name, entry.shape, entry.crc32) for name, entry in sorted(self.arrays.items())],
            ]
        )


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A partition that was read."""

    parts: Parts
    figures: PartitionStats
    path: Path  #: its directory
    content: str  #: hash of what it holds


def write_partition(
    folder: Path, identity: PartitionIdentity, parts: Parts, figures: PartitionStats
) -> None:
    """Write arrays and header into ``folder``, which exists."""
    found = {"owner": parts.owner, "hops": parts.hops}
    entries = {
        "algorithm": figures.algorithm,
        "num_parts": figures.num_parts,
        **asdict(figures),
        **asdict(identity),
        "columns": parts.columns,
        "arrays": {
            name: write_array(folder / f"{name}.npy", array)
            for name, array in found.items()
            if array is not None
        },
    }
    PARTITION.write_header(folder, entries)


@dataclass(frozen=True, kw_only=True)
class _Arrays:
    columns: tuple[tuple[int, int], ...] | None
    arrays: dict[str, ArrayEntry]


def read_meta(path: Path) -> PartitionMeta:
    """Read and check ``partition.json`` of the partition at ``path``.

    Raises:
        GraphError: it is missing, of another version, or an entry is not what it must be.
    """
    entries = PARTITION.read_header(path)
    figures = PARTITION.record(PartitionStats, entries, path)
    identity = PARTITION.record(PartitionIdentity, entries, path)
    arrays = PARTITION.record(_Arrays, entries, path)
    check_figures(path / PARTITION.header, figures, identity)
    return PartitionMeta(
        identity=identity, columns=arrays.columns, arrays=arrays.arrays, figures=figures
    )


def read_partition(path: Path, graph: Graph) -> Partition:
    """Read the partition of ``graph`` at ``path``.

    Raises:
        GraphError: it is no partition, one of another graph, or damaged.
    """
    meta = read_meta(path)
    check_graph(PARTITION, path, meta.identity.graph, graph)
    num_parts, names = meta.identity.num_parts, set(meta.arrays)
    forms: dict[str, Form] = {
        "owner": (np.dtype(np.int16), (graph.num_vertices,)),
        "hops": (np.dtype(np.uint8), (num_parts, graph.num_vertices)),
    }
    if names in (set(), {"owner"}):
        forms = {name: forms[name] for name in names}
    arrays = PARTITION.arrays(path, meta.arrays, forms, load=True)
    if ("owner" in arrays) != (meta.figures.cut is not None):
        raise PARTITION.refused(
            path, "owners without the cut between them, or a cut without owners"
        )
    parts = Parts(
        num_parts=num_parts,
        owner=arrays.get("owner"),
        hops=arrays.get("hops"),
        num_hops=(meta.identity.num_hops or 0) if "hops" in arrays else 0,
        columns=meta.columns,
        notes=meta.figures.notes,
    )
    problem = problem_of(parts, graph)
    if problem is not None:
        raise PARTITION.refused(path, problem)
    return Partition(parts=parts, figures=meta.figures, path=path, content=meta.content)


def check_graph(kind: ArtifactType, path: Path, found: GraphIdentity, graph: Graph) -> None:
    """Raise GraphError unless the artefact at ``path`` is of ``graph``, and not of another."""
    wanted = describe(graph)
    if found != wanted:
        old, new = (
            f"{shown(each.name)} ({each.num_vertices} vertices, content {shown(each.content)})"
            for each in (found, wanted)
        )
        raise GraphError(f"{path}: is a {kind.name} of {old}, not of {new}; {kind.otherwise(path)}")


def check_figures(file: Path, figures: PartitionStats, identity: PartitionIdentity) -> None:
    """Raise GraphError, naming ``file``, for figures that no partition of the identity can have."""
    num_parts, cut = identity.num_parts, figures.cut or ()
    sizes = (figures.num_parts, len(cut or figures.parts), *map(len, cut))
    if set(sizes) != {num_parts}:
        raise GraphError(f"{file}: parts and cut need an entry for each of {num_parts}")
    check_lines(file, (figures.algorithm, *figures.notes), _MAX_TEXT)
    check_limits(file, _limits(figures, identity.graph))


def _limits(
    figures: PartitionStats, graph: GraphIdentity
) -> Iterable[tuple[str, float | None, float]]:
    """Each figure with its name and the most that it can be."""
    for part in figures.parts:
        for name in ("num_vertices", "num_inner", "num_train", "num_edges"):
            total = "num_vertices" if name == "num_inner" else name
            yield name, getattr(part, name), getattr(graph, total)
    for row in figures.cut or ():
        yield "cut", min(row), graph.num_edges
        yield "cut", max(row), graph.num_edges
    yield "edge_cut_fraction", figures.edge_cut_fraction, 1
    for name in ("vertex_balance", "edge_balance", "train_balance", "replication_factor"):
        yield name, getattr(figures, name), figures.num_parts
    for name, took in (("", figures), ("predicted.", figures.predicted)):
        yield f"{name}seconds", took.seconds, 1e12
        yield f"{name}peak_rss_bytes", took.peak_rss_bytes, 1 << 62


def _hashed(graph: Graph, train: Any) -> str:
    found = hashlib.blake2b(digest_size=16)
    sizes = [graph.num_vertices, graph.num_edges, graph.num_features, len(train)]
    found.update(json.dumps(sizes).encode())
    arrays = (graph.indptr, graph.indices, train)
    with track(f"hashing {graph.name}", sum(map(len, arrays)), "entries") as advance:
        for array in arrays:
            for part in row_slices(len(array), 8):
                found.update(np.ascontiguousarray(array[part], np.int64).data)
                advance(part.stop - part.start)
    return found.hexdigest()
