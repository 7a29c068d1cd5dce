"""The graph of a run that a program starts: a store, where workers find it."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.api.options import Choice, check_made, choose
from gnnscale.core.errors import ConfigError, GraphError, shown
from gnnscale.core.hardware import home
from gnnscale.dataset import GraphSource, from_dgl, from_pyg
from gnnscale.graph import Graph

__all__ = ["as_dataset"]

#: Values of a graph that its store keeps beside the arrays.
_VALUES = ("name", "feature_dtype", "num_classes", "metric", "attainable_accuracy")


def as_dataset(graph: Any) -> Choice[GraphSource]:
    """Return what a run reads of ``graph``.

    A graph in memory is written to a store first, in ``${GNNSCALE_HOME:-~/.cache/gnnscale}/graphs``
    under a name that follows from its content. The same graph has the same store, which stays.

    Args:
        graph: a ``Graph``; a PyG ``Data`` or a DGL graph; the folder of a store; or what
            ``api.load_input_graph`` returns.

    Raises:
        ConfigError: it is nothing of that.
        GraphError: it cannot be made a graph, or written.
    """
    if isinstance(graph, Choice):
        check_made("graph", graph, "dataset")
        return graph
    if isinstance(graph, (str, Path)):
        return _of_store(Path(graph))
    library = type(graph).__module__.partition(".")[0]
    if library == "torch_geometric":
        graph = from_pyg(graph)
    elif library == "dgl":
        graph = from_dgl(graph)
    if not isinstance(graph, Graph):
        raise ConfigError(
            f"graph={shown(graph)}: must be a gnnscale.Graph, a PyG Data, a DGL graph, the folder "
            "of a store, or what api.load_input_graph returns"
        )
    if graph.path is not None and _is_store(graph, graph.path):
        return _of_store(graph.path)
    return _of_store(_saved(graph))


def _of_store(path: Path) -> Choice[GraphSource]:
    return choose("dataset", "store", GraphSource, {"store": str(path.expanduser().absolute())})


def _is_store(graph: Graph, path: Path) -> bool:
    """Whether ``graph`` is what the store at ``path`` holds, not a copy with something replaced."""
    stored = Graph.open(path)
    if any(getattr(graph, name) != getattr(stored, name) for name in _VALUES):
        return False
    return all(
        _same(getattr(graph, name), getattr(stored, name)) for name in _arrays(graph, stored)
    )


def _same(array: Any, stored: Any) -> bool:
    if array is None or stored is None:
        return array is stored
    if isinstance(array, np.memmap) and isinstance(stored, np.memmap):
        mapped = [(each.filename, each.offset, each.shape, each.dtype) for each in (array, stored)]
        return mapped[0] == mapped[1]
    return bool(np.array_equal(array, stored))


def _arrays(*graphs: Graph) -> list[str]:
    """Return the fields that hold an array in one of ``graphs``."""
    names = [field.name for field in fields(Graph)]
    return [n for n in names if any(isinstance(getattr(each, n), np.ndarray) for each in graphs)]


def _saved(graph: Graph) -> Path:
    """Write ``graph`` to a store named after its content, where there is none."""
    digest = hashlib.blake2b(digest_size=16)
    for name in _VALUES:
        digest.update(f"{name}={getattr(graph, name)!r};".encode())
    for name in _arrays(graph):
        array = getattr(graph, name)
        digest.update(f"{name}={array.dtype}{array.shape};".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    path = home() / "graphs" / f"memory-{digest.hexdigest()}"
    if not _exists(path):
        try:
            graph.save(path)
        except GraphError:
            # Another process may have been faster.
            if not _exists(path):
                raise
    return path


def _exists(path: Path) -> bool:
    return (path / "meta.json").exists()
