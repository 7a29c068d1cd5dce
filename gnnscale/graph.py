"""The Graph record: topology, features, labels and split, memory-mapped from a graph store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.errors import UserError

__all__ = ["FEATURE_DTYPES", "FORMAT_VERSION", "METRICS", "Graph", "GraphError", "vertex_dtype"]

FORMAT_VERSION = 1
#: How features may be stored. bfloat16 has no NumPy type; its bits are stored as uint16.
FEATURE_DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(np.uint16),
    "uint8": np.dtype(np.uint8),
}
METRICS = ("accuracy", "micro_f1", "roc_auc")
_ARRAYS = ("indptr", "indices", "features", "labels", "train_idx", "valid_idx", "test_idx")


class GraphError(UserError):
    """A graph, or a file that should hold one, is not usable."""


def vertex_dtype(num_vertices: int) -> np.dtype[Any]:
    """Return int32 where it can hold every vertex id, else int64."""
    return np.dtype(np.int32 if num_vertices < 2**31 else np.int64)


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A homogeneous graph with features, labels and a split. Never copied, never written to.

    Attributes:
        name: what reports call it.
        indptr: ``[num_vertices + 1]`` int64 offsets of the in-neighbours of each vertex (CSC).
        indices: ``[num_edges]`` int32 or int64; ``indices[indptr[v]:indptr[v+1]]`` are the vertices
            that send messages to ``v``, sorted.
        features: ``[num_vertices, num_features]`` in one of ``FEATURE_DTYPES``.
        feature_dtype: which; tells bfloat16 from the uint16 that carries it.
        labels: ``[num_vertices]`` int64 class, -1 where unknown; or
            ``[num_vertices, num_classes]`` uint8 where a vertex may have several.
        num_classes: number of classes.
        train_idx, valid_idx, test_idx: disjoint vertex ids. Those of a store are sorted, and only
            test vertices may lack a label, where the publisher hides it.
        metric: ``accuracy``, ``micro_f1`` or ``roc_auc``.
        path: the store it was opened from, None for a graph in memory.
    """

    name: str
    indptr: NDArray[np.int64]
    indices: NDArray[np.integer]
    features: NDArray[Any]
    feature_dtype: str
    labels: NDArray[np.integer]
    num_classes: int
    train_idx: NDArray[np.integer]
    valid_idx: NDArray[np.integer]
    test_idx: NDArray[np.integer]
    metric: str = "accuracy"
    path: Path | None = None

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of directed edges stored."""
        return len(self.indices)

    @property
    def num_features(self) -> int:
        """Length of a feature row, f^0 in the papers."""
        return int(self.features.shape[1])

    @property
    def multilabel(self) -> bool:
        """Whether a vertex may have several labels."""
        return self.labels.ndim == 2

    @property
    def topology_bytes(self) -> int:
        """Bytes of ``indptr`` and ``indices``."""
        return self.indptr.nbytes + self.indices.nbytes

    @property
    def feature_bytes(self) -> int:
        """Bytes of ``features``."""
        return self.features.nbytes

    @classmethod
    def open(cls, path: str | Path) -> Graph:
        """Map the graph store at ``path`` read-only; pages are shared by every process.

        Raises:
            GraphError: a file is missing, truncated, of another version, or not an array of the
                shape and type that ``meta.json`` promises.
        """
        path = Path(path)
        meta = _read_meta(path)
        arrays = {name: _map_array(path, name, meta) for name in _ARRAYS}
        num_vertices, num_edges = len(arrays["indptr"]) - 1, int(arrays["indptr"][-1])
        for name, length in (
            ("indices", num_edges),
            ("features", num_vertices),
            ("labels", num_vertices),
        ):
            if len(arrays[name]) != length:
                raise GraphError(f"{path}/{name}.npy: {len(arrays[name])} rows, not {length}")
        return cls(
            name=meta["name"],
            feature_dtype=meta["feature_dtype"],
            num_classes=meta["num_classes"],
            metric=meta["metric"],
            path=path,
            **arrays,
        )


def _read_meta(path: Path) -> dict[str, Any]:
    file = path / "meta.json"
    try:
        meta: Any = json.loads(file.read_text())
    except FileNotFoundError:
        raise GraphError(f"{path}: not a graph store, it has no meta.json") from None
    except (OSError, ValueError) as error:
        raise GraphError(f"{file}: cannot be read as JSON ({error})") from None
    if not isinstance(meta, dict):
        raise GraphError(f"{file}: holds a {type(meta).__name__}, not an object")
    if meta.get("format_version") != FORMAT_VERSION:
        raise GraphError(
            f"{file}: format version {meta.get('format_version')!r}, "
            f"this release reads {FORMAT_VERSION}; run gnnscale prepare again"
        )
    for key in ("name", "feature_dtype", "num_classes", "metric", "arrays"):
        if key not in meta:
            raise GraphError(f"{file}: no entry {key!r}")
    return meta


def _map_array(path: Path, name: str, meta: dict[str, Any]) -> NDArray[Any]:
    file = path / f"{name}.npy"
    try:
        size = file.stat().st_size
        expected = meta["arrays"][name]
        if size != expected["bytes"]:
            raise GraphError(
                f"{file}: {size} bytes, meta.json says {expected['bytes']} (truncated?)"
            )
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise GraphError(f"{file}: missing; run gnnscale prepare again") from None
    except KeyError as error:
        raise GraphError(f"{path / 'meta.json'}: no entry {error}") from None
    except GraphError:
        raise
    except (OSError, ValueError) as error:
        raise GraphError(f"{file}: not a readable .npy array ({error})") from None
    if list(array.shape) != expected["shape"] or str(array.dtype) != expected["dtype"]:
        raise GraphError(
            f"{file}: {array.dtype}{list(array.shape)}, "
            f"meta.json says {expected['dtype']}{expected['shape']}"
        )
    return array
