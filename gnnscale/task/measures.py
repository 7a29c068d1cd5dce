"""What a run measures of its predictions, and how good they can be."""

from __future__ import annotations

from collections.abc import Sequence

from gnnscale.core.errors import ConfigError
from gnnscale.core.metrics import QUALITY
from gnnscale.graph import Graph
from gnnscale.model.losses import label_kind

__all__ = ["ceiling", "chosen_metrics"]


def chosen_metrics(names: Sequence[str], graph: Graph) -> tuple[str, ...]:
    """Return what a run measures: what was asked for, or the graph's own metric.

    Args:
        names: of ``gnnscale.core.metrics.QUALITY``; none for the graph's own.
        graph: that is trained on.

    Raises:
        ConfigError: the graph's labels are not what a metric is of.
    """
    kind = label_kind(graph.labels)
    for name in names:
        if not _fits(name, kind, graph.num_classes):
            known = ", ".join(each for each in QUALITY if _fits(each, kind, graph.num_classes))
            raise ConfigError(
                f"metrics: {name} is not defined for the labels of {graph.name}; "
                f"allowed are {known}"
            )
    return tuple(names) or (graph.metric,)


def _fits(name: str, kind: str, num_classes: int) -> bool:
    metric = QUALITY[name]
    if kind == "classes" and metric.two_classes and num_classes != 2:
        return False
    return kind in metric.labels


def ceiling(graph: Graph, metric: str) -> float | None:
    """Return the best test ``metric`` that the graph's generator allows, None where not known."""
    return graph.attainable_accuracy if metric == "accuracy" else None
