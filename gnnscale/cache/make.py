"""Cache plans are made once, checked and stored; from then on they are read."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from gnnscale.cache.aggregate_or_cache import choose_cheaper
from gnnscale.cache.planner import CachePlannerConfig
from gnnscale.cache.storage.identity import PlanIdentity, identify, plan_place
from gnnscale.cache.storage.store import JSON_FILE, NPZ_FILE, StoredPlan, read_plan, write_plan
from gnnscale.cache.task import CacheTask
from gnnscale.core.errors import GraphError, shown
from gnnscale.dataset.storage.folder import new_folder

#: What a report may draw beside a plan.
PICTURE_FILE = "cache_plan.svg"
_LOG = logging.getLogger(__name__)
_FILES = {JSON_FILE, NPZ_FILE, PICTURE_FILE, f".{PICTURE_FILE}.tmp"}


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
    identity = identify(planner, task, partition=partition, run=run)
    path = plan_place(planner, identity, policy=planner.policy)

    def replace() -> bool:
        if force:
            _check_replaceable(path)
            return True
        check_plan(read_plan(path, task.graph), identity)
        return False

    with new_folder(path, replace=replace) as folder:
        if folder is not None:
            _LOG.info(f"planning the caches of {len(task.devices)} devices in {path}")
            began = time.perf_counter()
            plan = choose_cheaper(task, planner.plan(task))
            write_plan(folder, identity, plan, seconds=time.perf_counter() - began)
    return path


def check_plan(stored: StoredPlan, wanted: PlanIdentity) -> None:
    """Raise GraphError, naming what differs, unless ``stored`` was made for ``wanted``."""
    found = stored.identity
    check_parts(stored, wanted.partition)
    pairs = [
        ("planner", wanted.planner, found.planner),
        ("cliques", wanted.cliques, found.cliques),
        ("devices", wanted.devices, found.devices),
        *_options("cache_planner.", wanted.options, found.options),
        *_options("", wanted.run, found.run),
    ]
    for name, now, before in pairs:
        if now != before:
            raise GraphError(
                f"{stored.path}: made with {name}={shown(before)}, now {name}={shown(now)}; name "
                "another cache_planner.store, or run gnnscale plan-cache with force=true"
            )


def _options(
    prefix: str, now: dict[str, Any], before: dict[str, Any]
) -> list[tuple[str, Any, Any]]:
    return [(f"{prefix}{name}", now.get(name), before.get(name)) for name in {**now, **before}]


def check_parts(stored: StoredPlan, partition: str | None) -> None:
    """Raise GraphError, naming both, unless a plan is for ``partition`` (a hash; None if whole)."""
    found = stored.identity.partition
    if found != partition:
        raise GraphError(f"{stored.path}: is for {_parts(found)}, not for {_parts(partition)}")


def _parts(content: str | None) -> str:
    return "a graph without parts" if content is None else f"the partition {shown(content)}"


def _check_replaceable(path: Path) -> None:
    """Raise GraphError if a directory holds anything but a cache plan, even with ``force``."""
    for entry in sorted(path.iterdir()):
        if entry.name not in _FILES or entry.is_dir():
            raise GraphError(
                f"{path}: holds {shown(entry.name)}, which is no file of a cache plan, so it is "
                "not replaced; name another cache_planner.store, or move that away"
            )
