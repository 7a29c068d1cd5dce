"""Edges in any order → in-neighbour lists (CSC) on disk, by bucket and counting sort.

Edges go to blocks of destinations as they arrive, in memory as far as it is allowed, else on disk
(``edge_spool``). Then blocks are sorted, several at a time, and one whose lists exceed the memory
allowed is cut into ranges first (``sorted_lists``). So every edge is written twice at most and read
as often, however many there are.

Edges with weights are sorted as words of both (``weighted_lists``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.dataset.storage.edge_spool import EdgeSpool
from gnnscale.dataset.storage.sorted_lists import sorted_lists
from gnnscale.graph_files import vertex_dtype
from gnnscale.npy import NpyWriter

__all__ = ["write_topology"]


def write_topology(spool: EdgeSpool, path: Path, *, drop_duplicates: bool) -> dict[str, Any]:
    """Write ``indptr.npy``, ``indices.npy`` and perhaps ``edge_weights.npy``.

    Args:
        spool: all edges; done once.
        path: a directory.
        drop_duplicates: see ``sorted_lists``.

    Returns:
        The files' entries in ``meta.json``.
    """
    dtypes = {"indptr": np.dtype(np.int64), "indices": vertex_dtype(spool.num_vertices)}
    if spool.weighted:
        dtypes["edge_weights"] = np.dtype(np.float32)
    files = {name: NpyWriter(path / f"{name}.npy", dtype) for name, dtype in dtypes.items()}
    written = 0
    files["indptr"].append(np.zeros(1, np.int64))
    try:
        for part in sorted_lists(spool, drop_duplicates):
            files["indices"].append(part.lists)
            if part.weights is not None:
                files["edge_weights"].append(part.weights)
            files["indptr"].append(part.offsets[1:] + written)
            written += len(part.lists)
        return {name: file.close() for name, file in files.items()}
    finally:
        for file in files.values():
            file.abandon()
