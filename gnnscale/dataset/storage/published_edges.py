"""Ends and features of edges on their way to a store, in the order in which they are published."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.artifact.arrays import ArrayEntry, NpyWriter, check_array, map_npy
from gnnscale.artifact.files import check_space
from gnnscale.artifact.graph_store import EDGE_ENDS, EDGE_FEATURES, MAX_EDGE_ROWS
from gnnscale.core import Array, GraphError, track
from gnnscale.dataset import checks
from gnnscale.dataset.storage.scaling import MAGNITUDE_OF_LAYERS, Scaling, Spread

_SCALED = "scaled.npy"


class PublishedEdges:
    """Writes ``edge_ends.npy``, and perhaps ``edge_features.npy``, in ``folder``.

    ``dtype`` is that of vertex ids. ``first`` are the features of the first edges, ``[n,
    num_edge_features]``, which are not written yet: the others have as many; None for edges without
    features. Errors are GraphErrors that name ``source``.
    """

    def __init__(
        self, folder: Path, dtype: np.dtype[Any], first: Array | None, source: object
    ) -> None:
        self.num_edges = 0  #: written so far
        self.num_features = 0
        self.source = source
        self.spread = Spread((MAGNITUDE_OF_LAYERS,))  #: of the features
        self._folder = folder
        self._num_zeros = 0
        if first is not None:
            check_array(first, axes=2, kinds="biuf", source=f"{source}: features of edges")
            checks.check_num_features(first.shape[1], f"{source}: edges")
            self.num_features = int(first.shape[1])
        self._files: dict[str, NpyWriter] = {}
        with ExitStack() as stack:
            self._open(stack, folder, EDGE_ENDS, dtype, 2)
            if self.num_features:
                self._open(stack, folder, EDGE_FEATURES, np.dtype(np.float32), self.num_features)
            what = "writing edges and their features" if self.num_features else "writing edges"
            self._advance = stack.enter_context(track(what, unit="edges"))
            self._stack = stack.pop_all()

    def _open(
        self, stack: ExitStack, folder: Path, name: str, dtype: np.dtype[Any], width: int
    ) -> None:
        self._files[name] = stack.enter_context(NpyWriter(folder / f"{name}.npy", dtype, (width,)))

    def append(self, src: Array, dst: Array, features: Array | None, source: object) -> None:
        """Write the next edges, ``[n]`` each, and their features, finite numbers."""
        first, last = self.num_edges, self.num_edges + len(src)
        if last >= MAX_EDGE_ROWS:  # a row of zeros may follow
            raise GraphError(
                f"{source}: {last} edges, features and labels are allowed for up to "
                f"{MAX_EDGE_ROWS - 1}"
            )
        if features is not None:
            form = {"num_edges": len(src), "num_features": self.num_features}
            rows = checks.edge_features(features, first=first, source=source, **form)
            self._files[EDGE_FEATURES].append(rows)
            self.spread.look_at(rows)
        self._files[EDGE_ENDS].append(np.stack([src, dst], axis=1))
        self.num_edges = last
        self._advance(len(src))

    def finish(self, *, num_zeros: int) -> dict[str, ArrayEntry]:
        """Write rows of zeros after all features; return the entries of ``meta.json``."""
        self._num_zeros = num_zeros
        if self.num_features:
            zeros = np.zeros((num_zeros, self.num_features), np.float32)
            self._files[EDGE_FEATURES].append(zeros)
        entries = {name: file.close() for name, file in self._files.items()}
        self.close()
        return entries

    def features(self) -> Array:
        """Map the features of the edges that were published, after ``finish``."""
        return map_npy(self._folder / f"{EDGE_FEATURES}.npy")[: self.num_edges]

    def scale(self, scaling: Scaling) -> ArrayEntry:
        """Replace the features by scaled ones; rows of zeros, now the mean, remain."""
        rows, source = self.features(), f"{self.source}: scaled"
        check_space(f"{source} features of {len(rows)} edges", self._folder, disk=rows.nbytes)
        scaled, first = self._folder / _SCALED, 0
        with NpyWriter(scaled, np.dtype(np.float32), (self.num_features,)) as file:
            for part in scaling.scaled(rows):
                checks.check_features(part, first, source, "edge")
                file.append(part)
                first += len(part)
            file.append(np.zeros((self._num_zeros, self.num_features), np.float32))
            entry = file.close()
        scaled.replace(self._folder / f"{EDGE_FEATURES}.npy")
        return entry

    def close(self) -> None:
        """Close the files, finished or not."""
        self._stack.close()
