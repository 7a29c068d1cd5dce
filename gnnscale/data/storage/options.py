"""Options of graph stores, and the estimate of the memory and disk that preparing takes."""

import logging
from dataclasses import dataclass
from pathlib import Path

from gnnscale.core import ConfigError, check_choice, check_range
from gnnscale.core.artifact import files
from gnnscale.data.storage import edge_spool
from gnnscale.graph import FEATURE_DTYPES, row_bytes, vertex_dtype


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
            vertices (edge features: over the training edges), or over all without a split. The run
            stores both and applies them to graphs that it predicts.
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


_LOG = logging.getLogger(__name__)

#: Bytes of slices of edges and features that are read, converted and written, at most.
_SLICES_BYTES = 256 << 20
#: Bytes per vertex for in-degrees and offsets, and per vertex of a range that is sorted.
_VERTEX_BYTES, _SORTED_VERTEX_BYTES = 32, 24
#: Bytes per edge for its raw and stored label, and the split.
_EDGE_LABEL_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class PrepareEstimate:
    """Estimate of the memory and disk that writing a graph's store takes, from its sizes."""

    num_vertices: int  #: number of vertices
    num_edges: int  #: number of edges, including reverse edges and added loops
    num_features: int  #: length of a vertex feature row
    feature_dtype: str  #: stored type, one of ``FEATURE_DTYPES``
    label_bytes: int  #: bytes of the labels of a vertex
    weighted: bool  #: whether edges have weights
    num_edge_rows: int = 0  #: edges in the raw files that have features or labels
    num_edge_features: int = 0  #: length of an edge feature row
    has_edge_labels: bool = False  #: whether edges have labels
    memory_bytes: int  #: bytes for spooling and sorting edges, at most

    @property
    def memory(self) -> int:
        """Bytes of memory that writing the store takes, at most; more for a huge neighbor list."""
        list_bytes = edge_spool.EDGE_BYTES if self._packs else self._word_bytes
        edge_bytes = 2 * self._word_bytes + list_bytes  # spooled, and sorted
        sorting = edge_bytes * self.num_edges + _SORTED_VERTEX_BYTES * self.num_vertices
        vertices = (_VERTEX_BYTES + 2 * self.label_bytes) * self.num_vertices
        slices = min(_SLICES_BYTES, 4 * (16 * self.num_edges + self._feature_bytes))
        labels = _EDGE_LABEL_BYTES * self.num_edge_rows * self.has_edge_labels
        return vertices + min(sorting, self.memory_bytes) + slices + labels

    @property
    def disk(self) -> int:
        """Bytes of disk that writing the store takes, at most: the store, and spooled edges."""
        itemsize = vertex_dtype(self.num_vertices).itemsize
        spooled = edge_spool.spooled_bytes(self.num_edges, self._word_bytes, self.memory_bytes)
        has_features = self.num_edge_features > 0
        # Both ends, label and split; and temporarily the weights by row.
        row = 2 * itemsize + (8 + itemsize) * self.has_edge_labels
        row += 4 * (self.weighted and has_features)
        stored = itemsize + 4 * self.weighted + 4 * has_features
        vertices = (8 + self.label_bytes + itemsize) * self.num_vertices
        edges = stored * self.num_edges + row * self.num_edge_rows
        return spooled + edges + vertices + self._feature_bytes

    @property
    def _word_bytes(self) -> int:
        """Bytes of a source or destination of a spooled edge."""
        return 8 if self._packs else vertex_dtype(self.num_vertices).itemsize

    @property
    def _packs(self) -> bool:
        return self.weighted or self.num_edge_features > 0

    @property
    def _feature_bytes(self) -> int:
        """Bytes of the stored features of vertices and edges."""
        edges = 4 * self.num_edge_features * self.num_edge_rows
        return edges + self.num_vertices * row_bytes(self.feature_dtype, self.num_features)

    def check(self, what: object, folder: Path) -> None:
        """Log the estimate of ``what``; NoSpaceError: memory, or disk in ``folder``, is short."""
        sizes = files.size(self.memory), files.size(self.disk)
        _LOG.info(
            "%s: %d vertices, up to %d edges; preparing takes up to %s of memory and %s of disk",
            *(what, self.num_vertices, self.num_edges, *sizes),
        )
        files.check_space(f"{what}: preparing", folder, memory=self.memory, disk=self.disk)
