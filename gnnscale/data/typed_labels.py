"""Labels and split of the vertices of one type, in a graph with types."""

from collections.abc import Sequence

import numpy as np

from gnnscale.core import Array
from gnnscale.data.labels import Labels
from gnnscale.graph import Split
from gnnscale.graph.store_format import vertex_dtype


def labels_of_all(labels: Labels, vertices: slice, num_vertices: int) -> Array:
    """Return labels ``[num_vertices, ...]`` of all vertices, unknown outside ``vertices``."""
    values = labels.values
    unknown = np.nan if values.dtype.kind == "f" else -1 if values.ndim == 1 else 0
    everywhere = np.full((num_vertices, *values.shape[1:]), unknown, values.dtype)
    everywhere[vertices] = values
    return everywhere


def split_of_all(parts: Sequence[Array], first: int, num_vertices: int) -> Split:
    """Return the split of a graph from ids that count from 0 in a type.

    ``parts`` are training, validation and test; ``first`` is the first vertex of the type.
    """
    dtype = vertex_dtype(num_vertices)
    train, valid, test = ((part + first).astype(dtype) for part in parts)
    return Split(train_idx=train, valid_idx=valid, test_idx=test)
