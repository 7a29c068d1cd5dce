"""Features of edges on their way to a store, in the order in which edges are published."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from gnnscale.artifact.arrays import ArrayEntry, NpyWriter, check_array
from gnnscale.artifact.graph_store import EDGE_FEATURES, MAX_EDGE_ROWS
from gnnscale.core import Array, GraphError, track
from gnnscale.dataset import checks


class EdgeFeatures:
    """Writes ``edge_features.npy`` in ``folder``, a row of float32 for each published edge.

    ``first`` are the features of the first edges, ``[n, num_edge_features]``, which are not written
    yet: the others have as many. Errors are GraphErrors that name ``source``.
    """

    def __init__(self, folder: Path, first: Array, source: object) -> None:
        check_array(first, axes=2, kinds="biuf", source=f"{source}: features of edges")
        checks.check_num_features(first.shape[1], f"{source}: edges")
        self.num_features = int(first.shape[1])
        self.num_rows = 0  #: written so far
        with ExitStack() as stack:
            path = folder / f"{EDGE_FEATURES}.npy"
            self._file = NpyWriter(path, np.dtype(np.float32), (self.num_features,))
            stack.push(self._file)
            self._advance = stack.enter_context(track("writing edge features", unit="edges"))
            self._stack = stack.pop_all()

    def append(self, features: Array, num_edges: int, source: object) -> None:
        """Write the features of the next edges, ``[num_edges, num_features]`` finite numbers."""
        if self.num_rows + num_edges >= MAX_EDGE_ROWS:  # a row of zeros may follow
            raise GraphError(
                f"{source}: {self.num_rows + num_edges} edges, features are allowed for up to "
                f"{MAX_EDGE_ROWS - 1}"
            )
        form = {"num_edges": num_edges, "num_features": self.num_features}
        self._write(checks.edge_features(features, first=self.num_rows, source=source, **form))

    def finish(self, *, num_zeros: int) -> ArrayEntry:
        """Write rows of zeros after all others, and return the entry of ``meta.json``."""
        self._write(np.zeros((num_zeros, self.num_features), np.float32))
        entry = self._file.close()
        self.close()
        return entry

    def _write(self, rows: Array) -> None:
        self._file.append(rows)
        self.num_rows += len(rows)
        self._advance(len(rows))

    def close(self) -> None:
        """Close the file, finished or not."""
        self._stack.close()
