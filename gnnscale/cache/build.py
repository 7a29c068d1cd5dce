"""Aggregate or cache: which moves less over each device's link, priced before training.

The host can aggregate the first layer, so that |V^1| rows cross the link. Or it sends the rows as
they are: (1 - β)·|V^0| of them, β being the cache's hit rate, and the first layer's block.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnnscale.cache import store as stored_plan
from gnnscale.cache.base import CachePlannerConfig
from gnnscale.cache.plan import BatchBytes, CachePlan, CacheTraffic, DeviceCache
from gnnscale.cache.problem import CacheTask, no_vertices
from gnnscale.core import GraphError, shown
from gnnscale.sampling import MiniBatch


def choose_cheaper(task: CacheTask, plan: CachePlan) -> CachePlan:
    """Return ``plan`` with the host aggregating for the devices for which that moves less.

    The devices of a clique read each other's caches, so they decide together. Devices that the host
    cannot aggregate for keep their caches, as do all devices of a plan without a prediction.
    """
    if plan.predicted is None or task.aggregated_row_bytes is None:
        return plan
    predicted = {c.device: t for c, t in zip(plan.devices, plan.predicted, strict=True)}
    priced = {
        each: batch_bytes(task, task.first_batches[each], predicted[each])
        for each in predicted
        if each in task.first_batches and task.device_at[each].may_aggregate
    }
    cliques = [each for each in plan.cliques if _aggregation_moves_less(each, priced)]
    aggregating = {each for clique in cliques for each in clique}
    devices = [
        _aggregated(task, cache) if cache.device in aggregating else cache for cache in plan.devices
    ]
    return replace(
        plan,
        devices=tuple(replace(c, batch_bytes=priced.get(c.device)) for c in devices),
        predicted=tuple(
            _moved(task, priced[each], traffic, plan.num_epochs) if each in aggregating else traffic
            for each, traffic in predicted.items()
        ),
        # What they move is that of the first mini-batch in every step.
        exact=plan.exact and not aggregating,
    )


def batch_bytes(task: CacheTask, batch: MiniBatch, traffic: CacheTraffic) -> BatchBytes:
    """Return what a mini-batch like ``batch`` moves if rows are found as in ``traffic``."""
    assert task.aggregated_row_bytes is not None
    first, rows = batch.blocks[0], sum(traffic.rows)
    missed = traffic.rows[-1] / rows if rows else 1.0
    block = first.indptr.nbytes + first.indices.nbytes
    return BatchBytes(
        cached=round(missed * first.num_src * task.row_bytes) + block,
        aggregated=first.num_dst * task.aggregated_row_bytes,
    )


def _aggregation_moves_less(clique: Sequence[int], priced: Mapping[int, BatchBytes]) -> bool:
    if not all(each in priced for each in clique):
        return False
    cached = sum(priced[each].cached for each in clique)
    return sum(priced[each].aggregated for each in clique) < cached


def _aggregated(task: CacheTask, cache: DeviceCache) -> DeviceCache:
    """Return the empty cache of a device that the host aggregates for."""
    none = no_vertices(task.graph)
    return replace(
        cache,
        features=none,
        topology=none,
        feature_bytes=0,
        topology_bytes=0,
        look_ahead=None,
        host_aggregates=True,
    )


def _moved(
    task: CacheTask, priced: BatchBytes, traffic: CacheTraffic, num_epochs: int
) -> CacheTraffic:
    """Return the traffic of a device that the host aggregates for: no cache is read."""
    moved = priced.aggregated * task.draws.steps_per_epoch * num_epochs
    nothing = (0,) * len(traffic.rows)
    return CacheTraffic(rows=nothing, lists=nothing, transactions=0, link_bytes=moved)


#: What a report may draw beside a plan.
PICTURE_FILE = "cache_plan.svg"
_LOG = logging.getLogger(__name__)


def make_plan(
    planner: CachePlannerConfig,
    task: CacheTask,
    *,
    partition: str | None,
    run: dict[str, Any],
    force: bool = False,
) -> Path:
    """Plan the caches of ``task`` unless that is done already, and return the directory.

    Args:
        planner: the policy.
        task: what is planned for.
        partition: hash of the partition that the devices train over; None for a whole graph.
        run: what else decides the batches.
        force: make it anew in any case.

    Raises:
        ConfigError: the policy does not go with the run.
        GraphError: ``planner.store`` holds something else, or the directory cannot be written.
            Nothing is left there.
    """
    identity = stored_plan.identify(planner, task, partition=partition, run=run)
    path = stored_plan.plan_place(planner, identity, policy=planner.policy)

    def fits() -> None:
        check_plan(stored_plan.read_plan(path, task.graph), identity)

    with stored_plan.CACHE_PLAN.making(path, fits=fits, force=force) as folder:
        if folder is not None:
            _LOG.info(f"planning the caches of {len(task.devices)} devices in {path}")
            began = time.perf_counter()
            plan = choose_cheaper(task, planner.plan(task))
            stored_plan.write_plan(folder, identity, plan, seconds=time.perf_counter() - began)
    return path


def check_plan(stored: stored_plan.StoredPlan, wanted: stored_plan.PlanIdentity) -> None:
    """Raise GraphError, naming what differs, unless ``stored`` was made for ``wanted``."""
    check_parts(stored, wanted.partition)
    stored_plan.CACHE_PLAN.check_same(stored.path, _named(wanted), _named(stored.identity))


def _named(identity: stored_plan.PlanIdentity) -> dict[str, object]:
    return {
        "planner": identity.planner,
        "cliques": identity.cliques,
        "devices": identity.devices,
        **{f"cache_planner.{name}": value for name, value in identity.options.items()},
        **identity.run,
    }


def check_parts(stored: stored_plan.StoredPlan, partition: str | None) -> None:
    """Raise GraphError, naming both, unless a plan is for ``partition`` (a hash; None if whole)."""
    found = stored.identity.partition
    if found != partition:
        raise GraphError(f"{stored.path}: is for {_parts(found)}, not for {_parts(partition)}")


def _parts(content: str | None) -> str:
    return "a graph without parts" if content is None else f"the partition {shown(content)}"
