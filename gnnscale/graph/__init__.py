"""Graphs: adjacency lists, features, labels and splits, in memory or in a graph store."""

from gnnscale.graph.dtypes import (
    FEATURE_DTYPES,
    MAX_QUANTIZED,
    as_float32,
    finite,
    row_bytes,
    scales_of,
)
from gnnscale.graph.graph import Graph
from gnnscale.graph.labels import (
    LabelsByType,
    TypeLabels,
    are_labeled,
    check_labeled,
    has_label,
)
from gnnscale.graph.relation import Relation, in_degrees
from gnnscale.graph.schema import EdgeType, GraphSchema, VertexType
from gnnscale.graph.sharded_features import ShardedFeatures
from gnnscale.graph.split import Split, SplitLabels, SplitSource
from gnnscale.graph.store_format import (
    ARRAYS,
    DEGREES,
    EDGE_ARRAYS,
    EDGE_ENDS,
    EDGE_FEATURES,
    GRAPH_STORE,
    ID_FILES,
    MAX_CLASSES,
    MAX_EDGE_ROWS,
    MAX_FEATURES,
    vertex_dtype,
)
from gnnscale.graph.store_meta import read_meta
from gnnscale.graph.task_rows import ROW_METRICS, TaskRows
from gnnscale.graph.times import (
    DATE_CODES,
    NO_TIME,
    TIME_UNITS,
    UNITS_PER_DAY,
    GraphTimes,
    TimeUnit,
    format_time,
)
from gnnscale.graph.topology import EdgeData, EdgeLabels, Origin, damaged_lists, list_sums
from gnnscale.graph.typed_features import FeatureMatrix, InputTypes, TypedFeatures
