"""Options of every store that is made: what becomes of published edges and features."""

from dataclasses import dataclass

from gnnscale.artifact.feature_types import FEATURE_DTYPES
from gnnscale.core import ConfigError, check_choice, check_range
from gnnscale.dataset.storage import edge_spool


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
