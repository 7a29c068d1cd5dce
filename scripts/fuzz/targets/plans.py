"""Stored partitions and cache plans: damaged ones are read, shown, drawn, and asked for again."""

from __future__ import annotations

from dataclasses import replace
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
    make_plan,
    read_plan,
)
from gnnscale.cache.cached_features import slots_of
from gnnscale.cache.stored_plan import identify as identify_cache
from gnnscale.cache.stored_plan import write_plan
from gnnscale.graph import Graph
from gnnscale.partition import (
    P3,
    UNREACHED,
    Given,
    Hash,
    Partition,
    PartitionerConfig,
    Parts,
    Random,
    make_partition,
    read_partition,
)
from gnnscale.partition.figures import Predicted, cut_matrix
from gnnscale.partition.store import identify, write_partition
from gnnscale.plan.device_plan import apportion
from gnnscale.report import cache_plan, partition
from gnnscale.runtime.cache.open import cache_effects
from gnnscale.sampler import NeighborSampling, Shuffled

from ..case import Input, WrongResultError
from .folders import Stored, Valid, check_shown, files_of, small_graph

_NUM_VERTICES, _NUM_EDGES, _NUM_PARTS, _NUM_HOPS = 60, 300, 3, 2
_OWNERS = "owners.npy"
#: Options of the command, with which each valid partition was made.
_CONFIGS: tuple[PartitionerConfig, ...] = (Hash(), Random(seed=3), P3())


class Partitions(Stored):
    """``read_partition``, the table and the picture, and ``make_partition`` where it lies."""

    name = "partition"
    record = "partition.json"
    checksums = True
    kinds = ("kept", "named")
    leaves = frozenset({"home"})

    def __init__(self) -> None:
        super().__init__()
        self._graph = small_graph(_NUM_VERTICES, _NUM_EDGES)

    def valid(self, folder: Path) -> list[Valid]:
        found = []
        for number, config in enumerate((*_CONFIGS, Hash())):
            made = read_partition(_made(config, self._graph), self._graph)
            parts = made.parts
            if number == len(_CONFIGS):
                parts = _with_hops(parts, self._graph)
            files = _written(folder / str(number), config, parts, made, self._graph)
            found.append(Valid(files, (config, parts)))
        np.save(folder / _OWNERS, found[0].made_for[1].owner)
        owners = {_OWNERS: (folder / _OWNERS).read_bytes()}
        return [*found, Valid(owners, (Given(owners=_OWNERS), found[0].made_for[1]))]

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        config, parts = valid.made_for
        if isinstance(config, Given):
            path = _made(Given(owners=str(path / config.owners)), self._graph)
        elif made.kind == "named":
            _made(type(config)(**{**vars(config), "store": str(path)}), self._graph)
        found = read_partition(path, self._graph)
        _check(found, self._graph)
        told_apart = not (made.options["agreeing"] or isinstance(config, Given))
        if told_apart and not _same(found.parts, parts):
            raise WrongResultError("other parts than were written")
        check_shown(
            lambda: partition.draw(found, graph="fuzzed"),
            lambda console: partition.print_partition(found, graph="fuzzed", console=console),
        )


def _made(config: PartitionerConfig, graph: Graph) -> Path:
    return make_partition(config, graph, num_parts=_NUM_PARTS, num_hops=_NUM_HOPS, num_threads=1)


def _with_hops(parts: Parts, graph: Graph) -> Parts:
    """Return the parts with the hops to what each of them reaches."""
    assert parts.owner is not None
    hops = np.full((_NUM_PARTS, graph.num_vertices), UNREACHED, np.uint8)
    hops[parts.owner[graph.train_idx], graph.train_idx] = 0
    for far in range(_NUM_HOPS):
        for part, vertex in np.argwhere(hops == far):
            sources = graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]]
            hops[part, sources] = np.minimum(hops[part, sources], far + 1)
    return replace(parts, hops=hops, num_hops=_NUM_HOPS)


def _written(
    folder: Path, config: PartitionerConfig, parts: Parts, made: Partition, graph: Graph
) -> dict[str, bytes]:
    """Return the files of a partition, without the times and the memory that it took."""
    took = Predicted(seconds=1.5, peak_rss_bytes=1 << 20)
    figures = replace(made.figures, seconds=1.5, peak_rss_bytes=1 << 20, predicted=took)
    identity = identify(config, graph, num_parts=_NUM_PARTS, num_hops=_NUM_HOPS)
    if parts.hops is not None:
        identity = replace(identity, num_hops=_NUM_HOPS)
    folder.mkdir()
    write_partition(folder, identity, parts, figures)
    return files_of(folder)


def _check(found: Partition, graph: Graph) -> None:
    """Use the parts as a run would.

    Raises:
        WrongResultError: no graph can be divided so.
    """
    if found.parts.owner is None:
        columns = [column for pair in found.parts.columns or () for column in range(*pair)]
        if columns and columns != list(range(graph.num_features)):
            raise WrongResultError("columns are missing, or twice")
        return
    cut_matrix(graph, found.parts.owner, found.parts.num_parts)
    trained = found.parts.train_vertices(graph.train_idx)
    if not all(map(len, trained)) or sum(map(len, trained)) != len(graph.train_idx):
        raise WrongResultError("a part trains nothing, or a vertex is trained nowhere")


def _same(found: Parts, written: Parts) -> bool:
    pairs = ((found.owner, written.owner), (found.hops, written.hops))
    return all(
        (one is None) == (other is None) and (one is None or np.array_equal(one, other))
        for one, other in pairs
    )


_NUM_DEVICES, _BUDGET = 3, 200
_FANOUTS, _BATCH_SIZE = [3, 2], 12
#: Options of the command, with which each valid plan was made.
_PLANNERS: tuple[CachePlannerConfig, ...] = (
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
        found, task = [], _task(self._graph)
        for number, config in enumerate(_PLANNERS):
            plan, path = config.plan(task), folder / str(number)
            path.mkdir()
            identity = identify_cache(config, task, partition=None, run={})
            write_plan(path, identity, plan, seconds=1.5)
            found.append(Valid(files_of(path), (config, plan)))
        return found

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        config, plan = valid.made_for
        if made.kind == "named":
            place = type(config)(**{**vars(config), "store": str(path)})
            make_plan(place, _task(self._graph), partition=None, run={})
        found = read_plan(path, self._graph)
        _use(found.plan, self._graph)
        if not made.options["agreeing"] and not _same_plan(found.plan, plan):
            raise WrongResultError("other caches than were written")
        check_shown(
            lambda: cache_plan.draw(found, graph="fuzzed"),
            lambda console: cache_plan.print_plan(found, graph="fuzzed", console=console),
        )


def _task(graph: Graph) -> CacheTask:
    """Return what is planned for: three devices that sample, of which two share their caches."""
    common = {"budget_bytes": _BUDGET, "samples": True, "loads": True, "request_bytes": 64}
    devices = tuple(
        CacheDevice(position=each, name=f"emulated:{each}", **common)
        for each in range(_NUM_DEVICES)
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


def _same_plan(found: CachePlan, written: CachePlan) -> bool:
    return len(found.devices) == len(written.devices) and all(
        np.array_equal(one.features, other.features)
        and np.array_equal(one.topology, other.topology)
        for one, other in zip(found.devices, written.devices, strict=True)
    )
