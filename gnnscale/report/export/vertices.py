"""Which vertices are predicted, as a command or a program names them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.artifact.arrays import map_npy
from gnnscale.core.errors import ConfigError, shown
from gnnscale.graph import Graph

if TYPE_CHECKING:
    import pyarrow

_SPLITS = ("train", "valid", "test")


def find_vertices(
    given: Any, graph: Graph, own: pyarrow.Array | None = None
) -> NDArray[np.integer[Any]] | None:
    """Return the vertices that are meant, in their order; None for all.

    Args:
        given: None or ``all``; ``train``, ``valid`` or ``test``; a ``.npy`` file of ids, by its
            path; or ids.
        own: ``[num_vertices]`` the user's ids, which are then meant; None for numbers from 0 on.

    Returns:
        ``[n]`` distinct numbers of vertices, of the graph's type.

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
        ids = _ids(given, texts=own is not None and not _is_integer(own))
    if own is not None and not (isinstance(given, str) and given in _SPLITS):
        ids = _numbers(ids, own, graph, option)
    if not len(ids):
        raise ConfigError(f"{option}: {graph.name} has no such vertex, nothing is to be predicted")
    _check(ids, graph, option, own)
    return np.ascontiguousarray(ids, graph.indices.dtype)


def _ids(given: Any, *, texts: bool) -> NDArray[Any]:
    values = given if isinstance(given, (Sequence, np.ndarray)) else _listed(given)
    if texts:
        return np.array([str(each) for each in values], np.object_)
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


def _is_integer(own: pyarrow.Array) -> bool:
    return str(own.type) in ("int64", "uint64")


def _numbers(
    ids: NDArray[Any], own: pyarrow.Array, graph: Graph, option: str
) -> NDArray[np.integer[Any]]:
    """Return the number of the vertex that each id of the user's names."""
    import pyarrow
    from pyarrow import compute

    try:
        wanted = pyarrow.array(ids).cast(own.type)
    except (pyarrow.ArrowInvalid, UnicodeError):  # one does not fit the type, or is not UTF-8
        raise ConfigError(
            f"{option}: ids of {graph.name} are {own.type}, and not all of these are"
        ) from None
    found = compute.index_in(wanted, value_set=own)
    if found.null_count:
        missing = wanted.filter(compute.is_null(found))[0].as_py()
        raise ConfigError(f"{option}: {shown(missing)} is no id of a vertex of {graph.name}")
    return np.asarray(found.to_numpy())


def _check(ids: NDArray[Any], graph: Graph, option: str, own: pyarrow.Array | None) -> None:
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
        name = twice if own is None else own[int(twice)].as_py()
        raise ConfigError(f"{option}: {shown(name)} is given twice")
