"""Edges in any order → in-neighbour lists (CSC) on disk, by bucket and counting sort.

Edges go to blocks of destinations as they arrive, in memory if they fit, else on disk
(``edge_spool``). Then blocks are sorted, several at a time; a block that is too large is cut into
ranges first (``sorted_lists``). So every edge is written and read at most twice. Edges with
weights are sorted as words of both (``edge_file``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.dataset.storage.edge_spool import EdgeSpool
from gnnscale.dataset.storage.sorted_lists import sorted_lists
from gnnscale.graph_files import vertex_dtype
from gnnscale.npy import NpyWriter


def write_topology(spool: EdgeSpool, path: Path, *, drop_duplicates: bool) -> dict[str, Any]:
    """Write ``indptr.npy``, ``indices.npy`` and perhaps ``edge_weights.npy`` into a folder.

    The spool is used up. Returns the files' entries in ``meta.json``.
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
