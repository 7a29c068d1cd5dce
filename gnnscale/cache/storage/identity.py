"""What decides how a cache plan comes out, and so where it is kept and whether it can be used."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from gnnscale.cache.planner import CachePlannerConfig
from gnnscale.cache.task import CacheTask
from gnnscale.dataset.storage.identity import store_place
from gnnscale.partition.storage.identity import Divided, describe, place_in_home, plain

__all__ = ["FORMAT_VERSION", "PlanIdentity", "identify", "plan_place"]

FORMAT_VERSION = 2


@dataclass(frozen=True, kw_only=True)
class PlanIdentity:
    """What decides how a cache plan comes out.

    Attributes:
        graph: the graph whose lists and rows are cached; its content hash covers the features.
        feature_dtype: element type of a row.
        row_bytes: bytes of a row.
        partition: hash of the partition whose parts the devices train; None for a whole graph.
        planner: the class of the policy.
        options: its options, plain values.
        devices: the devices that may have a cache, plain values.
        cliques: positions of those that read each other's caches.
        run: what else decides the batches: seed, epochs, batch size, sampler, order of seeds.
    """

    graph: Divided
    feature_dtype: str
    row_bytes: int
    partition: str | None
    planner: str
    options: dict[str, Any]
    devices: list[dict[str, Any]]
    cliques: list[list[int]]
    run: dict[str, Any]


def identify(
    planner: CachePlannerConfig, task: CacheTask, *, partition: str | None, run: dict[str, Any]
) -> PlanIdentity:
    """Return the identity of the plan that ``planner`` makes of ``task``.

    Args:
        planner: the policy.
        task: what it plans for.
        partition: hash of the partition; None for a whole graph.
        run: what decides the batches beside the task, plain values.
    """
    names = (field.name for field in fields(planner) if field.name != "store")
    return PlanIdentity(
        graph=describe(task.graph),
        feature_dtype=task.graph.feature_dtype,
        row_bytes=task.row_bytes,
        partition=partition,
        planner=f"{type(planner).__module__}.{type(planner).__qualname__}",
        options={name: plain(getattr(planner, name)) for name in names},
        devices=[asdict(device) for device in task.devices],
        cliques=[list(clique) for clique in task.cliques],
        run={
            "seed": task.seed,
            "epochs": task.num_epochs,
            "batch_size": task.batch_size,
            "number of devices": task.num_devices,
            "aggregated_row_bytes": task.aggregated_row_bytes,
            **run,
        },
    )


def plan_place(planner: CachePlannerConfig, identity: PlanIdentity, *, policy: str) -> Path:
    """Return the directory of a cache plan."""
    if planner.store is not None:
        return store_place(planner.store, option="cache_planner.store")
    said = {"format": FORMAT_VERSION, **asdict(identity)}
    return place_in_home("cache_plans", identity.graph.name, policy, said)
