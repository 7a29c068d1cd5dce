"""Aggregate or cache: which moves less over each device's link, priced before training.

The host can aggregate the first layer, so that |V^1| rows cross the link. Or it sends the rows as
they are: (1 - β)·|V^0| of them, β being the cache's hit rate, and the first layer's block.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gnnscale.cache.cache_plan import BatchBytes, CachePlan, CacheTraffic, DeviceCache
from gnnscale.cache.task import CacheTask, no_vertices
from gnnscale.sampler import MiniBatch


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
