"""Stored partition: ``owner.npy`` and ``hops.npy``, and ``partition.json`` with the statistics."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from gnnscale.core import Array, GraphError, brief, track
from gnnscale.core.artifact import ArtifactType, Form, check_limits, check_lines, digest, plain
from gnnscale.core.artifact.npy import ArrayEntry, row_slices, write_array
from gnnscale.core.config.user_code import code_digest
from gnnscale.graph import Graph
from gnnscale.partition.base import MAX_PARTS, PartitionerConfig, Parts, problem_of
from gnnscale.partition.metrics import PartitionStats
from gnnscale.sampling.seed_order import labeled_vertices

PARTITION = ArtifactType(
    name="partition",
    header="partition.json",
    version=2,
    folder="partitions",
    option="partitioner.store",
    command="gnnscale partition",
    files=r"partition\.json|(owner|hops)\.npy|partition\.svg|\.partition\.svg\.tmp",
)
#: Largest length of a name or a note, in characters.
_MAX_TEXT = 500
#: Options without effect on the parts, or stored elsewhere.
_OTHER_OPTIONS = ("num_parts", "store")


@dataclass(frozen=True, kw_only=True)
class GraphIdentity:
    """Name, sizes and content hash that identify a partitioned graph."""

    name: str  #: name in reports
    num_vertices: int
    num_edges: int  #: directed edges
    num_train: int  #: training vertices with a label
    content: str  #: hash of the graph's content


@dataclass(frozen=True, kw_only=True)
class PartitionIdentity:
    """Inputs that determine a partition."""

    graph: GraphIdentity
    algorithm: str  #: name of the partitioner
    options: dict[str, Any]  #: options of the partitioner, plain values
    num_parts: Annotated[int, Meta(ge=1, le=MAX_PARTS)]  #: number of parts, K
    num_hops: int | None  #: layers of the model, L. None: the parts do not depend on them


def identify(
    config: PartitionerConfig, graph: Graph, *, num_parts: int, num_hops: int
) -> PartitionIdentity:
    """Return what determines a partition of ``graph`` by ``config``: graph, options, sizes."""
    names = (field.name for field in fields(config))
    options = {name: plain(getattr(config, name)) for name in names if name not in _OTHER_OPTIONS}
    code = code_digest(type(config))
    return PartitionIdentity(
        graph=describe(graph),
        algorithm=config.algorithm,
        options=options if code is None else {**options, "code": code},
        num_parts=num_parts,
        num_hops=num_hops if config.depends_on_hops else None,
    )


def describe(graph: Graph) -> GraphIdentity:
    """Return name, sizes and content hash of ``graph``.

    For a graph in memory, topology and training vertices are hashed here.
    """
    trains = graph.num_classes and len(graph.train_idx)
    train = labeled_vertices(graph, "train") if trains else graph.train_idx[:0]
    return GraphIdentity(
        name=graph.name,
        num_vertices=graph.num_vertices,
        num_edges=graph.num_edges,
        num_train=len(train),
        content=graph.content or _hash_content(graph, train),
    )


def partition_place(config: PartitionerConfig, identity: PartitionIdentity) -> Path:
    """Return the directory ``config.store``, or a default directory by ``identity``."""
    return PARTITION.directory(
        config.store, identity.graph.name, identity.algorithm, asdict(identity)
    )


@dataclass(frozen=True, kw_only=True)
class PartitionMeta:
    """Content of ``partition.json``."""

    identity: PartitionIdentity
    columns: tuple[tuple[int, int], ...] | None  #: see ``Parts``
    arrays: dict[str, ArrayEntry]  #: an entry for each array: ``owner`` and ``hops``
    figures: PartitionStats

    @property
    def content(self) -> str:
        """Hex digest of the graph and the parts."""
        return digest(
            [
                asdict(self.identity.graph),
                [self.identity.num_parts, self.identity.num_hops, self.columns],
                [(name, entry.shape, entry.crc32) for name, entry in sorted(self.arrays.items())],
            ]
        )


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Partition read from a directory."""

    parts: Parts
    figures: PartitionStats
    path: Path  #: directory of the partition
    content: str  #: hash of the partition's content


def write_partition(
    folder: Path, identity: PartitionIdentity, parts: Parts, figures: PartitionStats
) -> None:
    """Write arrays of ``parts``, ``identity`` and statistics into the existing ``folder``."""
    arrays = {"owner": parts.owner, "hops": parts.hops}
    entries = {
        "algorithm": figures.algorithm,
        "num_parts": figures.num_parts,
        **asdict(figures),
        **asdict(identity),
        "columns": parts.columns,
        "arrays": {
            name: write_array(folder / f"{name}.npy", array)
            for name, array in arrays.items()
            if array is not None
        },
    }
    PARTITION.write_header(folder, entries)


@dataclass(frozen=True, kw_only=True)
class _Arrays:
    columns: tuple[tuple[int, int], ...] | None
    arrays: dict[str, ArrayEntry]


def read_meta(path: Path) -> PartitionMeta:
    """Return ``partition.json`` of the partition at ``path``; GraphError: missing or damaged."""
    entries = PARTITION.read_header(path)
    figures = PARTITION.record(PartitionStats, entries, path)
    identity = PARTITION.record(PartitionIdentity, entries, path)
    arrays = PARTITION.record(_Arrays, entries, path)
    check_figures(path / PARTITION.header, figures, identity)
    return PartitionMeta(
        identity=identity, columns=arrays.columns, arrays=arrays.arrays, figures=figures
    )


def read_partition(path: Path, graph: Graph) -> Partition:
    """Return the partition at ``path``; GraphError: damaged, or of another graph than ``graph``."""
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


def check_graph(kind: ArtifactType, path: Path, stored: GraphIdentity, graph: Graph) -> None:
    """Raise GraphError unless ``stored``, of which the artifact at ``path`` was made, is ``graph``.

    ``kind`` names the artifact in the message.
    """
    expected = describe(graph)
    if stored != expected:
        old, new = (
            f"{brief(identity.name)} ({identity.num_vertices} vertices, content "
            f"{brief(identity.content)})"
            for identity in (stored, expected)
        )
        raise GraphError(f"{path}: is a {kind.name} of {old}, not of {new}; {kind.otherwise(path)}")


def check_figures(file: Path, figures: PartitionStats, identity: PartitionIdentity) -> None:
    """Raise GraphError, naming ``file``, if a partition's statistics are incomplete or too large.

    ``identity`` has the number of parts, each of which needs an entry, and the sizes of the graph,
    which limit those of a part.
    """
    num_parts, cut = identity.num_parts, figures.cut or ()
    sizes = (figures.num_parts, len(cut or figures.parts), *map(len, cut))
    if set(sizes) != {num_parts}:
        raise GraphError(f"{file}: parts and cut: expected an entry for each of {num_parts} parts")
    check_lines(file, (figures.algorithm, *figures.notes), _MAX_TEXT)
    check_limits(file, _limits(figures, identity.graph))


def _limits(
    figures: PartitionStats, graph: GraphIdentity
) -> Iterable[tuple[str, float | None, float]]:
    """Yield name, value and largest possible value of each statistic of a partition."""
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
    for prefix, cost in (("", figures), ("predicted.", figures.predicted)):
        yield f"{prefix}seconds", cost.seconds, 1e12
        yield f"{prefix}peak_rss_bytes", cost.peak_rss_bytes, 1 << 62


def _hash_content(graph: Graph, train: Any) -> str:
    digest_state = hashlib.blake2b(digest_size=16)
    sizes: list[Any] = [graph.num_vertices, graph.num_edges, graph.num_features, len(train)]
    if not graph.schema.is_homogeneous:
        sizes.append(asdict(graph.schema))
    digest_state.update(json.dumps(sizes).encode())
    arrays: tuple[Array, ...] = (graph.indptr, graph.indices, train)
    arrays += () if graph.times is None else (graph.times.edges,)
    with track(f"hashing {graph.name}", sum(map(len, arrays)), "entries") as advance:
        for array in arrays:
            for part in row_slices(len(array), 8):
                digest_state.update(np.ascontiguousarray(array[part], np.int64).data)
                advance(part.stop - part.start)
    return digest_state.hexdigest()
