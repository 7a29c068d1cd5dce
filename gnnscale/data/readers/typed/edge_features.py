"""Features of the edges of one type, from the columns of their table, in a file."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Array
from gnnscale.core.artifact import NpyWriter, check_space, map_npy
from gnnscale.data import validation
from gnnscale.data.storage import standardize
from gnnscale.data.storage.feature_writer import CURE, feature_names
from gnnscale.data.tables.feature_columns import FeatureColumns
from gnnscale.graph import FeatureMatrix


class EdgeFeatureFile:
    """Writer of the features of the edges of one type, float32, in the order of their table.

    ``append`` needs the context that the object manages, which ends with a closed file. ``columns``
    and ``scaling`` are entries of ``meta.json``, complete after ``finish``.
    """

    def __init__(
        self, path: Path, features: FeatureColumns, source: str, *, drops_empty: bool
    ) -> None:
        """Write ``features`` to ``path``; messages name the edges ``source``.

        ``drops_empty`` says whether edges with an empty number are left out.
        """
        validation.check_num_features(features.num_features, source)
        self.features, self.drops_empty = features, drops_empty
        self.columns = features.described()
        self.scaling: dict[str, Any] | None = None  #: None: features are not scaled
        self._path, self._source, self._width = path, source, features.num_features
        self._spread = standardize.Spread((standardize.MAGNITUDE_OF_LAYERS,))
        self._count = 0

    def __enter__(self) -> "EdgeFeatureFile":
        self._writer = NpyWriter(self._path, np.dtype(np.float32), (self._width,)).__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            self._writer.close()
        self._writer.__exit__(*error)

    def append(self, rows: Array) -> None:
        """Write the features of the next edges, ``[n, num_features]``; GraphError: not finite."""
        validation.check_features(rows, self._count, self._source, "edge")
        self._spread.add(rows)
        self._writer.append(rows)
        self._count += len(rows)

    def finish(self, *, standardizes: bool, advises: bool) -> FeatureMatrix:
        """Fill empty cells with means over all edges, and scale the columns if ``standardizes``.

        Return the features, mapped from the file. ``advises`` says whether to warn about magnitudes
        that impede training.
        """
        chunks, scaling = standardize.completed_rows(
            map_npy(self._path), self.columns, None, standardizes=standardizes, what="edges"
        )
        if scaling is not None:
            self.scaling = asdict(scaling)
            self._rewrite(chunks)
        elif advises:
            names = feature_names(self.columns)
            standardize.warn_of_large(self._spread.largest, self._source)
            standardize.warn_of_spread(self._spread, self._source, CURE, names)
        return FeatureMatrix(rows=map_npy(self._path), dtype="float32", width=self._width)

    def _rewrite(self, chunks: Iterable[Array]) -> None:
        """Replace the file by ``chunks``, its scaled rows."""
        check_space(
            f"{self._source}: scaled features",
            self._path.parent,
            disk=4 * self._count * self._width,
        )
        changed, first = self._path.with_suffix(".scaled"), 0
        with NpyWriter(changed, np.dtype(np.float32), (self._width,)) as file:
            for part in chunks:
                validation.check_features(part, first, f"{self._source}: scaled", "edge")
                file.append(part)
                first += len(part)
            file.close()
        changed.replace(self._path)
