"""Division of a graph's edges into train, validation and test edges, and those with messages."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.core import Array, BoolArray, ConfigError, GraphError, Int64Array, IntArray, track
from gnnscale.core.artifact import artifact_type as kind
from gnnscale.core.artifact import files
from gnnscale.core.artifact.header import digest
from gnnscale.core.artifact.npy import ArrayEntry, NpyWriter
from gnnscale.data.validation import check_ids, checked_weights
from gnnscale.graph import EdgeData, Graph, Origin
from gnnscale.graph import store_format as graph_store
from gnnscale.partition.store import GraphIdentity, check_graph, describe

_LOG = logging.getLogger(__name__)
LINKS = kind.ArtifactType(
    name="division of edges", header="links.json", version=2, folder="links", max_bytes=1 << 20
)
#: The parts of the split, in the order in which their shares are cut from the unit interval.
PARTS = ("test", "valid", "train")
#: The array of rows of features of the edges that send messages.
ROWS = "edge_rows"

_SLICE_EDGES = 1 << 22
#: Draws have 53 bits; those below the first twenty say which end of an undirected edge is first.
_ORIENTATION = float(1 << 20)
#: Share of the edges that may be at a vertex of both kinds of a bipartite graph.
_STRAY = 0.01
#: Stands for the edge before the first.
_NO_EDGE = (-1, -1)
#: Entry of the key of a division in ``$GNNSCALE_HOME/links``. Divisions by ordered pairs, which
#: earlier releases made of graphs with some mutual edges, lack it and are not read again.
_RULE = {"unit": "pair of vertices"}


@dataclass(frozen=True, kw_only=True)
class SplitIdentity:
    """What decides the split."""

    graph: GraphIdentity  #: whose edges are divided
    valid_fraction: float  #: share of the edges that are validated
    test_fraction: float  #: share of the edges that are tested
    seed: int  #: fixes which
    directed: bool = False  #: whether an edge and its reverse are divided independently


@dataclass(frozen=True, kw_only=True)
class EdgeSplit:
    """A split that was opened; its arrays are mapped."""

    #: the graph without the edges that are validated and tested: along all others messages are sent
    graph: Graph
    train: IntArray  #: ``[n, 2]`` sources and destinations of the edges that are trained
    valid: IntArray  #: ``[n, 2]`` of those that are validated
    test: IntArray  #: ``[n, 2]`` of those that are tested
    undirected: bool  #: whether every edge has its reverse; each pair is then predicted once
    directed: bool  #: whether the reverse of a predicted edge may send messages
    bipartite: bool  #: whether edges lead from one set of vertices to another alone

    @property
    def content(self) -> str:
        """Hash of the split."""
        assert self.graph.content is not None
        return self.graph.content


@dataclass(frozen=True, kw_only=True)
class _EdgeSplitHeader:
    """The entries of ``links.json`` beside its version."""

    identity: SplitIdentity
    undirected: bool
    bipartite: bool
    arrays: dict[str, ArrayEntry]


def identify_split(
    graph: Graph, *, valid_fraction: float, test_fraction: float, seed: int, directed: bool = False
) -> SplitIdentity:
    """Return the identity of a split of ``graph``: everything that decides it.

    Raises:
        GraphError: the graph is in memory, without a hash of its content.
    """
    if graph.content is None:
        raise GraphError(f"{graph.name}: in memory, edges of a store alone are divided")
    return SplitIdentity(
        graph=describe(graph),
        valid_fraction=valid_fraction,
        test_fraction=test_fraction,
        seed=seed,
        directed=directed,
    )


def make_split(graph: Graph, identity: SplitIdentity) -> Path:
    """Divide the edges of ``graph``, unless that is done already, and return the directory.

    The part of an edge is a pure function of its ends and the seed, and of their unordered pair if
    the edge has its reverse: an edge, its copies and its reverse are in one part, so that no
    message reveals a held-out edge. With ``identity.directed`` it is a function of the ordered pair
    in any case. Loops send messages and are not predicted. Memory is bounded for any number of
    edges.

    Raises:
        ConfigError: a part of the split would be empty.
        GraphError: the split cannot be written, and nothing is left; or another one is
            in its place.
    """
    path = LINKS.place(None, graph.name, "split", _entries(identity) | _RULE)
    with LINKS.making(path, fits=lambda: _check_fits(path, graph, identity)) as folder:
        if folder is not None:
            undirected = not identity.directed and is_undirected(graph)
            arrays, counts = _write(folder, graph, identity, undirected)
            _LOG.info(counts.describe(graph, directed=identity.directed))
            entries = {
                "identity": _entries(identity),
                "undirected": undirected,
                "bipartite": is_bipartite(graph),
                "arrays": arrays,
            }
            LINKS.write_header(folder, entries)
    return path


def _check_fits(path: Path, graph: Graph, identity: SplitIdentity) -> None:
    found = LINKS.record(_EdgeSplitHeader, LINKS.read_header(path), path).identity
    check_graph(LINKS, path, found.graph, graph)
    LINKS.check_same(path, asdict(identity), asdict(found))


def _entries(identity: SplitIdentity) -> dict[str, Any]:
    """Return the stored entries of ``identity``: ``directed`` is stored if it is true."""
    entries = asdict(identity)
    if not identity.directed:
        del entries["directed"]
    return entries


def _content(header: _EdgeSplitHeader) -> str:
    """Return the hash of a division: of its arrays and of what decided them.

    ``directed`` is left out: a division by ordered pairs has the hash that it had in releases that
    made no other division of such a graph, whose runs open with ``task.directed=true``.
    """
    entries = asdict(header)
    del entries["identity"]["directed"], entries["bipartite"]
    return digest(entries)


def open_split(path: Path, graph: Graph) -> EdgeSplit:
    """Map the split of ``graph`` at ``path``.

    Raises:
        GraphError: it is of another graph, or damaged.
    """
    header = LINKS.record(_EdgeSplitHeader, LINKS.read_header(path), path)
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
            content=_content(header),
            own_features=graph.origin.own_features,
        ),
    )
    return EdgeSplit(
        graph=divided,
        undirected=header.undirected,
        directed=header.identity.directed,
        bipartite=header.bipartite,
        **{part: arrays[part] for part in PARTS},
    )


@dataclass(frozen=True, kw_only=True)
class MutualCounts:
    """Counts of the mutual and repeated edges of a graph, loops left out."""

    edges: int = 0  #: edges, copies among them
    copies: int = 0  #: edges that repeat one with the same source and destination
    mutual: int = 0  #: distinct edges that have their reverse

    def plus(self, proper: BoolArray, once: BoolArray, mutual: BoolArray) -> "MutualCounts":
        """Return the counts with those of more edges ``[n]``.

        Args:
            proper: edges that are no loops.
            once: edges that are no copy of the one before.
            mutual: edges that have their reverse.
        """
        return MutualCounts(
            edges=self.edges + int(np.count_nonzero(proper)),
            copies=self.copies + int(np.count_nonzero(proper & ~once)),
            mutual=self.mutual + int(np.count_nonzero(proper & once & mutual)),
        )

    def describe(self, graph: Graph, *, directed: bool) -> str:
        """Return the line that says how mutual and repeated edges of ``graph`` are divided."""
        rule = "an edge, its reverse and its copies are in one part"
        if directed:
            rule = (
                "task.directed=true divides an edge and its reverse independently, and the "
                "reverse of a held-out edge may send messages"
            )
        mutual = self.mutual / max(self.edges - self.copies, 1)
        copies = self.copies / max(self.edges, 1)
        return (
            f"task=links: of {self.edges:,} edges of {graph.name} {copies:.1%} are copies, and "
            f"{mutual:.1%} of the others have their reverse; {rule}"
        )


def is_undirected(graph: Graph) -> bool:
    """Return whether every edge has its reverse, copies left out.

    Sums of hashes are compared, which agree by chance with a probability of about 2^-50.
    """
    forth = back = 0
    last = _NO_EDGE
    for src, dst, _ in _edges(graph, "looking for reverse edges"):
        once = _no_copies(src, dst, last)
        rising, falling = once & (src < dst), once & (src > dst)
        forth += _hashes(src[rising], dst[rising])
        back += _hashes(dst[falling], src[falling])
        last = src[-1], dst[-1]
    return (forth - back) % 2**64 == 0


def is_bipartite(graph: Graph) -> bool:
    """Return whether the vertices are two sets with all edges between them, and have a cycle.

    A graph whose sources are no destinations is bipartite, of any size, and also if up to 1 % of
    its edges are at a vertex that is both. Others of more than 4 million edges are taken for not
    bipartite, and so are forests, whose sets mean nothing. Loops play no part.
    """
    sends, receives = np.zeros((2, graph.num_vertices), np.bool_)
    for src, dst, _ in _edges(graph, "looking for two kinds of vertices"):
        proper = src != dst
        sends[src[proper]] = receives[dst[proper]] = True
    if _leads_one_way(graph, sends & receives):
        return True
    return graph.num_edges <= _SLICE_EDGES and _two_colorable(graph)


def _leads_one_way(graph: Graph, both: BoolArray) -> bool:
    """Return whether all but 1 % of the edges have no end that is both source and destination."""
    max_stray = _STRAY * graph.num_edges
    if np.count_nonzero(both) > max_stray:  # each is at two edges or more, which have two ends
        return False
    stray = 0
    for src, dst, _ in _edges(graph, "looking for edges between vertices of a kind"):
        stray += int(np.count_nonzero((src != dst) & (both[src] | both[dst])))
    return stray <= max_stray


def _two_colorable(graph: Graph) -> bool:
    """Return whether the bipartite double cover has two copies of each component, with a cycle."""
    num = graph.num_vertices
    src = np.asarray(graph.indices, np.int64)
    dst = np.repeat(np.arange(num), np.diff(graph.indptr))
    src, dst = src[src != dst], dst[src != dst]
    components = _num_components(src, dst, num)
    if _num_components(src, dst + num, 2 * num, mirrored=num) != 2 * components:
        return False
    pairs = np.unique(np.minimum(src, dst) * num + np.maximum(src, dst))
    return len(pairs) > num - components


def _num_components(
    src: Int64Array, dst: Int64Array, num_vertices: int, *, mirrored: int | None = None
) -> int:
    """Return the number of weakly connected components, edges of the cover in both layers."""
    from scipy import sparse  # takes a while, and workers need none of it
    from scipy.sparse import csgraph

    if mirrored is not None:
        src, dst = np.concatenate([src, src + mirrored]), np.concatenate([dst, dst - mirrored])
    ones = np.ones(len(src), np.bool_)
    matrix = sparse.coo_array((ones, (src, dst)), shape=(num_vertices, num_vertices))
    number, _ = csgraph.connected_components(matrix, directed=False)
    return int(number)


def has_reverse(graph: Graph, src: Int64Array, dst: Int64Array) -> BoolArray:
    """Return for ``[n]`` edges from ``src`` to ``dst`` whether ``graph`` has the reverse.

    Lists of in-neighbors are sorted, so that a binary search in the list of ``src`` finds ``dst``.
    """
    first = graph.indptr[src].astype(np.int64)
    end = graph.indptr[src + 1].astype(np.int64)
    last = end.copy()
    searching = np.flatnonzero(first < last)
    while len(searching):
        middle = (first[searching] + last[searching]) // 2
        below = graph.indices[middle] < dst[searching]
        first[searching[below]] = middle[below] + 1
        last[searching[~below]] = middle[~below]
        searching = searching[first[searching] < last[searching]]
    found: BoolArray = first < end
    inside = np.flatnonzero(found)
    found[inside] = graph.indices[first[inside]] == dst[inside]
    return found


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


def _no_copies(src: Int64Array, dst: Int64Array, last: tuple[int, int]) -> BoolArray:
    """Return which of ``[n]`` edges are no copy of the one before, ``last`` before the first.

    Copies of an edge follow each other, since adjacency lists are sorted.
    """
    once: BoolArray = np.empty(len(src), np.bool_)
    once[0] = (src[0], dst[0]) != last
    once[1:] = (src[1:] != src[:-1]) | (dst[1:] != dst[:-1])
    return once


def _write(
    folder: Path, graph: Graph, identity: SplitIdentity, undirected: bool
) -> tuple[dict[str, ArrayEntry], MutualCounts]:
    """Write all arrays; return their entries, and the counts of mutual and repeated edges."""
    what = f"dividing the edges of {graph.name}"
    edge_bytes = 3 * graph.indices.itemsize + 4 * (graph.edge_weights is not None)
    edge_bytes += 4 * (graph.edge_rows is not None)
    files.check_space(what, folder, disk=edge_bytes * graph.num_edges + 8 * graph.num_vertices)
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(NpyWriter(folder / f"{name}.npy", dtype, shape))
            for name, (dtype, shape) in _dtypes(graph).items()
        }
        counts = _fill(writers, graph, identity, undirected, what)
        arrays = {name: writer.close() for name, writer in writers.items()}
    for part in PARTS:
        if not arrays[part].shape[0]:
            raise ConfigError(
                f"task: none of the {graph.num_edges} edges of {graph.name} is left for "
                f"{part}; task.valid_fraction={identity.valid_fraction}, "
                f"task.test_fraction={identity.test_fraction}"
            )
    return arrays, counts


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
) -> MutualCounts:
    """Write every edge to its part; return the counts of mutual and repeated edges."""
    indptr = np.zeros(graph.num_vertices + 1, np.int64)
    bounds = np.cumsum([identity.test_fraction, identity.valid_fraction])
    last, counts = _NO_EDGE, MutualCounts()
    for src, dst, place in _edges(graph, what):
        loop = src == dst
        mutual = np.ones_like(loop) if undirected else has_reverse(graph, src, dst)
        unique = _no_copies(src, dst, last)
        last = src[-1], dst[-1]
        counts = counts.plus(~loop, unique, mutual)
        paired = mutual & (not identity.directed)
        low = np.where(paired, np.minimum(src, dst), src)
        high = np.where(paired, np.maximum(src, dst), dst)
        draws = ops.draw_of_pairs(low, high, seed=identity.seed)
        part = np.searchsorted(bounds, draws, side="right")
        sends = loop | (part == PARTS.index("train"))
        writers["indices"].append(graph.indices[place][sends])
        if graph.edge_weights is not None:
            writers["edge_weights"].append(graph.edge_weights[place][sends])
        if graph.edge_rows is not None:
            writers[ROWS].append(graph.edge_rows[place][sends])
        ops.count_in_degrees(dst[sends], indptr[1:])
        # Each edge is predicted once; of an edge and its reverse one, if all have a reverse.
        once = unique & (src < dst if undirected else ~loop)
        pairs = np.stack([src, dst], axis=1)
        turned = undirected & (np.floor(draws * _ORIENTATION) % 2 == 1)
        pairs[turned] = pairs[turned][:, ::-1]
        for number, name in enumerate(PARTS):
            found = pairs[once & (part == number)]
            writers[name].append(found.astype(graph.indices.dtype))
    writers["indptr"].append(np.cumsum(indptr))
    return counts


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
