"""Checks of a cache plan that was read: whether any device can keep, and read, what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gnnscale.cache.cache_plan import MAX_WINDOW, CachePlan, CacheTraffic, DeviceCache
from gnnscale.cache.task import list_bytes, row_bytes
from gnnscale.core.errors import GraphError, printable, shown
from gnnscale.graph import Graph

__all__ = ["check_plan_figures"]

#: Characters of a name or a note.
_MAX_TEXT = 1000
#: More than that is no device's memory, and no run's reads.
_MAX_BYTES, _MAX_COUNT = 1 << 60, 10**14
_MAX_SECONDS = 1e12

#: A figure's name, its value, and the most that it can be.
_Limit = tuple[str, float, float]


def check_plan_figures(file: Path, plan: CachePlan, graph: Graph, *, seconds: float) -> None:
    """Refuse figures that no plan for ``graph`` can have.

    Args:
        file: named in errors.
        plan: what was read; its vertices are some of the graph's.
        graph: whose rows and lists are kept.
        seconds: how long planning took.

    Raises:
        GraphError: names ``file`` and the figure.
    """
    for text in (plan.planner, *plan.notes, *(cache.name for cache in plan.devices)):
        if len(text) > _MAX_TEXT or not printable(text):
            raise GraphError(f"{file}: {shown(text)!r} is no line of up to {_MAX_TEXT} characters")
    for cache in plan.devices:
        _check_sizes(file, cache, graph)
    for told in plan.predicted or ():
        _check_places(file, told, plan)
    for name, value, limit in _limits(plan, graph, seconds):
        if not 0 <= value <= limit:
            raise GraphError(f"{file}: {name} is {value}, allowed is a number from 0 to {limit}")


def _check_sizes(file: Path, cache: DeviceCache, graph: Graph) -> None:
    """Refuse a cache that takes more or less memory than what it holds."""
    num_rows = len(cache.features)
    if cache.look_ahead is not None:
        num_rows += cache.look_ahead.num_rows
    sizes = {
        "feature_bytes": (cache.feature_bytes, num_rows * row_bytes(graph)),
        "topology_bytes": (cache.topology_bytes, list_bytes(graph, cache.topology)),
    }
    for name, (told, needed) in sizes.items():
        if told != needed:
            raise GraphError(
                f"{file}: devices.{cache.device}.{name} is {told}, but what it keeps takes {needed}"
            )


def _check_places(file: Path, told: CacheTraffic, plan: CachePlan) -> None:
    """Refuse traffic that does not say of every device, and of the host, what is read there."""
    assert plan.predicted is not None
    first = plan.predicted[0]
    needed = max((cache.device for cache in plan.devices), default=-1) + 2
    sizes = {len(told.rows), len(told.lists)}
    if sizes != {len(first.rows)} or len(first.rows) < needed:
        raise GraphError(
            f"{file}: predicted.devices reads at {shown(sorted(sizes))} places, needed are the "
            f"devices of the plan and the host, {needed} at least"
        )


def _limits(plan: CachePlan, graph: Graph, seconds: float) -> Iterator[_Limit]:
    """Each figure with its name and the most that it can be."""
    yield "seconds", seconds, _MAX_SECONDS
    yield "predicted.num_epochs", plan.num_epochs, _MAX_COUNT
    for cache in plan.devices:
        yield f"devices.{cache.device}.budget_bytes", cache.budget_bytes, _MAX_BYTES
        matches = cache.look_ahead is not None and cache.look_ahead.match
        all_rows = graph.num_vertices * row_bytes(graph) if matches else 0
        yield f"devices.{cache.device}.matched_bytes", cache.matched_bytes, all_rows
        if cache.batch_bytes is not None:
            for name, value in vars(cache.batch_bytes).items():
                yield f"devices.{cache.device}.batch_bytes.{name}", value, _MAX_BYTES
        if cache.look_ahead is not None:
            where = f"devices.{cache.device}.look_ahead"
            yield f"{where}.window", cache.look_ahead.window, MAX_WINDOW
            yield f"{where}.num_rows", cache.look_ahead.num_rows, graph.num_vertices
    for alpha in plan.alphas:
        if alpha is not None:
            yield "alpha", alpha, 1
    for told in plan.predicted or ():
        for name in ("rows", "lists"):
            found = getattr(told, name)
            yield f"predicted.devices.{name}", min(found), _MAX_COUNT
            yield f"predicted.devices.{name}", sum(found), _MAX_COUNT
        yield "predicted.devices.transactions", told.transactions, _MAX_BYTES
        yield "predicted.devices.link_bytes", told.link_bytes, _MAX_BYTES
    for point in plan.curve:
        yield "curve.alpha", point.alpha, 1
        for name in ("n_t", "n_f", "n_total"):
            yield f"curve.{name}", getattr(point, name), _MAX_BYTES
