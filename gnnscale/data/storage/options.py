"""Options of every store that is made: what becomes of published edges and features."""

import logging
from dataclasses import dataclass
from pathlib import Path

from gnnscale.core import ConfigError, check_choice, check_range
from gnnscale.core.artifact import files
from gnnscale.data.storage import edge_packing as edge_words
from gnnscale.data.storage import edge_spool
from gnnscale.graph.dtypes import FEATURE_DTYPES, row_bytes
from gnnscale.graph.store_format import vertex_dtype


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """What is changed on the way from the published files to the store.

    Attributes:
        undirected: store the reverse of every edge too, with the same weight and features.
        drop_duplicates: store edges that are published several times once; their weights are added
            up, and the features of the first are kept.
        self_loops: ``keep`` them, ``remove`` them, or ``add``: exactly one for each vertex, of
            weight 1 and with zeros as features.
        feature_dtype: one of ``FEATURE_DTYPES``, None for what holds the published values. int8 and
            int4 are lossy: rows are whole numbers with a scale each.
        normalize_features: divide each row by its sum, as Kipf & Welling (2017) do.
        standardize: give each column of the features mean 0 and standard deviation 1 over the
            training vertices, and of the features of edges over the training edges; over all if
            there is no such split. A run keeps both, for other graphs that it predicts.
        memory_bytes: what holding and sorting edges and drawing R-MAT takes, beside arrays of all
            vertices.
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
        if self.normalize_features and self.feature_dtype == "uint8":
            raise ConfigError("dataset.feature_dtype=uint8: normalised features are fractions")
        if self.standardize and self.feature_dtype == "uint8":
            raise ConfigError("dataset.feature_dtype=uint8: standardized features are fractions")


_LOG = logging.getLogger(__name__)

#: Slices of edges and of features that are read, converted and written.
_SLICES_BYTES = 256 << 20

#: In-degrees, then offsets, of all vertices; and of those whose lists are sorted at once.
_VERTEX_BYTES, _SORTED_VERTEX_BYTES = 32, 24

#: Of an edge: its label as published and as stored, and the split.
_EDGE_LABEL_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class PrepareEstimate:
    """Sizes of a graph that is to be prepared."""

    num_vertices: int  #: number of vertices
    num_edges: int  #: number of edges, reverse edges and loops that are added included
    num_features: int  #: length of a feature row
    feature_dtype: str  #: the entry of ``FEATURE_DTYPES`` that is stored
    label_bytes: int  #: bytes of a vertex's labels
    weighted: bool  #: whether edges have weights
    num_edge_rows: int = 0  #: published edges if they have features or labels, else 0
    num_edge_features: int = 0  #: length of a row of features
    labelled_edges: bool = False  #: whether edges have labels
    memory_bytes: int  #: what edges may take while they are held and sorted

    @property
    def memory(self) -> int:
        """Max bytes of memory that preparing takes, beside single lists that exceed it."""
        list_bytes = edge_words.EDGE_BYTES if self._packs else self._word_bytes
        edge_bytes = 2 * self._word_bytes + list_bytes  # held, and sorted
        sorting = edge_bytes * self.num_edges + _SORTED_VERTEX_BYTES * self.num_vertices
        vertices = (_VERTEX_BYTES + 2 * self.label_bytes) * self.num_vertices
        read = 16 * self.num_edges + self._feature_bytes + self._edge_feature_bytes
        slices = min(_SLICES_BYTES, 4 * read)
        labels = _EDGE_LABEL_BYTES * self.num_edge_rows * self.labelled_edges
        return vertices + min(sorting, self.memory_bytes) + slices + labels

    @property
    def disk(self) -> int:
        """Max bytes of disk that preparing takes: of the store, and of edges meanwhile."""
        itemsize = vertex_dtype(self.num_vertices).itemsize
        spooled = edge_spool.spooled_bytes(self.num_edges, self._word_bytes, self.memory_bytes)
        has_features = self.num_edge_features > 0
        # Both ends, label and place in the split; meanwhile weights by their rows.
        row = 2 * itemsize + (8 + itemsize) * self.labelled_edges
        row += 4 * (self.weighted and has_features)
        stored = itemsize + 4 * self.weighted + 4 * has_features
        vertices = (8 + self.label_bytes + itemsize) * self.num_vertices
        features = self._feature_bytes + self._edge_feature_bytes
        edges = stored * self.num_edges + row * self.num_edge_rows
        return spooled + edges + vertices + features

    @property
    def _word_bytes(self) -> int:
        """Bytes of a source or destination before it is in a list."""
        return 8 if self._packs else vertex_dtype(self.num_vertices).itemsize

    @property
    def _packs(self) -> bool:
        return self.weighted or self.num_edge_features > 0

    @property
    def _edge_feature_bytes(self) -> int:
        return 4 * self.num_edge_features * self.num_edge_rows

    @property
    def _feature_bytes(self) -> int:
        return self.num_vertices * row_bytes(self.feature_dtype, self.num_features)

    def check(self, what: object, folder: Path) -> None:
        """Log the needs; raise NoSpaceError if memory, or disk in ``folder``, is too small."""
        _LOG.info(
            "%s: %d vertices, up to %d edges; preparing takes up to %s of memory and %s of disk",
            what,
            self.num_vertices,
            self.num_edges,
            files.size(self.memory),
            files.size(self.disk),
        )
        files.check_space(f"{what}: preparing", folder, memory=self.memory, disk=self.disk)
