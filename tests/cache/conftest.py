from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from gnnscale.cache import CacheDevice, CacheTask, Draws
from gnnscale.cache.hotness.expected import CountedReads, ExpectedReads
from gnnscale.cache.hotness.presampled import DeviceReads, Presampled
from gnnscale.graph import Graph
from gnnscale.partition import Parts
from gnnscale.plan.device_plan import apportion
from gnnscale.sampler import NeighborSampling, SeedOrder, ShuffledOrder, TwoStageOrder


@pytest.fixture(scope="session")
def graph_of(tiny_graph: Graph) -> Callable[..., Graph]:
    """Make the graph in which ``lists`` are the in-neighbours of each vertex."""

    def make(
        lists: list[list[int]],
        dtype: Any = np.int32,
        *,
        train: Sequence[int] | None = None,
        num_features: int = 2,
    ) -> Graph:
        return replace(
            tiny_graph.with_split(
                train_idx=np.array(range(len(lists)) if train is None else train)
            ),
            indptr=np.cumsum([0, *map(len, lists)]),
            indices=np.array([u for each in lists for u in each], dtype),
            features=np.zeros((len(lists), num_features), np.float32),
            labels=np.zeros(len(lists), np.int64),
        )

    return make


def task_of(
    graph: Graph,
    budgets: Sequence[int | None],
    *,
    cliques: Sequence[Sequence[int]] | None = None,
    parts: Parts | None = None,
    batch_size: int = 4,
    fanouts: tuple[int, ...] = (2, 2),
    num_epochs: int = 2,
    num_threads: int = 1,
    **device: Any,
) -> CacheTask:
    """Make a task in which each device with a budget has a cache; it samples and loads."""
    order: SeedOrder = ShuffledOrder(graph.train_idx, batch_size=batch_size, seed=3)
    if parts is not None and parts.owner is not None:
        sizes = apportion([1] * len(budgets), batch_size)
        order = TwoStageOrder(parts.train_vertices(graph.train_idx), batch_sizes=sizes, seed=3)
    draws = Draws(
        graph,
        NeighborSampling(fanouts=list(fanouts)),
        order,
        split=partial(apportion, [1] * len(budgets)),
        seed=3,
        num_threads=num_threads,
    )
    devices = tuple(
        CacheDevice(
            position=position,
            name=f"device {position}",
            budget_bytes=budget,
            **({"samples": True, "loads": True, "request_bytes": 64} | device),
        )
        for position, budget in enumerate(budgets)
        if budget is not None
    )
    alone = tuple((each.position,) for each in devices)
    return CacheTask(
        graph=graph,
        devices=devices,
        num_devices=len(budgets),
        cliques=alone if cliques is None else tuple(map(tuple, cliques)),
        parts=parts,
        draws=draws,
        num_epochs=num_epochs,
        batch_size=batch_size,
        fanouts=fanouts,
        aggregated_row_bytes=None,
        seed=3,
    )


@pytest.fixture(scope="session")
def make_task() -> Callable[..., CacheTask]:
    return task_of


@pytest.fixture(scope="session")
def reading() -> Callable[..., CacheTask]:
    """Replace what pre-sampling counts by numbers: for each device its rows and lists."""

    def make(task: CacheTask, *counts: tuple[list[int], list[int]]) -> CacheTask:
        reads = {
            device: DeviceReads(
                rows=np.array(rows, np.int32),
                lists=np.array(lists, np.int32),
                num_rows=sum(rows),
                num_list_reads=sum(lists),
            )
            for device, (rows, lists) in zip(task.device_at, counts, strict=True)
        }
        changed = replace(task)
        first = Presampled(reads=reads, num_epochs=1)
        changed.__dict__["presampled"] = first
        # All epochs are like the first.
        changed.__dict__["expected"] = ExpectedReads(
            first=first, rows={}, lists={}, num_epochs=task.num_epochs
        )
        changed.__dict__["counted"] = CountedReads(
            first=first, later=None, num_epochs=task.num_epochs
        )
        return changed

    return make


@pytest.fixture(scope="session")
def tasks(graph_of: Callable[..., Graph]) -> Callable[..., st.SearchStrategy[CacheTask]]:
    """Draw tasks of a small graph and up to four devices, each of a budget of its own."""

    @st.composite
    def draw_task(draw: st.DrawFn, *, max_devices: int = 4, max_budget: int = 150) -> CacheTask:
        num_vertices = draw(st.integers(2, 12))
        vertices = st.integers(0, num_vertices - 1)
        lists = draw(
            st.lists(st.lists(vertices, max_size=6), min_size=num_vertices, max_size=num_vertices)
        )
        train = draw(st.lists(vertices, unique=True, min_size=1))
        graph = graph_of(
            [sorted(each) for each in lists], train=train, num_features=draw(st.integers(1, 4))
        )
        budgets = draw(st.lists(st.integers(0, max_budget), min_size=1, max_size=max_devices))
        cut = draw(st.integers(1, len(budgets)))
        positions = range(len(budgets))
        cliques = [each for each in (positions[:cut], positions[cut:]) if each]
        fanouts = draw(st.lists(st.sampled_from([-1, 1, 2, 3]), min_size=1, max_size=3))
        return task_of(
            graph,
            budgets,
            cliques=cliques,
            batch_size=draw(st.integers(len(budgets), 6)),
            fanouts=tuple(fanouts),
        )

    return draw_task
