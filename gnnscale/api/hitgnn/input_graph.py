"""Input graphs of any type, as options of a run."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.api.hitgnn.design import OptionGroup, check_option_group, choose
from gnnscale.core import Array, ConfigError, GraphError, brief, home
from gnnscale.data import GraphSource, from_networkx, from_scipy
from gnnscale.data.array_inputs import describe_graph, is_instance_of
from gnnscale.data.peers import from_peer, is_peer
from gnnscale.data.split_input import with_random_split
from gnnscale.graph import ARRAYS, DEGREES, EDGE_ARRAYS, Graph, TypedFeatures
from gnnscale.graph.store_format import EDGE_ROW_TIMES, typed_features
from gnnscale.graph.store_meta import label_entries
from gnnscale.graph.timed_store import timed_arrays, timed_entries

#: Attributes of a graph that its store keeps next to the arrays.
_VALUES = ["name", "feature_dtype", "num_features", "num_classes", "metric", "attainable_accuracy"]
#: Names of all arrays of a graph.
_ARRAYS = (*ARRAYS, DEGREES, *EDGE_ARRAYS, "edge_ids")


def as_dataset(
    graph: Any, *, split: Any = None, mask: int | None = None, of: str | None = None
) -> OptionGroup[GraphSource]:
    """Return options of group ``dataset`` by which a run reads ``graph``.

    ``graph`` is a ``Graph``, an object of PyG, DGL, OGB, networkx or SciPy, the folder of a store,
    or a result of ``api.load_input_graph``. A graph in memory that does not equal the store from
    which it was opened is first written to ``GNNSCALE_HOME``, under a hash of its content.

    Args:
        split, mask: split of a graph in memory, as for ``from_arrays``.
        of: labels that a run learns from, ``vertices`` or ``edges``; GraphError if a graph in
            memory lacks them, or their training part. None: no labels.
    """
    if isinstance(graph, (OptionGroup, str, Path)) and (split is not None or mask is not None):
        option = f"mask={mask}" if split is None else f"split={brief(split)!r}"
        raise ConfigError(f"{option}: expected a graph in memory, got the options or path of one")
    if isinstance(graph, OptionGroup):
        check_option_group("graph", graph, "dataset")
        return graph
    if isinstance(graph, (str, Path)):
        return _store_options(Path(graph))
    graph = _convert(graph, split=split, mask=mask, trains=True)
    if of is not None:
        _check_trains(graph, of)
    if graph.path is not None and _is_store(graph, graph.path):
        return _store_options(graph.path)
    return _store_options(_save(graph))


def as_graph(graph: Any) -> Graph:
    """Return ``graph``, of any type that ``as_dataset`` takes, as an open ``Graph``, not stored."""
    if isinstance(graph, (OptionGroup, str, Path)):
        return as_dataset(graph).config.open()
    return _convert(graph, trains=False)


def _convert(graph: Any, *, split: Any = None, mask: int | None = None, trains: bool) -> Graph:
    """Return a graph of any library as a ``Graph``; ``trains`` whether to advise about training."""
    if is_peer(graph):
        return from_peer(graph, split=split, mask=mask, advises=trains)
    if is_instance_of(graph, "networkx", "Graph"):
        if mask is not None:
            raise ConfigError(f"mask={mask}: expected none, since nodes of networkx have one mask")
        return from_networkx(graph, split=split, advises=trains)
    if hasattr(graph, "tocoo"):
        return from_scipy(graph, split=split, mask=mask, advises=trains)
    if not isinstance(graph, Graph):
        raise ConfigError(
            f"graph={brief(graph)}: expected a gnnscale.Graph, a graph of PyG, DGL, OGB, networkx "
            "or SciPy, the folder of a store, or the result of api.load_input_graph, got "
            f"{describe_graph(graph)}"
        )
    if mask is not None or not (split is None or (isinstance(split, str) and split == "random")):
        raise ConfigError(
            "split, mask: expected split='random' or none for a gnnscale.Graph, whose with_split "
            "sets other ids"
        )
    return graph if split is None else with_random_split(graph)


def _check_trains(graph: Graph, of: str) -> None:
    """Raise GraphError if ``graph`` lacks labels of vertices or edges (``of``), or training ids."""
    names = graph.origin.split
    if of == "edges":
        if graph.edge_labels is None:
            raise GraphError(f"{graph.name}: edge_labels is missing; from_arrays takes edge_labels")
        if not len(graph.edge_labels.split.train_idx):
            graph.edge_labels.refuse_untrained()
    elif graph.rows is not None:
        if not len(graph.rows.split.train_idx):
            raise GraphError(f"{graph.name}: rows: expected rows that train in split, got none")
    elif not graph.num_classes:
        raise GraphError(
            f"{graph.name}: {names.labels}: missing, or no label is known; training needs labels "
            "of vertices, or options={'task': 'links'} or {'task': 'edges'}"
        )
    elif not len(graph.train_idx):
        names.refuse_empty(graph.name)


def _store_options(path: Path) -> OptionGroup[GraphSource]:
    return choose("dataset", "store", GraphSource, {"store": str(path.expanduser().absolute())})


def _is_store(graph: Graph, path: Path) -> bool:
    """Return whether ``graph`` still equals the store at ``path``, from which it was opened."""
    stored = Graph.open(path)
    if any(getattr(graph, name) != getattr(stored, name) for name in (*_VALUES, "types")):
        return False
    if _label_text(graph) != _label_text(stored) or _widths(graph) != _widths(stored):
        return False
    arrays, stored_arrays = _arrays(graph), _arrays(stored)
    names = arrays.keys() | stored_arrays.keys()
    return all(_equal(arrays.get(name), stored_arrays.get(name)) for name in names)


def _label_text(graph: Graph) -> str:
    """Return a text on labels of edges, rows and several vertex types, and on times, or ""."""
    labels, entries = graph.edge_labels, label_entries(graph.type_labels)
    text = "" if labels is None else f"{labels.num_classes} classes by {labels.metric};"
    text += "".join(f"{of!r};" for of in timed_entries(graph.times, graph.rows).items())
    return text if entries is None else f"{text}{entries!r};"


def _arrays(graph: Graph) -> dict[str, Array]:
    """Return the arrays of a graph by their names in a store, in a fixed order."""
    of_edges, features = graph.edges.arrays(), _typed_features(graph)
    arrays = {
        name: of_edges.get(name) if name in EDGE_ARRAYS else getattr(graph, name)
        for name in _ARRAYS
    }
    arrays[EDGE_ROW_TIMES] = of_edges.get(EDGE_ROW_TIMES)
    arrays |= graph.label_arrays | timed_arrays(graph.times, graph.rows)
    for number, matrix in enumerate(() if features is None else features.matrices):
        arrays[typed_features(number)] = None if matrix is None else matrix.rows
    return {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}


def _typed_features(graph: Graph) -> TypedFeatures | None:
    features: object = graph.features
    return features if isinstance(features, TypedFeatures) else None


def _widths(graph: Graph) -> str:
    """Return a text with types, and the width and element type of their features, or ""."""
    features = _typed_features(graph)
    if features is None:
        return ""
    forms = [matrix and (matrix.dtype, matrix.width) for matrix in features.matrices]
    return f"{graph.types!r}{forms!r};"


def _equal(array: Any, stored: Any) -> bool:
    if array is None or stored is None:
        return array is stored
    if isinstance(array, np.memmap) and isinstance(stored, np.memmap):
        views = ((a.filename, a.offset, a.shape, a.dtype) for a in (array, stored))
        return len(set(views)) == 1
    return bool(np.array_equal(array, stored))


def _save(graph: Graph) -> Path:
    """Write ``graph`` to a store named after its content, unless there is one; return its path."""
    digest = hashlib.blake2b(digest_size=16)
    for name in _VALUES:
        digest.update(f"{name}={getattr(graph, name)!r};".encode())
    digest.update((_label_text(graph) + _widths(graph)).encode())
    for name, array in _arrays(graph).items():
        digest.update(f"{name}={array.dtype}{array.shape};".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    ids = graph.origin.ids
    digest.update(f"ids={ids and ids.to_pylist()!r}{graph.origin.classes!r};".encode())
    path = home() / "graphs" / f"memory-{digest.hexdigest()}"
    if not _has_store(path):
        try:
            graph.save(path)
        except GraphError:
            # Another process may have written the store at the same time.
            if not _has_store(path):
                raise
    return path


def _has_store(path: Path) -> bool:
    return (path / "meta.json").exists()
