"""Stored cache plans: damaged ones are read, shown, drawn and used, and asked for again."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path

import numpy as np

from gnnscale import ops
from gnnscale.cache import (
    CacheDevice,
    CachePlan,
    CachePlannerConfig,
    CacheTask,
    Draws,
    Legion,
    LookAheadCache,
    NoCache,
    StaticCache,
    StoredPlan,
    make_plan,
    read_plan,
)
from gnnscale.cache.stored_plan import identify, write_plan
from gnnscale.graph import Graph
from gnnscale.plan.device_plan import apportion
from gnnscale.sampler import NeighborSampling, Shuffled

from ..case import Input
from ..verdict import WrongResultError
from .artefact import Valid
from .stored import Stored, files_of, small_graph

__all__ = ["CachePlans"]

_NUM_VERTICES, _NUM_EDGES, _NUM_DEVICES, _BUDGET = 60, 300, 3, 200
_FANOUTS, _BATCH_SIZE = [3, 2], 12
#: Options of the command, with which each valid plan was made.
_CONFIGS: tuple[CachePlannerConfig, ...] = (
    StaticCache(name="quiver", hotness="presampled", scope="clique", shared=True),
    Legion(),
    LookAheadCache(name="belady", window=2, match=True),
    NoCache(),
)


class CachePlans(Stored):
    """``read_plan``, the table and the picture, a run's use, and ``make_plan`` where it lies."""

    name = "cache_plan"
    record = "cache_plan.json"
    checksums = True
    kinds = ("kept", "named")

    def __init__(self) -> None:
        super().__init__()
        self._graph = small_graph(_NUM_VERTICES, _NUM_EDGES)

    def valid(self, folder: Path) -> list[Valid]:
        """Plan with each of the configurations."""
        import gnnscale.report.cache_plan
        import gnnscale.runtime.cache.open  # noqa: F401

        found, task = [], _task(self._graph)
        for number, config in enumerate(_CONFIGS):
            plan, path = config.plan(task), folder / str(number)
            path.mkdir()
            identity = identify(config, task, partition=None, run={})
            write_plan(path, identity, plan, seconds=1.5)
            found.append(Valid(files_of(path), (config, plan)))
        return found

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        """Read, draw and use; what is read has to be what was written, or at least possible."""
        config, plan = valid.made_for
        if made.kind == "named":
            place = type(config)(**{**vars(config), "store": str(path)})
            make_plan(place, _task(self._graph), partition=None, run={})
        found = read_plan(path, self._graph)
        _use(found.plan, self._graph)
        if not made.options["agreeing"] and not _same(found.plan, plan):
            raise WrongResultError("other caches than were written")
        _show(found)


def _task(graph: Graph) -> CacheTask:
    """Return what is planned for: three devices that sample, of which two share their caches."""
    devices = tuple(
        CacheDevice(
            position=position,
            name=f"emulated:{position}",
            budget_bytes=_BUDGET,
            samples=True,
            loads=True,
            request_bytes=64,
        )
        for position in range(_NUM_DEVICES)
    )
    order = Shuffled().order(
        graph.train_idx, batch_size=_BATCH_SIZE, num_devices=_NUM_DEVICES, seed=0
    )
    draws = Draws(
        graph,
        NeighborSampling(fanouts=_FANOUTS),
        order,
        split=partial(apportion, [1] * _NUM_DEVICES),
        seed=0,
        num_threads=1,
    )
    return CacheTask(
        graph=graph,
        devices=devices,
        num_devices=_NUM_DEVICES,
        cliques=((0, 1), (2,)),
        parts=None,
        draws=draws,
        num_epochs=1,
        batch_size=_BATCH_SIZE,
        fanouts=tuple(_FANOUTS),
        aggregated_row_bytes=20,
        seed=0,
    )


def _use(plan: CachePlan, graph: Graph) -> None:
    """Use the plan as a run would.

    Raises:
        WrongResultError: no device can have such a cache.
    """
    from gnnscale.cache.cached_features import slots_of
    from gnnscale.runtime.cache.open import cache_effects

    num_devices = 1 + max((each.device for each in plan.devices), default=0)
    if num_devices > _NUM_DEVICES:
        return  # check_given_plan refuses it
    for effect in cache_effects(num_devices, plan):
        if not (0 <= effect.row_misses <= 1 and 0 <= effect.list_misses <= 1):
            raise WrongResultError("more is missed than is read")
    for clique in plan.cliques:
        members = [plan.of(each) for each in clique]
        slots = slots_of(graph.num_vertices, [each.features for each in members])
        vertices = np.arange(graph.num_vertices)
        found = ops.count_slots(slots, vertices, slots.starts, num_threads=1)
        if found[:-1].sum() > sum(len(each.features) for each in members):
            raise WrongResultError("more rows are found than are kept")


def _same(found: CachePlan, written: CachePlan) -> bool:
    return len(found.devices) == len(written.devices) and all(
        np.array_equal(one.features, other.features)
        and np.array_equal(one.topology, other.topology)
        for one, other in zip(found.devices, written.devices, strict=True)
    )


def _show(found: StoredPlan) -> None:
    from rich.console import Console

    from gnnscale.report.cache_plan import draw, print_plan

    stream = io.StringIO()
    print_plan(found, graph="fuzzed", console=Console(file=stream))
    if "\x1b" in stream.getvalue() or "\x1b" in draw(found, graph="fuzzed"):
        raise WrongResultError("control characters are shown")
