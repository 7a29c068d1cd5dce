"""Which vertices are predicted, as a command or a program names them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.config import ConfigError
from gnnscale.dataset.formats.npy import map_npy
from gnnscale.errors import shown
from gnnscale.graph import Graph

__all__ = ["find_vertices"]

_SPLITS = ("train", "valid", "test")


def find_vertices(given: Any, graph: Graph) -> NDArray[np.integer[Any]] | None:
    """Return the vertices that are meant, in their order; None for all.

    Args:
        given: None or ``all``; ``train``, ``valid`` or ``test``; a ``.npy`` file of ids, by its
            path; or ids.
        graph: whose vertices they are.

    Returns:
        ``[n]`` distinct ids of the graph's type.

    Raises:
        ConfigError: an id is none of the graph's or given twice, or there is none at all.
        GraphError: the file is missing, or holds something else than ids.
    """
    if given is None or (isinstance(given, str) and given == "all"):
        return None
    option = "vertices"
    if isinstance(given, str) and given in _SPLITS:
        ids: NDArray[Any] = getattr(graph, f"{given}_idx")
        option = f"vertices={given}"
    elif isinstance(given, (str, Path)):
        if Path(given).suffix != ".npy":
            raise ConfigError(
                f"vertices={shown(given)}: allowed are all, {', '.join(_SPLITS)}, a file of ids "
                "FILE.npy, or a list of ids such as [1,2,3]"
            )
        option = f"vertices={shown(given)}"
        ids = map_npy(Path(given), axes=1, kinds="iu")
    else:
        ids = _ids(given)
    if not len(ids):
        raise ConfigError(f"{option}: {graph.name} has no such vertex, nothing is to be predicted")
    _check(ids, graph, option)
    return np.ascontiguousarray(ids, graph.indices.dtype)


def _ids(given: Any) -> NDArray[Any]:
    values = given if isinstance(given, (Sequence, np.ndarray)) else _listed(given)
    try:
        ids = np.asarray(values)
    except (ValueError, OverflowError):  # a ragged list; a number of many digits
        ids = np.empty(0, np.object_)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and len(values)):
        raise ConfigError(f"vertices={shown(given)}: must be whole numbers in one list")
    return ids


def _listed(given: Any) -> Any:
    # A tensor, or one id.
    return given.numpy() if hasattr(given, "numpy") else [given]


def _check(ids: NDArray[Any], graph: Graph, option: str) -> None:
    wrong = (ids < 0) | (ids >= graph.num_vertices)
    if wrong.any():
        raise ConfigError(
            f"{option}: {ids[wrong.argmax()]} is no vertex of {graph.name}, whose ids are 0 to "
            f"{graph.num_vertices - 1}"
        )
    seen = np.zeros(graph.num_vertices, np.bool_)
    seen[ids] = True
    if np.count_nonzero(seen) < len(ids):
        ordered = np.sort(ids)
        twice = ordered[1:][ordered[1:] == ordered[:-1]][0]
        raise ConfigError(f"{option}: {twice} is given twice")
