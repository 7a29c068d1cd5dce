from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixture_types import Make
from hypothesis import strategies as st
from small_tasks import small_task

from gnnscale.cache import CacheTask
from gnnscale.cache.hotness.expected import average_reads, expect_reads
from gnnscale.cache.hotness.presampled import DeviceReads, Presampled
from gnnscale.graph import Graph
from gnnscale.partition import Parts
from gnnscale.planner.device_plan import apportion
from gnnscale.sampling import TwoStageOrder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="session")
def graph_of(tiny_graph: Graph) -> Make:
    def make(
        lists: list[list[int]], dtype: Any = np.int32, *, train: Any = None, num_features: int = 2
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
    cliques: Any = None,
    parts: Parts | None = None,
    batch_size: int = 4,
    num_epochs: int = 2,
    **options: Any,
) -> CacheTask:
    options = {"samples": True, "loads": True, "seed": 3} | options
    if parts is not None and parts.owner is not None:
        sizes = apportion([1] * len(budgets), batch_size)
        own = parts.train_vertices(graph.train_idx)
        options["order"] = TwoStageOrder(own, batch_sizes=sizes, seed=3)
    made = small_task(graph, budgets, batch_size=batch_size, num_epochs=num_epochs, **options)
    devices = tuple(each for each in made.devices if each.budget_bytes is not None)
    alone = [(each.position,) for each in devices]
    chosen = tuple(map(tuple, alone if cliques is None else cliques))
    return replace(made, devices=devices, cliques=chosen, parts=parts)


@pytest.fixture(scope="session")
def make_task() -> Make:
    return task_of


@pytest.fixture(scope="session")
def reading() -> Make:
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
        first = Presampled(reads=reads, num_epochs=1)
        # All epochs are like the first.
        changed = replace(task)
        changed.__dict__.update(
            presampled=first,
            expected=expect_reads(first, (), task.inclusion, num_epochs=task.num_epochs),
            counted=average_reads(first, None, num_epochs=task.num_epochs),
        )
        return changed

    return make


@pytest.fixture(scope="session")
def tasks(graph_of: Make) -> Callable[..., st.SearchStrategy[CacheTask]]:
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
        batch_size = draw(st.integers(len(budgets), 6))
        return task_of(
            graph, budgets, cliques=cliques, batch_size=batch_size, fanouts=tuple(fanouts)
        )

    return draw_task
