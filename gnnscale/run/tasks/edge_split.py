"""Split of a graph's edges for link prediction: training, validation, test and message edges."""

import logging
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Array, ConfigError, GraphError, IntArray, brief
from gnnscale.core.artifact import ArrayEntry, NpyWriter, artifact_type, digest, files
from gnnscale.data.validation import check_ids, check_weights
from gnnscale.graph import EdgeData, Graph, GraphSchema, Origin, Relation, store_arrays
from gnnscale.graph.store_format import EDGE_TIMES
from gnnscale.graph.timed_store import check_times
from gnnscale.graph.typed_edge_store import check_row_numbers
from gnnscale.partition.store import check_graph, describe
from gnnscale.run.tasks import edge_structure as structure
from gnnscale.run.tasks.split_rule import PARTS, ROWS, SplitIdentity, SplitRule, write_edges

_LOG = logging.getLogger(__name__)
LINKS = artifact_type.ArtifactType(
    name="division of edges", header="links.json", version=2, folder="links", max_bytes=1 << 20
)
#: Entry of the key of a split in ``$GNNSCALE_HOME/links``. Earlier releases split graphs with some
#: mutual edges by ordered pairs, without this entry: such splits are not read again.
_RULE = {"unit": "pair of vertices"}


@dataclass(frozen=True, kw_only=True)
class EdgeSplit:
    """Split of a graph's edges into training, validation and test edges, mapped from disk.

    In a graph with types, the edges of one edge type are split.
    """

    graph: Graph  #: graph of the message edges: all edges but validation and test edges
    train: IntArray  #: ``[n, 2]`` sources and destinations of training edges
    valid: IntArray  #: ``[n, 2]`` sources and destinations of validation edges
    test: IntArray  #: ``[n, 2]`` sources and destinations of test edges
    undirected: bool  #: whether every edge has its reverse; each pair is then predicted once
    directed: bool  #: whether the reverse of a predicted edge may send messages
    bipartite: bool  #: whether all edges of a graph without types join two disjoint sets
    #: the edge type whose edges are split, and its reverses
    relation: Relation = field(default_factory=Relation)

    @property
    def content(self) -> str:
        """Hash of the split, which is the content hash of its graph of message edges."""
        assert self.graph.content is not None
        return self.graph.content


@dataclass(frozen=True, kw_only=True)
class _EdgeSplitHeader:
    """Entries of ``links.json`` in addition to its version."""

    identity: SplitIdentity
    undirected: bool
    bipartite: bool
    arrays: dict[str, ArrayEntry]
    #: names of the edge types that are the reverse of ``identity.edge_type``
    reverses: list[str] = field(default_factory=list)


def identify_split(
    graph: Graph,
    *,
    valid_fraction: float,
    test_fraction: float,
    seed: int,
    directed: bool = False,
    edge_type: str | None = None,
) -> SplitIdentity:
    """Return the identity of a split of ``graph``; GraphError: it is in memory only."""
    if graph.content is None:
        raise GraphError(f"{graph.name}: expected a stored graph for task=links, got one in memory")
    return SplitIdentity(
        graph=describe(graph),
        valid_fraction=valid_fraction,
        test_fraction=test_fraction,
        seed=seed,
        directed=directed,
        edge_type=edge_type,
    )


def make_split(graph: Graph, identity: SplitIdentity) -> Path:
    """Split the edges of ``graph`` unless the split exists; return its directory.

    The part of an edge (training, validation, test) is a pure function of the seed and its ordered
    pair of ends, or of its unordered pair if the reverse edge exists. An edge, its copies and its
    reverse are then in one part, so that no message reveals a held-out edge. With
    ``identity.directed`` the ordered pair always decides. Loops send messages and are not
    predicted. In a graph with types, edges of ``identity.edge_type`` are split, and the edge types
    that are its reverse with them; all other edges send messages. With times, edges between two
    vertices are copies at any times, and predicted once. Memory is bounded for any number of edges;
    with times it is the size of ``indices`` and a byte for each edge. ConfigError if a part would
    be empty.
    """
    path = LINKS.directory(None, graph.name, "split", _entries(identity) | _RULE)
    with LINKS.making(path, fits=lambda: _check_fits(path, graph, identity)) as folder:
        if folder is not None:
            rule = SplitRule.of(graph, identity)
            arrays, counts = _write(folder, rule)
            directed = identity.directed and graph.schema.joins_one_type(rule.relation.edge_type)
            _LOG.info(counts.describe(rule.edges, directed=directed))
            entries = {
                "identity": _entries(identity),
                "undirected": rule.undirected,
                "bipartite": graph.types is None and structure.is_bipartite(graph),
                "arrays": arrays,
            }
            if rule.relation.reverses:
                edge_types = graph.schema.edge_types
                entries["reverses"] = [str(edge_types[n]) for n in rule.relation.reverses]
            LINKS.write_header(folder, entries)
    return path


def _check_fits(path: Path, graph: Graph, identity: SplitIdentity) -> None:
    """Raise an error if the split at ``path`` is of another graph or has other options."""
    stored = LINKS.record(_EdgeSplitHeader, LINKS.read_header(path), path).identity
    check_graph(LINKS, path, stored.graph, graph)
    LINKS.check_same(path, asdict(identity), asdict(stored))


def _entries(identity: SplitIdentity) -> dict[str, Any]:
    """Return the stored entries of ``identity``: ``directed`` and ``edge_type`` only if set."""
    entries = asdict(identity)
    for name in ("directed", "edge_type"):
        if not entries[name]:
            del entries[name]
    return entries


def _content(header: _EdgeSplitHeader) -> str:
    """Return a hash of the header without ``directed``, ``bipartite``: equal for equal arrays."""
    entries = asdict(header)
    del entries["identity"]["directed"], entries["bipartite"]
    if header.identity.edge_type is None:
        del entries["identity"]["edge_type"], entries["reverses"]
    return digest(entries)


def open_split(path: Path, graph: Graph) -> EdgeSplit:
    """Open the edge split of ``graph`` in ``path``; GraphError if damaged or of another graph."""
    header = LINKS.record(_EdgeSplitHeader, LINKS.read_header(path), path)
    check_graph(LINKS, path, header.identity.graph, graph)
    forms: dict[str, artifact_type.Form] = {
        name: (dtype, (None, *row_shape)) for name, (dtype, row_shape) in _dtypes(graph).items()
    }
    if ROWS in header.arrays:  # also if the graph is opened without edge features
        forms[ROWS] = (np.dtype(np.uint32), (None,))
    arrays = LINKS.arrays(path, header.arrays, forms)
    try:
        relation = _stored_relation(path, header, graph)
        _check_arrays(path, arrays, graph)
        if graph.types is not None:
            _check_types(path, arrays, graph.types, relation)
    except GraphError as error:
        raise LINKS.error_with_hint(path, error) from None
    divided = replace(
        graph,
        indptr=arrays["indptr"],
        indices=arrays["indices"],
        edges=EdgeData(
            weights=arrays.get("edge_weights"),
            rows=arrays.get(ROWS) if graph.num_edge_features else None,
            features=graph.edge_features,
            by_type=graph.edges.by_type,
        ),
        times=graph.times and replace(graph.times, edges=arrays[EDGE_TIMES]),
        metric="mrr",
        origin=Origin(
            path=graph.path,
            content=_content(header),
            has_stored_features=graph.origin.has_stored_features,
        ),
    )
    return EdgeSplit(
        graph=divided,
        undirected=header.undirected,
        directed=header.identity.directed,
        bipartite=header.bipartite,
        relation=relation,
        **{part: arrays[part] for part in PARTS},
    )


def _stored_relation(path: Path, header: _EdgeSplitHeader, graph: Graph) -> Relation:
    """Return the edge types in ``header``; GraphError: ``graph`` has no such type."""
    if graph.types is None and header.identity.edge_type is None and not header.reverses:
        return Relation()
    names = [str(edges) for edges in graph.schema.edge_types]
    stored = [header.identity.edge_type, *header.reverses]
    for name in stored:
        if graph.types is None or name not in names:
            raise GraphError(
                f"{path / LINKS.header}: {brief(name)} is no edge type of {graph.name}"
            )
    edge_type, *reverses = (names.index(str(name)) for name in stored)
    return Relation(edge_type, tuple(reverses))


def _write(folder: Path, rule: SplitRule) -> tuple[dict[str, ArrayEntry], structure.MutualCounts]:
    """Write an edge split; return array entries and edge counts; ConfigError: a part is empty."""
    graph, identity = rule.graph, rule.identity
    action = f"dividing the edges of {graph.name}"
    edge_bytes = 3 * graph.indices.itemsize + 4 * (graph.edge_weights is not None)
    edge_bytes += 4 * (graph.edge_rows is not None) + 8 * (graph.times is not None)
    files.check_space(action, folder, disk=edge_bytes * graph.num_edges + 8 * len(graph.indptr))
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(NpyWriter(folder / f"{name}.npy", dtype, shape))
            for name, (dtype, shape) in _dtypes(graph).items()
        }
        counts = write_edges(writers, rule, action)
        arrays = {name: writer.close() for name, writer in writers.items()}
    for part in PARTS:
        if not arrays[part].shape[0]:
            raise ConfigError(
                f"task.valid_fraction={identity.valid_fraction}, task.test_fraction="
                f"{identity.test_fraction}: expected an edge in each part, got no {part} edge of "
                f"{counts.edges if graph.types else graph.num_edges} edges of {rule.edges}"
            )
    return arrays, counts


def _dtypes(graph: Graph) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """Return the dtype of each array of a split, and the shape of one of its entries."""
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
    if graph.times is not None:
        arrays[EDGE_TIMES] = (np.dtype(np.int64), ())
    return arrays


def _check_arrays(path: Path, arrays: dict[str, Array], graph: Graph) -> None:
    """Raise GraphError unless all entries of ``arrays``, in the split ``path``, fit ``graph``."""
    indptr, indices = arrays["indptr"], arrays["indices"]
    if len(indptr) != len(graph.indptr):
        raise GraphError(
            f"{path / 'indptr.npy'}: expected {len(graph.indptr)} offsets, got {len(indptr)}"
        )
    store_arrays.check_offsets(path / "indptr.npy", indptr, len(indices))
    for name in ("indices", *PARTS):
        file, edges = path / f"{name}.npy", arrays[name]
        if len(edges) > graph.num_edges or (name in PARTS and not len(edges)):
            raise GraphError(f"{file}: expected at most {graph.num_edges} edges, got {len(edges)}")
        check_ids(edges.reshape(-1), graph.num_vertices, file)
    for name, unit in (("edge_weights", "weights"), (ROWS, "rows"), (EDGE_TIMES, "times")):
        if name in arrays and len(arrays[name]) != len(indices):
            size = len(arrays[name])
            raise GraphError(f"{path / name}.npy: expected {len(indices)} {unit}, got {size}")
    if EDGE_TIMES in arrays:
        check_times(path, arrays, graph.schema)
    weights, rows = arrays.get("edge_weights"), arrays.get(ROWS)
    # ``not`` refuses NaN too. The minimum and maximum allocate no array.
    if weights is not None and len(weights) and not (weights.min() >= 0 and weights.max() < np.inf):
        check_weights(weights, len(indices), path / "edge_weights.npy")
    features, by_type = graph.edge_features, graph.edges.by_type
    if by_type is not None:
        check_row_numbers(path / f"{ROWS}.npy", by_type, arrays, graph.schema)
    if features is not None and rows is not None and len(rows) and rows.max() >= len(features):
        file = path / f"{ROWS}.npy"
        raise GraphError(f"{file}: expected rows below {len(features)}, got row {rows.max()}")


def _check_types(
    path: Path, arrays: dict[str, Array], schema: GraphSchema, relation: Relation
) -> None:
    """Raise GraphError unless the ends of predicted edges are of the types of their edge type."""
    ends = [
        schema.vertices(int(types[relation.edge_type]))
        for types in (schema.sources, schema.destinations)
    ]
    for name in PARTS:
        for vertices, ids in zip(ends, arrays[name].T, strict=True):
            if ids.min() < vertices.start or ids.max() >= vertices.stop:
                raise GraphError(
                    f"{path / name}.npy: expected edges of type "
                    f"{schema.edge_types[relation.edge_type]}, got other ends"
                )
