"""What caches are planned for: some devices with a link, on a small graph."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from gnnscale.cache import CacheDevice, CacheTask, Presampler
from gnnscale.graph import Graph
from gnnscale.planner.device_plan import apportion
from gnnscale.sampling import NeighborSampling, SeedOrder, Shuffled

__all__ = ["small_task"]


def small_task(
    graph: Graph,
    budgets: Sequence[int | None],
    *,
    cliques: Sequence[Sequence[int]] | None = None,
    order: SeedOrder | None = None,
    split: Sequence[int] | None = None,
    batch_size: int = 2,
    fanouts: Sequence[int] = (2, 2),
    num_epochs: int = 1,
    seed: int = 0,
    num_threads: int = 1,
    **device: Any,
) -> CacheTask:
    """Return a task of devices with ``budgets`` bytes each, all of them alone where not said."""
    device = {"samples": False, "loads": False, "request_bytes": 64, **device}
    devices = tuple(
        CacheDevice(position=position, name=f"emulated:{position}", budget_bytes=budget, **device)
        for position, budget in enumerate(budgets)
    )
    sampler = NeighborSampling(fanouts=list(fanouts))
    if order is None:
        order = Shuffled().order(
            graph.train_idx, batch_size=batch_size, num_devices=len(devices), seed=seed
        )
    draws = Presampler(
        graph,
        sampler,
        order,
        split=partial(apportion, split or [1] * len(devices)),
        seed=seed,
        num_threads=num_threads,
    )
    return CacheTask(
        graph=graph,
        devices=devices,
        num_devices=len(devices),
        cliques=tuple(map(tuple, cliques or [[each.position] for each in devices])),
        parts=None,
        draws=draws,
        num_epochs=num_epochs,
        batch_size=batch_size,
        fanouts=tuple(fanouts),
        aggregated_row_bytes=None,
        seed=seed,
    )
