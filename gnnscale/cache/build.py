"""Building of cache plans, and the choice between host aggregation and caching by link bytes.

Either the host aggregates the first layer and sends |V^1| rows; or it sends (1 - β)·|V^0| feature
rows, β being the cache's hit rate, and the first layer's block.
"""

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnnscale.cache import store
from gnnscale.cache.base import CachePlannerConfig
from gnnscale.cache.plan import BatchBytes, CachePlan, CacheTraffic, DeviceCache
from gnnscale.cache.problem import CacheTask, no_vertices
from gnnscale.core import GraphError, brief
from gnnscale.sampling import MiniBatch


def choose_cheaper(task: CacheTask, plan: CachePlan) -> CachePlan:
    """Return ``plan`` with host aggregation for the devices whose links then carry fewer bytes.

    The devices of a clique read each other's caches, so they decide together, and keep their caches
    if the host cannot aggregate for one of them. A plan without a prediction, or for a model that
    does not permit host aggregation, is returned unchanged.
    """
    if plan.predicted is None or task.aggregated_row_bytes is None:
        return plan
    predicted = {c.device: t for c, t in zip(plan.devices, plan.predicted, strict=True)}
    priced = {
        device: batch_bytes(task, task.first_batches[device], traffic)
        for device, traffic in predicted.items()
        if device in task.first_batches and task.device_at[device].may_aggregate
    }
    num_steps = task.draws.steps_per_epoch * plan.num_epochs
    aggregating: set[int] = set()
    for clique in plan.cliques:
        prices = [priced[device] for device in clique if device in priced]
        saved = sum(price.cached - price.aggregated for price in prices)
        if saved > 0 and len(prices) == len(clique):
            aggregating |= set(clique)
    devices = [
        _aggregated(task, cache) if cache.device in aggregating else cache for cache in plan.devices
    ]
    return replace(
        plan,
        devices=tuple(replace(c, batch_bytes=priced.get(c.device)) for c in devices),
        predicted=tuple(
            # Every step moves the aggregated bytes.
            CacheTraffic(
                rows=(0,) * len(traffic.rows),
                lists=(0,) * len(traffic.lists),
                transactions=0,
                link_bytes=priced[device].aggregated * num_steps,
            )
            if device in aggregating
            else traffic
            for device, traffic in predicted.items()
        ),
        # Aggregated bytes are those of the first mini-batch, for every step.
        exact=plan.exact and not aggregating,
    )


def batch_bytes(task: CacheTask, batch: MiniBatch, traffic: CacheTraffic) -> BatchBytes:
    """Return the link bytes of ``batch``'s input, with a cache and with host aggregation.

    With a cache they are the rows missed, at the hit rate of ``traffic``, and the first block.
    """
    assert task.aggregated_row_bytes is not None
    first, rows = batch.blocks[0], sum(traffic.rows)
    missed = traffic.rows[-1] / rows if rows else 1.0
    block = first.indptr.nbytes + first.indices.nbytes
    return BatchBytes(
        cached=round(missed * first.num_src * task.row_bytes) + block,
        aggregated=first.num_dst * task.aggregated_row_bytes,
    )


def _aggregated(task: CacheTask, cache: DeviceCache) -> DeviceCache:
    """Return ``cache`` without content, for a device whose first layer the host aggregates."""
    empty = no_vertices(task.graph)
    return replace(
        cache,
        features=empty,
        topology=empty,
        feature_bytes=0,
        topology_bytes=0,
        matched_bytes=0,
        look_ahead=None,
        host_aggregates=True,
    )


#: Picture that a report may add to a plan's directory.
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
    """Plan the caches of ``task`` unless an equal plan is stored, and return its directory.

    ``partition`` is the hash of the partition that the devices train over; None: a whole graph.
    ``run`` are further settings that determine the batches; ``force`` plans again in any case.
    Raises ConfigError if the policy does not support the run, and GraphError if ``planner.store``
    has other content or cannot be written. A call that raises leaves no files.
    """
    identity = store.identify(planner, task, partition=partition, run=run)
    path = store.plan_place(planner, identity, policy=planner.policy)

    def fits() -> None:
        check_plan(store.read_plan(path, task.graph), identity)

    with store.CACHE_PLAN.making(path, fits=fits, force=force) as folder:
        if folder is not None:
            _LOG.info(f"planning the caches of {len(task.devices)} devices in {path}")
            began = time.perf_counter()
            plan = choose_cheaper(task, planner.plan(task))
            store.write_plan(folder, identity, plan, seconds=time.perf_counter() - began)
    return path


def check_plan(stored: store.StoredPlan, expected: store.PlanIdentity) -> None:
    """Raise GraphError, naming the difference, unless ``stored`` has the identity ``expected``."""
    check_partition(stored, expected.partition)
    store.CACHE_PLAN.check_same(stored.path, _named(expected), _named(stored.identity))


def _named(identity: store.PlanIdentity) -> dict[str, object]:
    return {
        "planner": identity.planner,
        "cliques": identity.cliques,
        "devices": identity.devices,
        **{f"cache_planner.{name}": value for name, value in identity.options.items()},
        **identity.run,
    }


def check_partition(stored: store.StoredPlan, partition: str | None) -> None:
    """Raise GraphError unless a plan is for the ``partition`` of this hash. None: a whole graph."""
    planned = stored.identity.partition
    if planned != partition:
        raise GraphError(
            f"{stored.path}: expected a plan for {_parts(partition)}, got one for {_parts(planned)}"
        )


def _parts(content: str | None) -> str:
    return "a graph without parts" if content is None else f"the partition {brief(content)}"
