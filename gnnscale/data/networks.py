"""Graphs in memory from networkx graphs and sparse matrices of SciPy."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gnnscale.core import Array, GraphError, Int64Array, brief, standard_arithmetic
from gnnscale.data import array_inputs
from gnnscale.data.interop import GraphInputs, make_graph
from gnnscale.data.split_input import SplitInput
from gnnscale.data.validation import PART_NAMES
from gnnscale.graph import Graph

_LOG = logging.getLogger(__name__)
#: Vertices named in an error.
_MAX_NAMED = 3


@standard_arithmetic()
def from_scipy(
    matrix: Any,
    features: Any = None,
    labels: Any = None,
    *,
    train_idx: Any = None,
    valid_idx: Any = None,
    test_idx: Any = None,
    split: str | Mapping[str, Any] | None = None,
    mask: int | None = None,
    metric: str | None = None,
    name: str = "graph",
    advises: bool = True,
) -> Graph:
    """Return a Graph of a sparse adjacency matrix of SciPy.

    Entry ``[i, j]`` is an edge from i to j, and its value the weight; if all are 1 or True, edges
    have no weights. Stored zeros are edges of weight 0.

    Args:
        matrix: sparse matrix or array ``[num_vertices, num_vertices]`` of any format.
        features: as for ``from_arrays``; None: vertices have no features.
        labels, train_idx, valid_idx, test_idx, split, mask, metric, name, advises: as for
            ``from_arrays``.

    Raises:
        GraphError: the matrix is not sparse or not square, or ``from_arrays`` refuses an array.
    """
    if not hasattr(matrix, "tocoo"):
        raise GraphError(
            f"{name}: expected a sparse matrix of SciPy, got {array_inputs.describe_graph(matrix)}"
        )
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise GraphError(f"{name}: expected a square matrix, got {list(matrix.shape)}")
    entries = matrix.tocoo()
    weights = entries.data.astype(np.uint8) if entries.data.dtype == bool else entries.data
    inputs = GraphInputs(
        edges=(entries.row, entries.col),
        features=features,
        labels=labels,
        num_vertices=matrix.shape[0],
        split=SplitInput.of_arguments((train_idx, valid_idx, test_idx), split, mask, name),
        edge_weights=None if (weights == 1).all() else weights,
    )
    return make_graph(inputs, name=name, metric=metric, advises=advises)


@standard_arithmetic()
def from_networkx(
    graph: Any,
    features: Sequence[str] | None = None,
    labels: str | None = None,
    *,
    weight: str | None = None,
    edge_features: Sequence[str] | None = None,
    split: str | Mapping[str, Any] | None = None,
    metric: str | None = None,
    name: str = "graph",
    advises: bool = True,
) -> Graph:
    """Return a Graph of a networkx graph, whose nodes keep their ids.

    Row i of each array is of the i-th node of ``graph.nodes``, and ``gnnscale.data.read_ids``
    returns the ids. Edges of an undirected graph send messages both ways. Attributes
    ``train_mask``, ``val_mask`` and ``test_mask`` of nodes are the split.

    Args:
        graph: any graph of networkx; edges that repeat are kept.
        features: attributes of nodes, each a number or a list of numbers. None: no features.
        labels: attribute of nodes with the label: a number, a list of numbers, or a text; the
            label is unknown where the attribute is missing.
        weight: attribute of edges with the weight, 1 where it is missing. None: no weights.
        edge_features: attributes of edges, each a number or a list of numbers.
        split, metric, name, advises: as for ``from_arrays``.

    Raises:
        GraphError: a feature is missing at a node or edge, which the message names; no node has
            the label, or no edge the weight; or ``from_arrays`` refuses the values.
    """
    if not array_inputs.is_instance_of(graph, "networkx", "Graph"):
        raise GraphError(
            f"{name}: expected a networkx graph, got {array_inputs.describe_graph(graph)}"
        )
    nodes = list(graph.nodes)
    rows = [graph.nodes[node] for node in nodes]
    ends, forward = _directed_edges(graph, nodes)
    edges = [attributes for _, _, attributes in graph.edges(data=True)]
    of_edges = ["-".join(map(str, edge[:2])) for edge in graph.edges()]
    edge_rows = _columns(edges, edge_features, of_edges, f"{name}: edge")
    if weight is not None and edges and not any(weight in edge for edge in edges):
        raise GraphError(f"{name}: edge attribute {weight!r}: missing at all edges")
    weights = None if weight is None else np.array([edge.get(weight, 1) for edge in edges])
    parts = _split_fields(rows, nodes, name)
    inputs = GraphInputs(
        edges=(ends[:, 0], ends[:, 1]),
        features=_columns(rows, features, nodes, f"{name}: node"),
        labels=None
        if labels is None
        else _values(rows, labels, nodes, f"{name}: node", are_labels=True),
        num_vertices=len(nodes),
        split=SplitInput.of_fields(parts, "attribute {}", name).chosen(split, None, name),
        edge_weights=None if weights is None else weights[forward],
        edge_features=None if edge_rows is None else edge_rows[forward],
        labels_name="from_networkx(labels=...)" if labels is None else f"attribute {labels!r}",
        ids=_ids(nodes, name),
    )
    return make_graph(inputs, name=name, metric=metric, advises=advises)


def _directed_edges(graph: Any, nodes: Sequence[Any]) -> tuple[Int64Array, Int64Array]:
    """Return both ends of each message ``[n, 2]``, and the number ``[n]`` of its edge.

    Edges of an undirected graph, but loops, send messages both ways.
    """
    number_of = {node: number for number, node in enumerate(nodes)}
    pairs = [(number_of[source], number_of[target]) for source, target in graph.edges()]
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    numbers = np.arange(len(ends))
    if graph.is_directed():
        return ends, numbers
    back = np.flatnonzero(ends[:, 0] != ends[:, 1])
    return np.concatenate([ends, ends[back, ::-1]]), np.concatenate([numbers, back])


def _columns(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str] | None, of: Sequence[Any], what: str
) -> Any:
    """Return attributes ``names`` of nodes or edges as a matrix; None if ``names`` is None."""
    if names is None:
        return None
    if isinstance(names, str):
        names = [names]
    columns = [_values(rows, column, of, what) for column in names]
    for column, values in zip(names, columns, strict=True):
        if values.dtype.kind not in "biuf":
            raise GraphError(
                f"{what} attribute {column!r}: expected numbers, got {brief(rows[0][column])!r}"
            )
    if not columns:
        return np.zeros((len(rows), 0), np.float32)
    return np.concatenate([c[:, None] if c.ndim == 1 else c for c in columns], axis=1)


def _values(
    rows: Sequence[Mapping[str, Any]],
    key: str,
    of: Sequence[Any],
    what: str,
    *,
    are_labels: bool = False,
) -> Array:
    """Return attribute ``key`` of ``rows``, nodes or edges called ``of``, as an array.

    GraphError: some rows (of labels, all rows) lack the attribute, or values have no common shape.
    """
    missing = [of[number] for number, row in enumerate(rows) if row.get(key) is None]
    if missing:
        named = ", ".join(brief(repr(name)) for name in missing[:_MAX_NAMED])
        message = f"missing at {len(missing)} of {len(rows)}, such as {named}"
        if not are_labels or len(missing) == len(rows):
            raise GraphError(f"{what} attribute {key!r}: {message}")
        _LOG.info("%s attribute %r: %s, whose label is unknown", what, key, message)
    return array_inputs.as_array([row.get(key) for row in rows], f"{what} attribute {key!r}")


def _split_fields(
    rows: Sequence[Mapping[str, Any]], nodes: Sequence[Any], name: str
) -> dict[str, Array]:
    """Return the masks among the attributes of nodes; a node that lacks one is not in it."""
    masks = [field for names in PART_NAMES for field in names if field.endswith("mask")]
    return {
        mask: np.array([bool(row.get(mask, False)) for row in rows])
        for mask in masks
        if any(mask in row for row in rows)
    }


def _ids(nodes: Sequence[Any], name: str) -> Any:
    """Return the ids of nodes as an Arrow array; None if they count up from 0, or repeat as text.

    Nodes that are neither all whole numbers nor all texts have their text as id.
    """
    import pyarrow

    whole = all(isinstance(node, (int, np.integer)) for node in nodes)
    if whole and all(-(2**63) <= node < 2**63 for node in nodes):
        is_count = all(node == number for number, node in enumerate(nodes))
        return None if is_count else pyarrow.array(np.array(nodes, np.int64))
    texts = [str(node) for node in nodes]
    if len(set(texts)) < len(texts):
        _LOG.warning("%s: nodes have no ids in predictions, since some have equal texts", name)
        return None
    return pyarrow.array(texts, pyarrow.large_string())
