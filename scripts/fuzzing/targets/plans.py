"""Stored partitions and cache plans: damaged ones are read, shown, drawn, and asked for again."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale import cache, ops, partition
from gnnscale.cache.store import identify as identify_cache
from gnnscale.cache.store import write_plan
from gnnscale.features.cached import rank_slots
from gnnscale.partition.metrics import PredictedCost, cut_matrix
from gnnscale.partition.store import identify, write_partition
from gnnscale.planner.device_plan import apportion
from gnnscale.report import cache_plan
from gnnscale.report import partition as partition_report
from gnnscale.sampling import NeighborSampling, Shuffled
from gnnscale.training.build.cache import cache_effects

from ..case import Input, WrongResultError
from .folders import Stored, Valid, check_shown, files_of, small_graph

_GRAPH = small_graph()
_NUM_PARTS, _NUM_HOPS = 3, 2
_OWNERS = "owners.npy"
#: Options of the command, with which each valid partition was made.
_CONFIGS = (partition.Hash(), partition.Random(seed=3), partition.P3())


class Partitions(Stored):
    """``read_partition``, the table and the picture, and ``make_partition`` where it lies."""

    name = "partition"
    record = "partition.json"
    checksums = True
    kinds = ("kept", "named")
    leaves = frozenset({"home"})

    def valid(self, folder: Path) -> list[Valid]:
        found = []
        for number, config in enumerate((*_CONFIGS, partition.Hash())):
            made = partition.read_partition(_made(config), _GRAPH)
            parts = made.parts
            if number == len(_CONFIGS):
                parts = _with_hops(parts)
            files = _written(folder / str(number), config, parts, made)
            found.append(Valid(files, (config, parts)))
        parts = found[0].made_for[1]
        np.save(folder / _OWNERS, parts.owner)
        owners = {_OWNERS: (folder / _OWNERS).read_bytes()}
        return [*found, Valid(owners, (partition.FromFile(owners=_OWNERS), parts))]

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        (config, parts), given = valid.made_for, isinstance(valid.made_for[0], partition.FromFile)
        if given:
            path = _made(replace(config, owners=str(path / config.owners)))
        elif made.kind == "named":
            _made(replace(config, store=str(path)))
        found = partition.read_partition(path, _GRAPH)
        _check(found)
        same = np.array_equal(found.parts.owner, parts.owner)  # None equals None alone
        same &= np.array_equal(found.parts.hops, parts.hops)
        if not (made.options["agreeing"] or given or same):
            raise WrongResultError("other parts than were written")
        check_shown(
            partial(partition_report.draw, found, graph="fuzzed"),
            lambda on: partition_report.print_partition(found, graph="fuzzed", console=on),
        )


def _made(config: Any) -> Path:
    sizes = {"num_parts": _NUM_PARTS, "num_hops": _NUM_HOPS}
    return partition.make_partition(config, _GRAPH, **sizes, num_threads=1)


def _with_hops(parts: Any) -> Any:
    """Return the parts with the hops to what each of them reaches."""
    hops = np.full((_NUM_PARTS, _GRAPH.num_vertices), partition.UNREACHED, np.uint8)
    hops[parts.owner[_GRAPH.train_idx], _GRAPH.train_idx] = 0
    for far in range(_NUM_HOPS):
        for part, vertex in np.argwhere(hops == far):
            sources = _GRAPH.indices[_GRAPH.indptr[vertex] : _GRAPH.indptr[vertex + 1]]
            hops[part, sources] = np.minimum(hops[part, sources], far + 1)
    return replace(parts, hops=hops, num_hops=_NUM_HOPS)


def _written(folder: Path, config: Any, parts: Any, made: Any) -> dict[str, bytes]:
    """Return the files of a partition, without the times and the memory that it took."""
    took = PredictedCost(seconds=1.5, peak_rss_bytes=1 << 20)
    figures = replace(made.figures, seconds=1.5, peak_rss_bytes=1 << 20, predicted=took)
    identity = identify(config, _GRAPH, num_parts=_NUM_PARTS, num_hops=_NUM_HOPS)
    if parts.hops is not None:
        identity = replace(identity, num_hops=_NUM_HOPS)
    folder.mkdir()
    write_partition(folder, identity, parts, figures)
    return files_of(folder)


def _check(found: Any) -> None:
    if found.parts.owner is None:
        columns = [column for pair in found.parts.columns or () for column in range(*pair)]
        if columns and columns != list(range(_GRAPH.num_features)):
            raise WrongResultError("columns are missing, or twice")
        return
    cut_matrix(_GRAPH, found.parts.owner, found.parts.num_parts)
    trained = found.parts.train_vertices(_GRAPH.train_idx)
    if not all(map(len, trained)) or sum(map(len, trained)) != len(_GRAPH.train_idx):
        raise WrongResultError("a part trains nothing, or a vertex is trained nowhere")


_NUM_DEVICES = 3
#: Options of the command, with which each valid plan was made.
_PLANNERS = (
    cache.StaticCache(name="quiver", hotness="presampled", scope="clique", shared=True),
    *(cache.Legion(), cache.LookAheadCache(name="belady", window=2, match=True), cache.NoCache()),
)


class CachePlans(Stored):
    """``read_plan``, the table and the picture, a run's use, and ``make_plan`` where it lies."""

    name = "cache_plan"
    record = "cache_plan.json"
    checksums = True
    kinds = ("kept", "named")

    def valid(self, folder: Path) -> list[Valid]:
        found, task = [], _task()
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
            place = replace(config, store=str(path))
            cache.make_plan(place, _task(), partition=None, run={})
        found = cache.read_plan(path, _GRAPH)
        _use(found.plan)
        if not made.options["agreeing"] and not _same_plan(found.plan, plan):
            raise WrongResultError("other caches than were written")
        check_shown(
            partial(cache_plan.draw, found, graph="fuzzed"),
            lambda on: cache_plan.print_plan(found, graph="fuzzed", console=on),
        )


def _task() -> cache.CacheTask:
    """Return what is planned for: three devices that sample, of which two share their caches."""
    common = {"budget_bytes": 200, "samples": True, "loads": True, "request_bytes": 64}
    devices = (cache.CacheDevice(position=k, name=f"emulated:{k}", **common) for k in range(3))
    sizes = {"batch_size": 12, "num_devices": _NUM_DEVICES, "seed": 0}
    order = Shuffled().order(_GRAPH.train_idx, **sizes)
    split, sampling = partial(apportion, [1] * _NUM_DEVICES), NeighborSampling(fanouts=[3, 2])
    draws = cache.Presampler(_GRAPH, sampling, order, split=split, seed=0, num_threads=1)
    run = {"draws": draws, "num_epochs": 1, "fanouts": (3, 2), "parts": None, **sizes}
    cliques = ((0, 1), (2,))
    return cache.CacheTask(
        graph=_GRAPH, devices=tuple(devices), cliques=cliques, aggregated_row_bytes=20, **run
    )


def _use(plan: cache.CachePlan) -> None:
    num_devices = 1 + max((each.device for each in plan.devices), default=0)
    if num_devices > _NUM_DEVICES:
        return  # check_given_plan refuses it
    for effect in cache_effects(num_devices, plan):
        if not (0 <= effect.row_misses <= 1 and 0 <= effect.list_misses <= 1):
            raise WrongResultError("more is missed than is read")
    for clique in plan.cliques:
        members = [plan.of(each) for each in clique]
        slots = rank_slots(_GRAPH.num_vertices, [each.features for each in members])
        found = ops.count_slots(slots, np.arange(_GRAPH.num_vertices), slots.starts, num_threads=1)
        if found[:-1].sum() > sum(len(each.features) for each in members):
            raise WrongResultError("more rows are found than are kept")


def _same_plan(found: cache.CachePlan, written: cache.CachePlan) -> bool:
    kept = [[(d.features, d.topology) for d in each.devices] for each in (found, written)]
    return len(kept[0]) == len(kept[1]) and all(
        np.array_equal(one, other)
        for pairs in zip(*kept, strict=True)
        for one, other in zip(*pairs, strict=True)
    )
