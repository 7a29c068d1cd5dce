"""Which edges of a graph are trained, validated and tested, and which send messages."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.artifact import files, graph_store, kind
from gnnscale.artifact.arrays import ArrayEntry, NpyWriter
from gnnscale.artifact.header import digest
from gnnscale.core import Array, ConfigError, GraphError, Int64Array, IntArray, track
from gnnscale.dataset.checks import check_ids, checked_weights
from gnnscale.graph import EdgeData, Graph, Origin
from gnnscale.partition.store import GraphIdentity, check_graph, describe

LINKS = kind.Kind(
    name="division of edges", header="links.json", version=2, folder="links", max_bytes=1 << 20
)
#: The parts of the split, in the order in which their shares are cut from the unit interval.
PARTS = ("test", "valid", "train")
#: The array of rows of features of the edges that send messages.
ROWS = "edge_rows"

_SLICE_EDGES = 1 << 22
#: Draws have 53 bits; those below the first twenty say which end of an undirected edge is first.
_ORIENTATION = float(1 << 20)


@dataclass(frozen=True, kw_only=True)
class SplitIdentity:
    """What decides the split."""

    graph: GraphIdentity  #: whose edges are divided
    valid_fraction: float  #: share of the edges that are validated
    test_fraction: float  #: share of the edges that are tested
    seed: int  #: fixes which


@dataclass(frozen=True, kw_only=True)
class EdgeSplit:
    """A split that was opened; its arrays are mapped."""

    #: the graph without the edges that are validated and tested: along all others messages are sent
    graph: Graph
    train: IntArray  #: ``[n, 2]`` sources and destinations of the edges that are trained
    valid: IntArray  #: ``[n, 2]`` of those that are validated
    test: IntArray  #: ``[n, 2]`` of those that are tested
    undirected: bool  #: whether every edge has its reverse; each pair is then predicted once

    @property
    def content(self) -> str:
        """Hash of the split."""
        assert self.graph.content is not None
        return self.graph.content


@dataclass(frozen=True, kw_only=True)
class _Header:
    """The entries of ``links.json`` beside its version."""

    identity: SplitIdentity
    undirected: bool
    arrays: dict[str, ArrayEntry]


def identify_split(
    graph: Graph, *, valid_fraction: float, test_fraction: float, seed: int
) -> SplitIdentity:
    """Return what decides a split of ``graph``.

    Raises:
        GraphError: the graph is in memory, without a hash of its content.
    """
    if graph.content is None:
        raise GraphError(f"{graph.name}: in memory, edges of a store alone are divided")
    return SplitIdentity(
        graph=describe(graph), valid_fraction=valid_fraction, test_fraction=test_fraction, seed=seed
    )


def make_split(graph: Graph, identity: SplitIdentity) -> Path:
    """Divide the edges of ``graph``, unless that is done already, and return the directory.

    The part that an edge belongs to is a pure function of its ends and the seed; an edge and its
    reverse belong to the same if every edge has one. Loops send messages, and are not predicted.
    Memory is bounded, whatever the number of edges.

    Raises:
        ConfigError: a part of the split would be empty.
        GraphError: the split cannot be written, and nothing is left; or another one is
            in its place.
    """
    path = LINKS.place(None, graph.name, "split", asdict(identity))
    with LINKS.making(path, fits=lambda: _check_fits(path, graph, identity)) as folder:
        if folder is not None:
            undirected = is_undirected(graph)
            arrays = _write(folder, graph, identity, undirected)
            entries = {"identity": asdict(identity), "undirected": undirected, "arrays": arrays}
            LINKS.write_header(folder, entries)
    return path


def _check_fits(path: Path, graph: Graph, identity: SplitIdentity) -> None:
    found = LINKS.record(_Header, LINKS.read_header(path), path).identity
    check_graph(LINKS, path, found.graph, graph)
    LINKS.check_same(path, asdict(identity), asdict(found))


def open_split(path: Path, graph: Graph) -> EdgeSplit:
    """Map the split of ``graph`` at ``path``.

    Raises:
        GraphError: it is of another graph, or damaged.
    """
    header = LINKS.record(_Header, LINKS.read_header(path), path)
    check_graph(LINKS, path, header.identity.graph, graph)
    forms: dict[str, kind.Form] = {
        name: (dtype, (None, *row_shape)) for name, (dtype, row_shape) in _dtypes(graph).items()
    }
    if ROWS in header.arrays:  # whether or not the graph is opened with features of edges
        forms[ROWS] = (np.dtype(np.uint32), (None,))
    arrays = LINKS.arrays(path, header.arrays, forms)
    try:
        _check_arrays(path, arrays, graph)
    except GraphError as error:
        raise LINKS.worded(path, error) from None
    divided = replace(
        graph,
        indptr=arrays["indptr"],
        indices=arrays["indices"],
        edges=EdgeData(
            weights=arrays.get("edge_weights"),
            rows=arrays.get(ROWS) if graph.edge_features is not None else None,
            features=graph.edge_features,
        ),
        metric="mrr",
        origin=Origin(
            path=graph.path,
            content=digest(asdict(header)),
            own_features=graph.origin.own_features,
        ),
    )
    return EdgeSplit(
        graph=divided, undirected=header.undirected, **{part: arrays[part] for part in PARTS}
    )


def is_undirected(graph: Graph) -> bool:
    """Return whether every edge has its reverse, as often.

    Sums of hashes are compared, which agree by chance with a probability of about 2^-50.
    """
    forth = back = 0
    for src, dst, _ in _edges(graph, "looking for reverse edges"):
        rising, falling = src < dst, src > dst
        forth += _hashes(src[rising], dst[rising])
        back += _hashes(dst[falling], src[falling])
    return (forth - back) % 2**64 == 0


def _hashes(low: Int64Array, high: Int64Array) -> int:
    """Return the sum of a hash of each pair, modulo 2^64."""
    return int(ops.draw_of_pairs(low, high, seed=0).view(np.uint64).sum(dtype=np.uint64))


def _edges(graph: Graph, what: str) -> Iterator[tuple[Int64Array, Int64Array, slice]]:
    """Yield sources and destinations of all edges, and their places in ``indices``, in slices."""
    indptr = np.asarray(graph.indptr)
    first = 0
    with track(what, total=graph.num_edges, unit="edges") as advance:
        while first < graph.num_edges:
            last = min(first + _SLICE_EDGES, graph.num_edges)
            low = int(np.searchsorted(indptr, first, side="right")) - 1
            high = int(np.searchsorted(indptr, last, side="left"))
            inside = np.clip(indptr[low : high + 1], first, last)
            dst = np.repeat(np.arange(low, high, dtype=np.int64), np.diff(inside))
            yield graph.indices[first:last].astype(np.int64), dst, slice(first, last)
            advance(last - first)
            first = last


def _write(
    folder: Path, graph: Graph, identity: SplitIdentity, undirected: bool
) -> dict[str, ArrayEntry]:
    """Write all arrays, and return their entries."""
    what = f"dividing the edges of {graph.name}"
    edge_bytes = 3 * graph.indices.itemsize + 4 * (graph.edge_weights is not None)
    edge_bytes += 4 * (graph.edge_rows is not None)
    files.check_space(what, folder, disk=edge_bytes * graph.num_edges + 8 * graph.num_vertices)
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(NpyWriter(folder / f"{name}.npy", dtype, shape))
            for name, (dtype, shape) in _dtypes(graph).items()
        }
        _fill(writers, graph, identity, undirected, what)
        arrays = {name: writer.close() for name, writer in writers.items()}
    for part in PARTS:
        if not arrays[part].shape[0]:
            raise ConfigError(
                f"task: none of the {graph.num_edges} edges of {graph.name} is left for "
                f"{part}; task.valid_fraction={identity.valid_fraction}, "
                f"task.test_fraction={identity.test_fraction}"
            )
    return arrays


def _dtypes(graph: Graph) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """Return element type and shape of a row of each array of a split."""
    ids = graph.indices.dtype
    arrays: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
        "indptr": (np.dtype(np.int64), ()),
        "indices": (ids, ()),
        **dict.fromkeys(PARTS, (ids, (2,))),
    }
    if graph.edge_weights is not None:
        arrays["edge_weights"] = (np.dtype(np.float32), ())
    if graph.edge_rows is not None:
        arrays[ROWS] = (np.dtype(np.uint32), ())
    return arrays


def _fill(
    writers: dict[str, NpyWriter],
    graph: Graph,
    identity: SplitIdentity,
    undirected: bool,
    what: str,
) -> None:
    """Write every edge where it belongs."""
    indptr = np.zeros(graph.num_vertices + 1, np.int64)
    bounds = np.cumsum([identity.test_fraction, identity.valid_fraction])
    for src, dst, place in _edges(graph, what):
        loop = src == dst
        low, high = (np.minimum(src, dst), np.maximum(src, dst)) if undirected else (src, dst)
        draws = ops.draw_of_pairs(low, high, seed=identity.seed)
        part = np.searchsorted(bounds, draws, side="right")
        sends = loop | (part == PARTS.index("train"))
        writers["indices"].append(graph.indices[place][sends])
        if graph.edge_weights is not None:
            writers["edge_weights"].append(graph.edge_weights[place][sends])
        if graph.edge_rows is not None:
            writers[ROWS].append(graph.edge_rows[place][sends])
        ops.count_in_degrees(dst[sends], indptr[1:])
        # A pair once, and an edge that is there several times once: lists are sorted.
        once = ~loop & (src < dst) if undirected else ~loop
        once[1:] &= (src[1:] != src[:-1]) | (dst[1:] != dst[:-1])
        pairs = np.stack([src, dst], axis=1)
        turned = undirected & (np.floor(draws * _ORIENTATION) % 2 == 1)
        pairs[turned] = pairs[turned][:, ::-1]
        for number, name in enumerate(PARTS):
            found = pairs[once & (part == number)]
            writers[name].append(found.astype(graph.indices.dtype))
    writers["indptr"].append(np.cumsum(indptr))


def _check_arrays(path: Path, arrays: dict[str, Array], graph: Graph) -> None:
    """Refuse lists and edges that are none of the graph's; all of them are read."""
    indptr, indices = arrays["indptr"], arrays["indices"]
    if len(indptr) != graph.num_vertices + 1:
        raise GraphError(
            f"{path / 'indptr.npy'}: {len(indptr)} offsets for {graph.num_vertices} vertices"
        )
    graph_store.check_offsets(path / "indptr.npy", indptr, len(indices))
    for name in ("indices", *PARTS):
        file, edges = path / f"{name}.npy", arrays[name]
        if len(edges) > graph.num_edges or (name in PARTS and not len(edges)):
            raise GraphError(f"{file}: {len(edges)} edges, the graph has {graph.num_edges}")
        check_ids(edges.reshape(-1), graph.num_vertices, file)
    weights = arrays.get("edge_weights")
    if weights is not None:
        file = path / "edge_weights.npy"
        if len(weights) != len(indices):
            raise GraphError(f"{file}: {len(weights)} weights for {len(indices)} edges")
        # NaN is neither of them, hence the test for what is good. No array is made for it.
        if len(weights) and not (weights.min() >= 0 and weights.max() < np.inf):
            checked_weights(weights, len(indices), file)
    rows = arrays.get(ROWS)
    if rows is not None:
        file = path / f"{ROWS}.npy"
        if len(rows) != len(indices):
            raise GraphError(f"{file}: {len(rows)} rows for {len(indices)} edges")
        features = graph.edge_features
        if features is not None and len(rows) and rows.max() >= len(features):
            raise GraphError(f"{file}: row {rows.max()}, edges have {len(features)} rows")
