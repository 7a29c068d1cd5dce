"""Cut-offs of a run: its sampler of task rows, and vertices as of their own times.

Importable without torch.
"""

from dataclasses import replace

import numpy as np

from gnnscale.core import ConfigError
from gnnscale.graph import NO_TIME, Graph, Split, TaskRows, are_labeled
from gnnscale.sampling import RowSampling, SamplerConfig


def row_sampling(vertices: SamplerConfig, graph: Graph) -> SamplerConfig:
    """Return options of a sampler whose seeds are rows of ``graph``; without rows ``vertices``."""
    return vertices if graph.rows is None else RowSampling(vertices=vertices, rows=graph.rows)


def with_own_cutoffs(graph: Graph, time: str) -> Graph:
    """Return ``graph`` with a row for each vertex of its split, whose cut-off is the vertex's time.

    A graph with rows is returned unchanged. ``time`` is the rule of ``sampler.time``, for errors.

    Raises:
        ConfigError: vertices of the split have no times or no labels, or labels of several types
            or columns.
    """
    if graph.rows is not None:
        return graph
    option = f"sampler.time={time}"
    if graph.targets or graph.labels.ndim != 1:
        raise ConfigError(
            f"{option}: expected one label a vertex of one type, got {graph.name} with several; "
            "task.target chooses a type"
        )
    parts = [graph.train_idx, graph.valid_idx, graph.test_idx]
    parts = [ids[are_labeled(graph.labels, ids)] for ids in parts]
    vertices = np.concatenate(parts)
    times = None if graph.times is None else graph.times.vertices
    missing = len(vertices) if times is None else int(np.sum(times[vertices] == NO_TIME))
    if missing or not len(vertices) or times is None:
        raise ConfigError(
            f"{option}: expected task rows, or labeled vertices with times as their cut-offs, got "
            f"{graph.name}, where {missing:,} of {len(vertices):,} have none"
        )
    ends = np.cumsum([0, *map(len, parts)]).tolist()
    train, valid, test = (np.arange(*ends[number : number + 2]) for number in range(3))
    rows = TaskRows(
        name=graph.name,
        vertices=vertices,
        cutoffs=np.asarray(times[vertices]),
        labels=np.asarray(graph.labels[vertices]),
        num_classes=graph.num_classes,
        split=Split(train_idx=train, valid_idx=valid, test_idx=test),
        metric=graph.metric,
    )
    return replace(graph, rows=rows)
