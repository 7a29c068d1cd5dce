"""Format of graph stores: files, names of arrays, and limits."""

from typing import Any

import numpy as np

from gnnscale.core.artifact import ArtifactType

METRICS = ("accuracy", "micro_f1", "roc_auc", "rmse")
SPLIT_ARRAYS = ("train_idx", "valid_idx", "test_idx")
ARRAYS = ("indptr", "indices", "features", "labels", *SPLIT_ARRAYS)
#: Further array of a part's store: degrees in the full graph.
DEGREES = "degrees"
#: Further array of a shard, a store with the full topology and the feature rows of one part.
OWNER = "owner"
#: Further array of a graph with edge weights.
WEIGHTS = "edge_weights"
#: Further arrays of a graph with edge features: the row of each edge, and the rows.
EDGE_ROWS, EDGE_FEATURES = "edge_rows", "edge_features"
#: Further arrays of a graph with edge features or labels: both ends of each row, labels, split.
EDGE_ENDS, EDGE_LABELS = "edge_ends", "edge_labels"
EDGE_SPLITS = ("edge_train_rows", "edge_valid_rows", "edge_test_rows")
EDGE_ARRAYS = (WEIGHTS, EDGE_ROWS, EDGE_FEATURES, EDGE_ENDS, EDGE_LABELS, *EDGE_SPLITS)
#: Further arrays of a graph with times: those of edges, and of vertices if they have any.
EDGE_TIMES, VERTEX_TIMES = "edge_times", "vertex_times"
#: Further array of a graph with labels and times of edges: the time of each row of ``EDGE_ENDS``.
EDGE_ROW_TIMES = "edge_row_times"
#: Further arrays of a graph with rows of a task: vertices, cut-offs, labels, split.
ROW_VERTICES, ROW_CUTOFFS, ROW_LABELS = "row_vertices", "row_cutoffs", "row_labels"
ROW_SPLITS = ("row_train_idx", "row_valid_idx", "row_test_idx")
TIMED_ARRAYS = (
    *(EDGE_TIMES, VERTEX_TIMES, EDGE_ROW_TIMES, ROW_VERTICES, ROW_CUTOFFS, ROW_LABELS),
    *ROW_SPLITS,
)
#: Files of the users' vertex ids: integers, and texts. A store has at most one of them.
ID_FILES = ("ids.npy", "ids.parquet")
#: Limit of a row's number, which has 32 bits.
MAX_EDGE_ROWS = 1 << 32
#: Limits of the models.
MAX_CLASSES = 1 << 20
MAX_FEATURES = 1 << 16
GRAPH_STORE = ArtifactType(
    name="graph store",
    header="meta.json",
    version=5,
    folder="graphs",
    option="dataset.store",
    command="gnnscale prepare",
    files=r"meta\.json|\.meta\.json\.tmp|ids\.parquet|"
    r"(ids|labels-[0-9]+|(edge_)?features-[0-9]+|"
    rf"{'|'.join((*ARRAYS, DEGREES, OWNER, *EDGE_ARRAYS, *TIMED_ARRAYS))})\.npy",
    max_bytes=4 << 20,
)


def vertex_dtype(num_vertices: int) -> np.dtype[Any]:
    """Return int32 if every vertex id fits, else int64."""
    return np.dtype(np.int32 if num_vertices < 2**31 else np.int64)


def typed_features(vertex_type: int) -> str:
    """Return the name of the array of a vertex type's features, given by its number."""
    return f"features-{vertex_type}"


def typed_labels(vertex_type: int) -> str:
    """Return the name of the array of a vertex type's labels, if several types have labels."""
    return f"labels-{vertex_type}"


def typed_edge_features(edge_type: int) -> str:
    """Return the name of the array of an edge type's features, given by its number."""
    return f"edge_features-{edge_type}"
