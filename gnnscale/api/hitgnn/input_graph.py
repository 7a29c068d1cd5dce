"""Input graphs of any type, as options of a run."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.api.hitgnn.design import OptionGroup, check_option_group, choose
from gnnscale.core import ConfigError, GraphError, brief, home
from gnnscale.data import GraphSource, from_dgl, from_pyg
from gnnscale.data.array_inputs import describe_graph, is_instance_of
from gnnscale.graph import ARRAYS, DEGREES, EDGE_ARRAYS, Graph

#: Attributes of a graph that its store keeps next to the arrays.
_VALUES = ["name", "feature_dtype", "num_features", "num_classes", "metric", "attainable_accuracy"]
#: Names of all arrays of a graph.
_ARRAYS = (*ARRAYS, DEGREES, *EDGE_ARRAYS, "edge_ids")


def as_dataset(graph: Any) -> OptionGroup[GraphSource]:
    """Return options of group ``dataset`` by which a run reads ``graph``.

    ``graph`` is a ``Graph``, a PyG ``Data``, a DGL graph, the folder of a store, or a result of
    ``api.load_input_graph``; ConfigError for another type. A graph in memory is first written to a
    store in ``${GNNSCALE_HOME:-~/.cache/gnnscale}/graphs``, unless it equals the store from which
    it was opened. The store's name is a hash of its content, so that an equal graph reuses the
    store.
    """
    if isinstance(graph, OptionGroup):
        check_option_group("graph", graph, "dataset")
        return graph
    if isinstance(graph, (str, Path)):
        return _store_options(Path(graph))
    graph = _convert(graph, trains=True)
    if graph.path is not None and _is_store(graph, graph.path):
        return _store_options(graph.path)
    return _store_options(_save(graph))


def as_graph(graph: Any) -> Graph:
    """Return ``graph``, of any type that ``as_dataset`` takes, as an open ``Graph``.

    A graph in memory is not written to a store.
    """
    if isinstance(graph, (OptionGroup, str, Path)):
        return as_dataset(graph).config.open()
    return _convert(graph, trains=False)


def _convert(graph: Any, *, trains: bool) -> Graph:
    if is_instance_of(graph, "torch_geometric", "data.Data"):
        graph = from_pyg(graph, advises=trains)
    elif is_instance_of(graph, "dgl", "DGLGraph"):
        features = "feat" if graph.is_homogeneous and "feat" in graph.ndata else None
        graph = from_dgl(graph, features=features, advises=trains)
    if not isinstance(graph, Graph):
        raise ConfigError(
            f"graph={brief(graph)}: expected a gnnscale.Graph, a PyG Data, a DGL graph, the folder "
            f"of a store, or the result of api.load_input_graph, got {describe_graph(graph)}"
        )
    return graph


def _store_options(path: Path) -> OptionGroup[GraphSource]:
    return choose("dataset", "store", GraphSource, {"store": str(path.expanduser().absolute())})


def _is_store(graph: Graph, path: Path) -> bool:
    """Return whether ``graph`` still equals the store at ``path``, from which it was opened."""
    stored = Graph.open(path)
    if any(getattr(graph, name) != getattr(stored, name) for name in _VALUES):
        return False
    if _edge_label_text(graph) != _edge_label_text(stored):
        return False
    names = _array_names(graph, stored)
    return all(_equal(_array(graph, name), _array(stored, name)) for name in names)


def _edge_label_text(graph: Graph) -> str:
    labels = graph.edge_labels
    return "" if labels is None else f"{labels.num_classes} classes by {labels.metric};"


def _array(graph: Graph, name: str) -> Any:
    """Return an array of a graph by its name in a store. None: the graph has no such array."""
    return graph.edges.arrays().get(name) if name in EDGE_ARRAYS else getattr(graph, name)


def _equal(array: Any, stored: Any) -> bool:
    if array is None or stored is None:
        return array is stored
    if isinstance(array, np.memmap) and isinstance(stored, np.memmap):
        views = ((a.filename, a.offset, a.shape, a.dtype) for a in (array, stored))
        return len(set(views)) == 1
    return bool(np.array_equal(array, stored))


def _array_names(*graphs: Graph) -> list[str]:
    """Return the names of the arrays that at least one of ``graphs`` has."""
    return [n for n in _ARRAYS if any(isinstance(_array(graph, n), np.ndarray) for graph in graphs)]


def _save(graph: Graph) -> Path:
    """Write ``graph`` to a store named after its content, unless there is one; return its path."""
    digest = hashlib.blake2b(digest_size=16)
    for name in _VALUES:
        digest.update(f"{name}={getattr(graph, name)!r};".encode())
    digest.update(_edge_label_text(graph).encode())
    for name in _array_names(graph):
        array = _array(graph, name)
        digest.update(f"{name}={array.dtype}{array.shape};".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
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
