"""Rows of a task: vertices to predict as of a cut-off, with labels and a split."""

from dataclasses import dataclass, field

from gnnscale.core import Array, Int64Array, IntArray
from gnnscale.graph.split import Split

#: Metrics of rows; those of regression are ``rmse`` and ``mae``.
ROW_METRICS = ("accuracy", "roc_auc", "rmse", "mae")


@dataclass(frozen=True, kw_only=True)
class TaskRows:
    """Labels of vertices as of cut-offs, and the split of these rows.

    A vertex may stand in many rows. Row ``i`` is predicted from vertices and edges that are known
    at ``cutoffs[i]``.
    """

    name: str  #: name of the graph
    vertices: IntArray  #: ``[num_rows]`` vertex ids
    cutoffs: Int64Array  #: ``[num_rows]`` int64 cut-offs in the unit of ``GraphTimes``
    #: ``[num_rows]`` int64 class, -1 if unknown; or float32 regression target, NaN if unknown
    labels: Array
    num_classes: int  #: number of classes, 1 for regression
    split: Split = field(default_factory=Split)  #: row numbers of training, validation and test
    metric: str = "accuracy"  #: ``accuracy``, ``roc_auc``, ``rmse`` or ``mae``
    classes: list[str] | None = None  #: names of the classes. None: they have no names
    #: names of the columns of vertices and cut-offs in tables of rows
    columns: tuple[str, str] = ("id", "cutoff")

    @property
    def multilabel(self) -> bool:
        """False: a row has one class."""
        return False
