"""Task over vertices of several types at once, each with labels of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gnnscale.core import Array, ConfigError, Float64Array
from gnnscale.core.config.user_code import is_name
from gnnscale.core.metrics import find_metric
from gnnscale.graph import Graph
from gnnscale.nn import base as trainable
from gnnscale.run.tasks.base import VertexTask, chosen_metrics, is_defined

#: Name of the metric that selects the best epoch: the mean over vertex types.
MEAN = "mean_of_types"


@dataclass(frozen=True, kw_only=True)
class TypesTask(VertexTask):
    """Prediction of the labels of several vertex types, one task for each.

    A model has one output row for all types, as wide as the widest labels; labels of a type are
    compared with its first columns.
    """

    @cached_property
    def parts(self) -> dict[str, VertexTask]:
        """Task of each labeled type, with the metrics that are defined for its labels."""
        tasks = {
            name: VertexTask(graph=self._view(name), loss=self.loss, vertex_type=name)
            for name in self.graph.targets
        }
        for metric in self.metrics:
            if not any(is_defined(metric, task.graph) for task in tasks.values()):
                chosen_metrics([metric], next(iter(tasks.values())).graph)  # raises the error
        return {
            name: replace(
                task, metrics=[name for name in self.metrics if is_defined(name, task.graph)]
            )
            for name, task in tasks.items()
        }

    def _view(self, name: str) -> Graph:
        graph = self.graph.of_target(name)
        return replace(graph, name=f"{graph.name}: {name}")

    def log_split(self) -> None:
        """Log the split of each type, as a task over one type does."""
        for task in self.parts.values():
            task.log_split()

    def has_part(self, split: str) -> bool:
        """Whether a vertex of part ``split`` (train, valid, test) has a label."""
        return bool(self.rows_by_type(split))

    def rows_by_type(self, split: str) -> dict[str, Array]:
        """Return labeled vertices ``[n]`` of ``split`` by type; types may lack validation or test.

        GraphError: a type has no training vertex.
        """
        return {
            name: task.rows(split)
            for name, task in self.parts.items()
            if split == "train" or task.has_part(split)
        }

    def rows(self, split: str) -> Array:
        """Return labeled vertices ``[n]`` of ``split`` (train, valid, test), type after type."""
        return np.concatenate([*self.rows_by_type(split).values()])

    @property
    def measures(self) -> tuple[str, ...]:
        """Name of the mean over types, then those of each type, such as ``user.accuracy``."""
        by_type = (
            f"{name}.{measure}" for name, task in self.parts.items() for measure in task.measures
        )
        return (MEAN, *by_type)

    @property
    def base_rates(self) -> dict[str, float]:
        """Base rates of the report: none, since ``log_split`` logs those of each type."""
        return {}

    def try_metrics(self) -> None:
        """Call the user's metrics with random outputs; ConfigError if one cannot be used."""
        for task in self.parts.values():
            task.try_metrics()

    @property
    def objective(self) -> trainable.Objective:
        """Sum over types of the mean loss of their seeds, see ``TypesObjective``."""
        return trainable.TypesObjective(
            [
                trainable.TypeObjective(
                    vertex_type=self.graph.vertex_types.index(name),
                    objective=trainable.vertex_objective(task.graph, task.loss),
                    width=task.graph.num_classes,
                    num_seeds=len(task.seeds),
                )
                for name, task in self.parts.items()
            ]
        )

    def refuse_threshold(self, threshold: object) -> None:
        """Raise ConfigError for a ``threshold``, which labels of one type may have."""
        if threshold is not None:
            raise ConfigError(
                f"threshold={threshold}: expected null with labels of several vertex types "
                f"({', '.join(self.parts)}); gnnscale predict takes a number, for one of them"
            )

    def joined(self, by_type: Mapping[str, Mapping[str, float | None]]) -> dict[str, float | None]:
        """Return the metrics of all types by the names in ``measures``, of those of each type.

        The mean is of the first metrics of types that have some. An error, such as RMSE, is
        compared with that of the training labels' mean: it counts as 1 - error / deviation, which
        is 1 for no error and 0 for a model that knows the mean alone. None: one of them is not
        defined, or a type has no vertex in this part.
        """
        first = [
            self._share(name, next(iter(metrics.items()))) for name, metrics in by_type.items()
        ]
        numbers = [value for value in first if value is not None]
        mean = float(np.mean(numbers)) if len(numbers) == len(first) else None
        joined: dict[str, float | None] = {MEAN: mean}
        for name, task in self.parts.items():
            metrics = by_type.get(name, {})
            joined |= {f"{name}.{measure}": metrics.get(measure) for measure in task.measures}
        return joined

    def _share(self, name: str, measured: tuple[str, float | None]) -> float | None:
        """Return the part in the mean of a type's first metric, its name and value."""
        measure, value = measured
        metric = None if is_name(measure) else find_metric(measure)
        if value is None or metric is None or not metric.lower_is_better:
            return value
        deviation = self._deviations[name]
        return 1 - value / deviation if deviation > 0 else None

    @cached_property
    def _deviations(self) -> dict[str, float]:
        """Standard deviation of the training labels of each regressed type, mean of columns."""
        deviations = {}
        for name, task in self.parts.items():
            if task.graph.regression:
                rows: Float64Array = task.graph.labels[task.seeds].astype(np.float64)
                deviations[name] = float(np.mean(np.nanstd(rows, axis=0)))
        return deviations
