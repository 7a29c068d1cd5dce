"""Graphs: adjacency lists, features, labels and splits, in memory or in a graph store."""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names
from gnnscale.graph.graph import Graph, ShardedFeatures
from gnnscale.graph.split import Split, SplitLabels, SplitSource, check_labeled, has_label
from gnnscale.graph.topology import EdgeData, EdgeLabels, Origin, list_sums

if TYPE_CHECKING:
    from gnnscale.graph.dtypes import *  # noqa: F403
    from gnnscale.graph.store_format import *  # noqa: F403

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.graph.dtypes": (
            "FEATURE_DTYPES MAX_QUANTIZED as_float32 finite row_bytes scales_of"
        ),
        "gnnscale.graph.store_format": (
            "ARRAYS DEGREES EDGE_ARRAYS EDGE_ENDS EDGE_FEATURES GRAPH_STORE ID_FILES "
            "MAX_CLASSES MAX_EDGE_ROWS MAX_FEATURES read_meta vertex_dtype"
        ),
    },
)
