"""Split of a graph's edges by time for link prediction: edges send messages to later ones."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import ConfigError, GraphError, Int64Array, IntArray, brief
from gnnscale.core.artifact import ArrayEntry, artifact_type, digest
from gnnscale.core.artifact.npy import write_array
from gnnscale.data.time_split import parse_time
from gnnscale.data.validation import check_ids
from gnnscale.graph import NO_TIME, Graph, Origin, Relation, format_time
from gnnscale.ops import draw_of_pairs
from gnnscale.partition.store import GraphIdentity, check_graph, describe
from gnnscale.run.tasks import edge_structure as structure
from gnnscale.run.tasks.edge_split import LINKS, EdgeSplit

PARTS = ("train", "valid", "test")
#: Name of the array of a part's times.
_TIMES = "{}_times"


@dataclass(frozen=True, kw_only=True)
class TimedEdgeSplit(EdgeSplit):
    """Split of a graph's edges by time; the graph has all edges, of which earlier ones are used."""

    train_times: Int64Array  #: ``[n]`` times of the training edges
    valid_times: Int64Array  #: ``[n]`` times of the validation edges, none before a training edge
    test_times: Int64Array  #: ``[n]`` times of the test edges, none before a validation edge

    def times(self, part: str) -> Int64Array:
        """Return the times of the edges of ``part``, ``train``, ``valid`` or ``test``."""
        times: Int64Array = getattr(self, _TIMES.format(part))
        return times


@dataclass(frozen=True, kw_only=True)
class TimedSplitIdentity:
    """Options and graph that determine a split by time: two bounds, or else two fractions."""

    graph: GraphIdentity
    valid_from: int | None  #: first time of validation
    test_from: int | None  #: first time of the test
    valid_fraction: float | None  #: share of the edges, in the order of time, before the test's
    test_fraction: float | None  #: share of the latest edges
    edge_type: str | None  #: edge type whose edges are split; None: edges have no types


@dataclass(frozen=True, kw_only=True)
class _SplitHeader:
    """Entries of ``links.json`` in addition to its version."""

    identity: TimedSplitIdentity
    undirected: bool
    bipartite: bool
    arrays: dict[str, ArrayEntry]
    rule: str = field(default="time")


def check_times(graph: Graph) -> None:
    """Raise ConfigError unless ``graph`` has times, by which ``task.split=time`` splits edges."""
    if graph.times is None:
        raise ConfigError(
            f"task.split=time: expected a graph with times, got {graph.name} without; "
            "dataset.edge_time names a column of times"
        )


def identify_timed_split(
    graph: Graph,
    *,
    bounds: tuple[str | None, str | None],
    fractions: tuple[float, float],
    edge_type: str | None,
) -> TimedSplitIdentity:
    """Return the identity of a split of ``graph`` by time.

    ``bounds`` are first times of validation and test; both None: ``fractions`` decide. ConfigError:
    bounds are no times, or out of order. GraphError: the graph is in memory only.
    """
    check_times(graph)
    assert graph.times is not None
    if graph.content is None:
        raise GraphError(f"{graph.name}: expected a stored graph for task=links, got one in memory")
    of_bounds: tuple[int | None, int | None] = (None, None)
    of_fractions: tuple[float | None, float | None] = fractions
    if bounds != (None, None):
        unit = graph.times.unit
        valid = parse_time("task.valid_from", bounds[0], unit)
        test = parse_time("task.test_from", bounds[1], unit)
        if valid >= test:
            raise ConfigError(
                f"task.test_from={brief(bounds[1])}: expected a time after "
                f"task.valid_from={brief(bounds[0])}"
            )
        of_bounds, of_fractions = (valid, test), (None, None)
    return TimedSplitIdentity(
        graph=describe(graph),
        valid_from=of_bounds[0],
        test_from=of_bounds[1],
        valid_fraction=of_fractions[0],
        test_fraction=of_fractions[1],
        edge_type=edge_type,
    )


def make_timed_split(graph: Graph, identity: TimedSplitIdentity) -> Path:
    """Split the edges of ``graph`` by time unless the split exists; return its directory.

    An edge is predicted as of its time, once for each time between two vertices; edges of an
    undirected graph once for both directions. Loops are not predicted. Memory is about 60 bytes an
    edge. ConfigError: a part would be empty.
    """
    path = LINKS.directory(None, graph.name, "time", asdict(identity))
    with LINKS.making(path, fits=lambda: _check_fits(path, graph, identity)) as folder:
        if folder is not None:
            edge_type = _edge_type(graph, identity)
            undirected = structure.is_undirected(structure.by_source(graph), edge_type)
            ends, times = _predicted(graph, edge_type, undirected=undirected)
            parts = _parts(times, identity, graph)
            arrays = {}
            for name, is_of_part in zip(PARTS, parts, strict=True):
                times_name = _TIMES.format(name)
                arrays[name] = write_array(folder / f"{name}.npy", ends[is_of_part])
                arrays[times_name] = write_array(folder / f"{times_name}.npy", times[is_of_part])
            header = {
                "identity": asdict(identity),
                "undirected": undirected,
                "bipartite": graph.types is None and structure.is_bipartite(graph),
                "arrays": arrays,
                "rule": "time",
            }
            LINKS.write_header(folder, header)
    return path


def _check_fits(path: Path, graph: Graph, identity: TimedSplitIdentity) -> None:
    """Raise an error if the split at ``path`` is of another graph or has other options."""
    stored = LINKS.record(_SplitHeader, LINKS.read_header(path), path).identity
    check_graph(LINKS, path, stored.graph, graph)
    LINKS.check_same(path, asdict(identity), asdict(stored))


def _edge_type(graph: Graph, identity: TimedSplitIdentity) -> int:
    names = [str(edges) for edges in graph.schema.edge_types]
    return 0 if identity.edge_type is None else names.index(identity.edge_type)


def _predicted(graph: Graph, edge_type: int, *, undirected: bool) -> tuple[IntArray, Int64Array]:
    """Return the ends ``[n, 2]`` of edges of a type, copies of one time once, and their times."""
    assert graph.times is not None
    schema, last = graph.schema, (-1, -1, -1)
    all_ends, all_times = [], []
    for src, rows, part in structure.edge_slices(graph, f"dividing the edges of {graph.name}"):
        times = np.asarray(graph.times.edges[part])
        if graph.types is not None:
            is_of_type = schema.edge_type_of(rows) == edge_type
            src, rows, times = src[is_of_type], rows[is_of_type], times[is_of_type]
        if not len(src):
            continue
        dst = schema.vertex_of(rows).astype(np.int64)
        # Lists ascend by time, then by source: copies of one time follow each other.
        keys = np.stack([src, dst, times])
        once = np.ones(len(src), np.bool_)
        once[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
        once[0] = tuple(keys[:, 0].tolist()) != last
        last = tuple(keys[:, -1].tolist())
        once &= (src < dst) if undirected else (src != dst)
        all_ends.append(np.stack([src, dst], axis=1)[once].astype(graph.indices.dtype))
        all_times.append(times[once])
    ends = np.concatenate([np.empty((0, 2), graph.indices.dtype), *all_ends])
    if undirected:
        is_turned = draw_of_pairs(*ends.T.astype(np.int64), seed=0) < 0.5
        ends[is_turned] = ends[is_turned][:, ::-1]
    times = np.concatenate([np.empty(0, np.int64), *all_times])
    if (times == NO_TIME).any():
        raise ConfigError(
            f"task.split=time: expected edges to predict with times, got {graph.name}, whose "
            f"edges of {schema.edge_types[edge_type]} have none"
        )
    return ends, times


def _parts(times: Int64Array, identity: TimedSplitIdentity, graph: Graph) -> list[Any]:
    """Return which edges are in each part; ConfigError: one is empty."""
    valid, test = identity.valid_from, identity.test_from
    if valid is None or test is None:
        option = (
            f"task.valid_fraction={identity.valid_fraction}, task.test_fraction="
            f"{identity.test_fraction}"
        )
        valid, test = _bounds(times, identity)
    else:
        unit = graph.times.unit if graph.times else "s"
        option = (
            f"task.valid_from={format_time(valid, unit)}, task.test_from={format_time(test, unit)}"
        )
    part = (times >= valid).astype(np.int8) + (times >= test)
    counts = np.bincount(part, minlength=3).tolist()
    if not all(counts):
        raise ConfigError(
            f"{option}: expected edges of {graph.name} in each part, got {counts[0]} for train, "
            f"{counts[1]} for valid, {counts[2]} for test; those of one time are in one part"
        )
    return [part == number for number in range(3)]


def _bounds(times: Int64Array, identity: TimedSplitIdentity) -> tuple[int, int]:
    """Return the first times of validation and test by the shares of edges."""
    if not len(times):
        return 0, 0
    assert identity.valid_fraction is not None
    assert identity.test_fraction is not None
    ordered, held_out = np.sort(times), np.cumsum([identity.test_fraction, identity.valid_fraction])
    firsts = [min(int((1 - share) * len(ordered)), len(ordered) - 1) for share in held_out]
    return int(ordered[firsts[1]]), int(ordered[firsts[0]])


def open_timed_split(path: Path, graph: Graph) -> TimedEdgeSplit:
    """Open the split of ``graph`` in ``path``; GraphError if damaged or of another graph."""
    header = LINKS.record(_SplitHeader, LINKS.read_header(path), path)
    check_graph(LINKS, path, header.identity.graph, graph)
    forms: dict[str, artifact_type.Form] = {}
    for name in PARTS:
        forms[name] = (graph.indices.dtype, (None, 2))
        forms[_TIMES.format(name)] = (np.dtype(np.int64), (None,))
    arrays = LINKS.arrays(path, header.arrays, forms)
    try:
        for name in PARTS:
            edges, times = arrays[name], arrays[_TIMES.format(name)]
            if len(edges) != len(times) or not len(edges):
                raise GraphError(
                    f"{path / name}.npy: expected an edge or more for {len(times)} times, got "
                    f"{len(edges)}"
                )
            check_ids(edges.reshape(-1), graph.num_vertices, path / f"{name}.npy")
        if header.identity.edge_type not in (None, *map(str, graph.schema.edge_types)):
            raise GraphError(
                f"{path / LINKS.header}: {brief(header.identity.edge_type)} is no edge type of "
                f"{graph.name}"
            )
    except GraphError as error:
        raise LINKS.error_with_hint(path, error) from None
    origin = Origin(
        path=graph.path,
        content=digest(asdict(header)),
        has_stored_features=graph.origin.has_stored_features,
    )
    return TimedEdgeSplit(
        graph=replace(graph, metric="mrr", samples_by_time=True, origin=origin),
        undirected=header.undirected,
        directed=False,
        bipartite=header.bipartite,
        relation=Relation(_edge_type(graph, header.identity)),
        **arrays,
    )
