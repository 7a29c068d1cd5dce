"""Cut-offs of a run: its sampler of task rows, and vertices and edges as of their own times.

Importable without torch.
"""

from dataclasses import replace

import numpy as np

from gnnscale.core import ConfigError
from gnnscale.graph import NO_TIME, Graph, Split, TaskRows, are_labeled
from gnnscale.sampling import FanoutSampling, RowSampling, SamplerConfig
from gnnscale.sampling.cutoff_edges import CutoffEdges


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


def with_edge_cutoffs(graph: Graph, time: str | None) -> Graph:
    """Return ``graph`` whose mini-batches are as of the times of labeled edges, if these have some.

    ``time`` is the rule of ``sampler.time``; with ``none`` the graph is returned unchanged.
    ConfigError: there is another rule, and labeled edges have no times.
    """
    if time == "none" or (time is None and graph.edges.row_times is None):
        return graph
    if graph.edges.row_times is None:
        raise ConfigError(
            f"sampler.time={time}: expected labeled edges with times, got {graph.name} without; "
            "dataset.edge_time names their column"
        )
    return replace(graph, samples_by_time=True)


def before_edges(sampler: SamplerConfig) -> FanoutSampling:
    """Return ``sampler`` with a rule of time for predicted edges: by default their past alone.

    ConfigError: ``sampler`` has no such rules.
    """
    if not isinstance(sampler, FanoutSampling):
        raise ConfigError(
            "sampler: expected neighbor, labor, weighted or full for predicted edges with times, "
            f"got {type(sampler).__name__}; sampler.time=none of those regards no times"
        )
    return replace(sampler, time=sampler.time or "seed", bound=sampler.bound or "strict")


def listed_cutoff_edges(graph: Graph, sampler: FanoutSampling) -> CutoffEdges | None:
    """Return the edges that may be predicted, which send no messages as of their own times.

    None: the bound of ``sampler`` is strict, which leaves out all edges of these times.
    """
    rule = sampler.time_rule(has_cutoffs=True)
    ends, times = graph.edges.ends, graph.edges.row_times
    if rule is None or rule.is_strict or ends is None or times is None:
        return None
    return CutoffEdges(np.asarray(ends), np.asarray(times), num_vertices=graph.num_vertices)
