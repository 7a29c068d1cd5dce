"""Task over rows: vertices to predict as of cut-offs, each row with its label."""

import logging
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gnnscale.core import Array
from gnnscale.graph import TaskRows
from gnnscale.nn import base as trainable
from gnnscale.run.tasks.base import LabelTask
from gnnscale.run.tasks.cutoffs import row_sampling
from gnnscale.sampling import SamplerConfig, SeedOrder

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RowTask(LabelTask):
    """Prediction of the labels of a graph's task rows; a seed is a row number."""

    labelled: ClassVar[str] = "rows"

    @property
    def labels(self) -> TaskRows:
        """Rows with their labels and split."""
        assert self.graph.rows is not None  # ``VertexPrediction.open`` makes other tasks
        return self.graph.rows

    @property
    def seed_vertices(self) -> Array:
        """``[n]`` vertex of each training row."""
        return np.asarray(self.labels.vertices[self.seeds])

    def log_split(self) -> None:
        """Log as for vertices, and warn if rows train as of a later cut-off than is measured."""
        super().log_split()
        rows = self.labels
        last = int(np.max(rows.cutoffs[self.seeds]))
        for part, name in (("valid", "validation"), ("test", "test")):
            numbers = getattr(rows.split, f"{part}_idx")
            early = int(np.count_nonzero(rows.cutoffs[numbers] < last))
            if early:
                _LOG.warning(
                    f"{rows.name}: {early:,} of {len(numbers):,} {name} rows have earlier cut-offs "
                    f"than rows that train (up to {last}), whose labels may tell of theirs; in a "
                    "split by time no row has"
                )

    @property
    def _class_names(self) -> list[str] | None:
        """Names of the classes. None: they have no names."""
        return self.labels.classes

    @property
    def objective(self) -> trainable.Objective:
        """Function from outputs and their mini-batch to the mean loss of the rows' labels."""
        return trainable.row_objective(self.labels, self.loss)

    def sampling(self, vertices: SamplerConfig, order: SeedOrder) -> SamplerConfig:
        """Return options of a sampler of rows; ``vertices`` samples as of their cut-offs."""
        return row_sampling(vertices, self.graph)
