"""Options of graph stores."""

import logging
from dataclasses import dataclass
from pathlib import Path

from gnnscale.core import ConfigError, check_choice, check_range
from gnnscale.core.artifact import files
from gnnscale.data.storage import edge_spool, edge_words
from gnnscale.graph import FEATURE_DTYPES, vertex_dtype

_LOG = logging.getLogger(__name__)
#: Bytes of slices of edges and features that are read, converted and written, at most.
_SLICES_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """Transformations of edges and features from the raw files to the store.

    Attributes:
        undirected: whether the store has the reverse of every edge, with the same weight and
            features.
        drop_duplicates: whether repeated edges become one edge with the sum of the weights and the
            features of the first.
        self_loops: ``keep``, ``remove``, or ``add``: exactly one per vertex, with weight 1 and
            features of zeros.
        feature_dtype: one of ``FEATURE_DTYPES``. None: the type of the raw values. int8 and int4
            are lossy: integers with a scale per row.
        normalize_features: whether each row is divided by its sum, as in Kipf & Welling (2017).
        standardize: whether feature columns have mean 0 and standard deviation 1 over the training
            vertices (edge features: over the training edges), or over all without a split; those of
            categories and of empty cells stay 0 and 1. The run stores both and applies them to
            graphs that it predicts.
        memory_bytes: bytes of memory for spooling and sorting edges and for sampling R-MAT, besides
            arrays of all vertices.
    """

    undirected: bool = False
    drop_duplicates: bool = True
    self_loops: str = "keep"
    feature_dtype: str | None = None
    normalize_features: bool = False
    standardize: bool = False
    memory_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        check_choice("dataset.self_loops", self.self_loops, edge_spool.SELF_LOOPS)
        if self.feature_dtype is not None:
            check_choice("dataset.feature_dtype", self.feature_dtype, FEATURE_DTYPES)
        check_range("dataset.memory_bytes", self.memory_bytes, 1, 1 << 50)
        changed = "normalized" if self.normalize_features else "standardized"
        if (self.normalize_features or self.standardize) and self.feature_dtype == "uint8":
            raise ConfigError(
                f"dataset.feature_dtype=uint8: expected a floating point type, {changed} "
                "features are fractions"
            )

    def check_space(
        self,
        what: object,
        folder: Path,
        *,
        num_vertices: int,
        num_edges: int,
        vertex_bytes: int,
        edge_bytes: int = 0,
        row_bytes: int = 0,
        memory: int | None = None,
    ) -> None:
        """Log the memory and disk that writing a store takes, at most; NoSpaceError: less is free.

        Args:
            what: source of the graph, for messages.
            folder: folder of the store.
            num_vertices: number of vertices.
            num_edges: number of edges in the raw files.
            vertex_bytes: bytes of a vertex's features and labels.
            edge_bytes: bytes of a stored edge besides its source, for its weight and row number.
            row_bytes: bytes of an edge in the raw files that are stored once: features and labels.
            memory: bytes of memory. None: for edges and labels.
        """
        stored = num_edges * (1 + self.undirected) + num_vertices * (self.self_loops == "add")
        itemsize = vertex_dtype(num_vertices).itemsize
        word = 8 if edge_bytes else itemsize
        if memory is None:
            sorting = (2 * word + (edge_words.EDGE_BYTES if edge_bytes else word)) * stored
            memory = 32 * num_vertices + min(sorting + 24 * num_vertices, self.memory_bytes)
            memory += min(_SLICES_BYTES, 64 * stored + 4 * vertex_bytes * num_vertices)
        disk = num_vertices * (vertex_bytes + 8 + itemsize) + stored * (itemsize + edge_bytes)
        disk += edge_spool.spooled_bytes(stored, word, self.memory_bytes) + num_edges * row_bytes
        _LOG.info(
            "%s: %d vertices, up to %d edges; preparing takes up to %s of memory and %s of disk",
            *(what, num_vertices, stored, files.size(memory), files.size(disk)),
        )
        files.check_space(f"{what}: preparing", folder, memory=memory, disk=disk)
