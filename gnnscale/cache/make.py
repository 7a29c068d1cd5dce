"""Cache plans are made once, checked and stored; from then on they are read."""

import logging
import time
from pathlib import Path
from typing import Any

from gnnscale.cache import aggregate_or_cache, stored_plan
from gnnscale.cache.planner import CachePlannerConfig
from gnnscale.cache.task import CacheTask
from gnnscale.core import GraphError, shown

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
            plan = aggregate_or_cache.choose_cheaper(task, planner.plan(task))
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
