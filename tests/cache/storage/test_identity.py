from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from small_tasks import small_task

from gnnscale.cache import CachePlannerConfig, Legion, LookAheadCache, NoCache, StaticCache
from gnnscale.cache.storage.identity import PlanIdentity, identify, plan_place
from gnnscale.core.errors import ConfigError
from gnnscale.graph import Graph
from gnnscale.partition.storage.identity import describe

DEGREE = StaticCache(name="pagraph", hotness="out_degree", scope="device")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def identity(
    planner: CachePlannerConfig,
    graph: Graph,
    *,
    partition: str | None = None,
    run: dict[str, Any] | None = None,
    **task: Any,
) -> PlanIdentity:
    wanted = small_task(graph, **{"budgets": [16, 8], **task})
    return identify(planner, wanted, partition=partition, run=run or {})


def test_an_identity_says_what_decides_a_plan(tiny_graph: Graph) -> None:
    found = identity(
        dataclasses.replace(DEGREE, store="elsewhere", ratio=0.5),
        tiny_graph,
        partition="ab",
        run={"sampler": "any"},
        cliques=[[0, 1]],
    )
    assert found.graph == describe(tiny_graph)
    assert (found.feature_dtype, found.row_bytes, found.partition) == ("float32", 8, "ab")
    assert found.planner == "gnnscale.cache.policies.StaticCache"
    assert found.options == {
        **{"name": "pagraph", "hotness": "out_degree", "scope": "device"},
        **{"shared": False, "local": False, "budget_bytes": None, "ratio": 0.5},
        **{"reserve": 0.1, "nvlink": None},
    }
    assert [each["budget_bytes"] for each in found.devices] == [16, 8]
    assert found.cliques == [[0, 1]]
    assert found.run == {
        **{"seed": 0, "epochs": 1, "batch_size": 2, "number of devices": 2},
        **{"aggregated_row_bytes": None, "sampler": "any"},
    }
    # It is stored, and compared with what was.
    assert json.loads(json.dumps(dataclasses.asdict(found))) == dataclasses.asdict(found)


def test_each_plan_has_a_place(tiny_graph: Graph, home: Path, tmp_path: Path) -> None:
    def place(planner: CachePlannerConfig, graph: Graph = tiny_graph, **task: Any) -> Path:
        found = identity(planner, graph, **task)
        assert plan_place(planner, found, policy=planner.policy) == plan_place(
            planner, identity(planner, graph, **task), policy=planner.policy
        )
        return plan_place(planner, found, policy=planner.policy)

    ahead = LookAheadCache(name="belady")
    places = [
        place(DEGREE),
        place(dataclasses.replace(DEGREE, scope="all")),
        place(Legion()),
        place(Legion(alpha=0.5)),
        place(ahead),
        place(dataclasses.replace(ahead, match=True)),
        place(DEGREE, dataclasses.replace(tiny_graph, content="other")),
        place(DEGREE, dataclasses.replace(tiny_graph, feature_dtype="bfloat16")),
        place(DEGREE, budgets=[16, 16]),
        place(DEGREE, budgets=[16]),
        place(DEGREE, cliques=[[0, 1]]),
        place(DEGREE, partition="ab"),
        place(DEGREE, seed=1),
        place(DEGREE, num_epochs=2),
        place(DEGREE, batch_size=4),
        place(DEGREE, samples=True),
        place(DEGREE, loads=True),
        place(DEGREE, run={"sampler": "other"}),
    ]
    assert len(set(places)) == len(places)
    assert {each.parent for each in places} == {home / "cache_plans"}
    assert places[0].name.startswith("tiny-pagraph-")
    assert places[2].name.startswith("tiny-legion-")
    named = dataclasses.replace(DEGREE, store=f"{tmp_path}/x")
    assert place(named) == tmp_path / "x"


@pytest.mark.parametrize("name", ["../../etc", "a/b c", "..", "é" * 200, "/"])
def test_a_name_never_leads_elsewhere(tiny_graph: Graph, home: Path, name: str) -> None:
    found = identity(DEGREE, dataclasses.replace(tiny_graph, name=name))
    place = plan_place(DEGREE, found, policy=DEGREE.policy)
    assert place.parent == home / "cache_plans"
    assert len(place.name) < 130
    assert not place.name.startswith(".")


@pytest.mark.parametrize(
    ("store", "reason"),
    [("", "not a path"), ("a\0b", "not a path"), ("/", "the file system's root")],
)
def test_places_that_no_plan_can_have(store: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"^cache_planner\.store=.*{reason}"):
        NoCache(store=store)


def test_the_places_of_others(home: Path) -> None:
    for folder in (home, home / "graphs", home / "partitions", home / "cache_plans"):
        with pytest.raises(ConfigError, match=r"name a directory of its own"):
            NoCache(store=str(folder))
