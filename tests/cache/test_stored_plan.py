from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_tasks import small_task

from gnnscale.cache import (
    CachePlan,
    CachePlannerConfig,
    CacheTraffic,
    CurvePoint,
    DeviceCache,
    Legion,
    LookAhead,
    LookAheadCache,
    NoCache,
    StaticCache,
    StoredPlan,
)
from gnnscale.cache.cache_plan import BatchBytes
from gnnscale.cache.stored_plan import (
    CACHE_PLAN,
    PlanIdentity,
    check_plan_figures,
    identify,
    plan_place,
    read_plan,
    write_plan,
)
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.core.records import decode
from gnnscale.graph import Graph, Origin
from gnnscale.partition.store import describe

JSON_FILE = CACHE_PLAN.header


def ids(*vertices: int) -> Any:
    return np.array(vertices, np.int32)


#: Two devices that share, and one whose rows follow the batches to come.
PLAN = CachePlan(
    planner="legion",
    cliques=((0, 2), (3,)),
    devices=(
        DeviceCache(
            device=0,
            name="a",
            budget_bytes=100,
            features=ids(4, 1),
            topology=ids(2),  # 0 and 3 are its neighbours
            feature_bytes=16,
            topology_bytes=16,
        ),
        DeviceCache(
            device=2,
            name="b",
            budget_bytes=50,
            features=ids(),
            topology=ids(0, 1, 2, 3),
            feature_bytes=0,
            topology_bytes=52,
            host_aggregates=True,
        ),
        DeviceCache(
            device=3,
            name="c",
            budget_bytes=24,
            features=ids(),
            topology=ids(),
            feature_bytes=24,
            topology_bytes=0,
            look_ahead=LookAhead(window=2, num_rows=3, match=True),
            matched_bytes=16,
        ),
    ),
    alphas=(0.5, None),
    predicted=(
        CacheTraffic(rows=(3, 0, 2, 0, 5), lists=(1, 0, 1, 0, 0), transactions=9, link_bytes=40),
        CacheTraffic(rows=(0, 0, 0, 0, 4), lists=(2, 0, 3, 0, 1), transactions=8, link_bytes=32),
        CacheTraffic(rows=(0, 0, 0, 6, 0), lists=(0, 0, 0, 0, 0), transactions=0, link_bytes=0),
    ),
    num_epochs=2,
    exact=True,
    curve=(
        CurvePoint(alpha=0.0, n_t=4, n_f=1, n_total=5),
        CurvePoint(alpha=1.0, n_t=0, n_f=3, n_total=3),
    ),
    notes=("a note",),
)


def write(folder: Path, graph: Graph, plan: CachePlan = PLAN) -> Path:
    task = small_task(graph, [100, 0, 50, 24])
    identity = identify(NoCache(), task, partition="ab", run={"sampler": {"fanouts": [2, 2]}})
    folder.mkdir(exist_ok=True)
    write_plan(folder, identity, plan, seconds=1.5)
    return folder


@pytest.fixture
def stored(tmp_path: Path, tiny_graph: Graph) -> Path:
    return write(tmp_path / "p", tiny_graph)


def same(left: CachePlan, right: CachePlan) -> bool:
    """Whether plans are the same; arrays have no equality of their own."""

    def without_arrays(plan: CachePlan) -> dict[str, Any]:
        devices = [
            dataclasses.replace(
                each, features=each.features.tolist(), topology=each.topology.tolist()
            )
            for each in plan.devices
        ]
        return {**vars(plan), "devices": devices}

    return without_arrays(left) == without_arrays(right)


def test_what_is_written_is_read(stored: Path, tiny_graph: Graph) -> None:
    found = read_plan(stored, tiny_graph)
    assert isinstance(found, StoredPlan)
    assert same(found.plan, PLAN)
    assert found.plan.devices[0].features.dtype == np.int32
    assert (found.seconds, found.path) == (1.5, stored)
    assert found.identity.partition == "ab"
    assert found.identity.run["sampler"] == {"fanouts": [2, 2]}
    assert found.identity.graph.num_vertices == 5
    by_file = read_plan(stored / JSON_FILE, tiny_graph)
    assert (by_file.content, by_file.path) == (found.content, stored)


def test_figures_are_there_to_be_read(stored: Path) -> None:
    said = json.loads((stored / JSON_FILE).read_text())
    # Half of the 150 bytes of the clique that has an alpha.
    assert said["alpha"] == 0.5
    predicted = said["predicted"]
    assert (predicted["pcie_transactions"], predicted["link_bytes"]) == (17, 72)
    assert predicted["feature_hit_rate"] == pytest.approx(1 - 9 / 20)
    assert predicted["topology_hit_rate"] == pytest.approx(1 - 1 / 8)
    assert (said["seconds"], said["notes"]) == (1.5, ["a note"])
    assert said["devices"][0] == {
        **{"device": 0, "name": "a", "budget_bytes": 100, "topology_bytes": 16},
        **{"feature_bytes": 16, "num_cached_topology": 1, "num_cached_features": 2},
        **{"look_ahead": None, "host_aggregates": False, "batch_bytes": None},
        **{"matched_bytes": 0},
    }
    assert sorted(each.name for each in stored.iterdir()) == [
        JSON_FILE,
        *(f"{kind}_{device}.npy" for kind in ("features", "topology") for device in (0, 2, 3)),
    ]


def test_plans_of_no_cache_and_no_prediction(tmp_path: Path, tiny_graph: Graph) -> None:
    none = CachePlan(planner="none", cliques=(), devices=(), alphas=(), predicted=None)
    assert same(read_plan(write(tmp_path / "none", tiny_graph, none), tiny_graph).plan, none)
    plan = dataclasses.replace(PLAN, predicted=None, curve=(), notes=())
    assert same(read_plan(write(tmp_path / "p", tiny_graph, plan), tiny_graph).plan, plan)


def test_content_tells_plans_apart(tmp_path: Path, tiny_graph: Graph) -> None:
    def content(name: str, **fields: Any) -> str:
        first = dataclasses.replace(PLAN.devices[0], **fields)
        plan = dataclasses.replace(PLAN, devices=(first, *PLAN.devices[1:]))
        return read_plan(write(tmp_path / name, tiny_graph, plan), tiny_graph).content

    assert content("a") == content("b")
    contents = [
        content("a"),
        content("c", features=ids(1, 4)),
        content("d", topology=ids(1), topology_bytes=12),
        content("e", budget_bytes=99),
        content("f", look_ahead=LookAhead(window=1, num_rows=0, match=False)),
        content("g", host_aggregates=True),
    ]
    assert len(set(contents)) == len(contents)


def refused(stored: Path, graph: Graph) -> str:
    """The one line that is said of a damaged plan."""
    with pytest.raises(GraphError) as error:
        read_plan(stored, graph)
    line = str(error.value)
    assert line.startswith(str(stored))
    assert line.isprintable()
    return line


def test_what_is_no_plan(tmp_path: Path, stored: Path, tiny_graph: Graph) -> None:
    assert "not a cache plan, it has no cache_plan.json" in refused(tmp_path, tiny_graph)
    assert "not a cache plan" in refused(tmp_path / "nowhere", tiny_graph)
    (stored / "features_2.npy").unlink()
    assert "features_2.npy: missing; run gnnscale plan-cache" in refused(stored, tiny_graph)


def test_plans_of_other_data(
    stored: Path, tiny_graph: Graph, random_graph: Callable[..., Graph]
) -> None:
    assert refused(stored, random_graph(num_features=2)).startswith(
        f"{stored}: is a cache plan of tiny (5 vertices, content "
    )
    assert "not of tiny (5 vertices, content " in refused(
        stored, tiny_graph.with_split(train_idx=np.array([1]))
    )
    halves = dataclasses.replace(
        tiny_graph, features=tiny_graph.features.astype(np.float16), feature_dtype="float16"
    )
    assert refused(stored, halves).endswith(
        "is for rows of 8 bytes in float32, not of 4 bytes in float16"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format_version": 2}, "format version 2, this release reads 3"),
        ({"planner": 3}, "entry.planner: Expected `str`, got `int`"),
        ({"seconds": None}, "entry.seconds: Expected `float`, got `null`"),
        ({"devices": [{}]}, "entry.devices[0]: Object missing required field `device`"),
        ({"devices": []}, "devices [] are not those of the cliques [0, 2, 3]"),
        ({"cliques": [{"devices": [0, 2], "alpha": None}]}, "are not those of the cliques [0, 2]"),
        (
            {"cliques": [{"devices": each, "alpha": None} for each in ([0, 2], [3], [])]},
            "entry.cliques[2].devices: Expected `array` of length >= 1",
        ),
        (
            {"cliques": [{"devices": each, "alpha": None} for each in ([0, 2], [2, 3])]},
            "are not those of the cliques [0, 2, 2, 3]",
        ),
        ({"arrays": {}}, "arrays are [], allowed are ['features_0', "),
        ({"identity": None}, "entry.identity: Expected `object`, got `null`"),
        ({"identity": {"options": 3}}, "entry.identity.options: Expected `object`, got `int`"),
        ({"predicted": {}}, "entry.predicted: Object missing required field `pcie_transactions`"),
        ({"seconds": -1}, "entry.seconds: Expected `float` >= 0"),
        (
            {"cliques": [{"devices": [0], "alpha": 1.5}]},
            "entry.cliques[0].alpha: Expected `float` <= 1",
        ),
        ({"curve": [{"alpha": 0.5, "n_t": 1, "n_f": 1e300, "n_total": 3}]}, "entry.curve[0].n_f: "),
        ({"notes": ["\x1b[2J"]}, "'\\\\x1b[2J' is no line of up to 1000 characters"),
    ],
)
def test_damaged_figures(stored: Path, tiny_graph: Graph, changes: Any, said: str) -> None:
    file = stored / JSON_FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    assert said in refused(stored, tiny_graph)


def test_a_number_of_vertices_that_the_graph_has_not(stored: Path, tiny_graph: Graph) -> None:
    file = stored / JSON_FILE
    said = json.loads(file.read_text())
    said["devices"][1]["num_cached_topology"] = 6
    file.write_text(json.dumps(said))
    assert "devices.2 caches 6 topology, tiny has 5 vertices" in refused(stored, tiny_graph)


def test_arrays_that_were_exchanged(tmp_path: Path, stored: Path, tiny_graph: Graph) -> None:
    first = dataclasses.replace(PLAN.devices[0], features=ids(1, 4))
    plan = dataclasses.replace(PLAN, devices=(first, *PLAN.devices[1:]))
    other = write(tmp_path / "other", tiny_graph, plan)
    (stored / "features_0.npy").write_bytes((other / "features_0.npy").read_bytes())
    assert "features_0.npy: checksum " in refused(stored, tiny_graph)
    assert refused(stored, tiny_graph).endswith("run gnnscale plan-cache again with force=true")


@pytest.mark.parametrize(
    ("vertices", "said"),
    [
        ((4, 5), "features_0.npy: holds what is no vertex"),
        ((-1, 4), "features_0.npy: holds what is no vertex"),
        ((4, 4), "features_0.npy: holds a vertex twice"),
    ],
)
def test_vertices_that_no_cache_has(
    tmp_path: Path, tiny_graph: Graph, vertices: tuple[int, ...], said: str
) -> None:
    first = dataclasses.replace(PLAN.devices[0], features=ids(*vertices))
    plan = dataclasses.replace(PLAN, devices=(first, *PLAN.devices[1:]))
    assert said in refused(write(tmp_path / "p", tiny_graph, plan), tiny_graph)


FILE = Path("cache_plan.json")
NO_IDS = np.empty(0, np.int32)
CACHE = DeviceCache(
    device=1,
    name="a",
    budget_bytes=100,
    features=np.array([4, 1], np.int32),
    topology=np.array([2], np.int32),
    feature_bytes=16,
    topology_bytes=16,
)
AHEAD = dataclasses.replace(
    CACHE,
    features=NO_IDS,
    topology=NO_IDS,
    topology_bytes=0,
    feature_bytes=24,
    look_ahead=LookAhead(window=2, num_rows=3, match=True),
)
TOLD = CacheTraffic(rows=(0, 2, 3), lists=(0, 0, 1), transactions=4, link_bytes=24)
SMALL = CachePlan(
    planner="legion",
    cliques=((1,),),
    devices=(CACHE,),
    alphas=(0.5,),
    predicted=(TOLD,),
    curve=(CurvePoint(alpha=0.5, n_t=1, n_f=2, n_total=3),),
)


def plan_of(**fields: Any) -> CachePlan:
    """The plan with fields of its one cache, of its traffic, or its own changed."""
    cache, told = fields.pop("cache", {}), fields.pop("told", None)
    found = dataclasses.replace(SMALL, **fields)
    if told is not None:
        found = dataclasses.replace(found, predicted=(dataclasses.replace(TOLD, **told),))
    changed = tuple(dataclasses.replace(each, **cache) for each in found.devices)
    return dataclasses.replace(found, devices=changed)


@pytest.mark.parametrize(
    "plan",
    [
        SMALL,
        plan_of(devices=(AHEAD,)),
        plan_of(predicted=None, curve=(), alphas=(None,)),
        plan_of(devices=(), cliques=(), alphas=(), predicted=None),
        # A plan for more devices than have a cache.
        plan_of(told={"rows": (0, 2, 0, 3), "lists": (0, 0, 0, 1)}),
    ],
)
def test_figures_as_they_should_be(tiny_graph: Graph, plan: CachePlan) -> None:
    check_plan_figures(FILE, plan, tiny_graph)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (plan_of(planner="a\nb"), r"'a\\\\nb' is no line of up to 1000 characters"),
        (plan_of(notes=("x" * 1001,)), "is no line of up to 1000 characters"),
        (plan_of(cache={"name": "\x1b"}), r"is no line of up to 1000 characters"),
        (
            plan_of(cache={"feature_bytes": 8}),
            "devices.1.feature_bytes is 8, but what it keeps takes 16",
        ),
        (
            plan_of(cache={"topology_bytes": 0}),
            "devices.1.topology_bytes is 0, but what it keeps takes 16",
        ),
        (
            plan_of(devices=(AHEAD,), cache={"feature_bytes": 0}),
            "devices.1.feature_bytes is 0, but what it keeps takes 24",
        ),
        (
            plan_of(
                devices=(AHEAD,),
                cache={
                    "look_ahead": LookAhead(window=1, num_rows=6, match=False),
                    "feature_bytes": 48,
                },
            ),
            "devices.1.look_ahead.num_rows is 6, allowed is a number from 0 to 5",
        ),
        (
            plan_of(devices=(AHEAD,), cache={"matched_bytes": 41}),
            "devices.1.matched_bytes is 41, allowed is a number from 0 to 40",
        ),
        (
            plan_of(cache={"matched_bytes": 1}),
            "devices.1.matched_bytes is 1, allowed is a number from 0 to 0",
        ),
        (plan_of(told={"rows": ()}), r"reads at \[0, 3\] places"),
        (plan_of(told={"rows": (2, 3), "lists": (0, 1)}), r"reads at \[2\] places, .* 3 at least"),
    ],
)
def test_what_no_plan_can_say(tiny_graph: Graph, plan: CachePlan, said: str) -> None:
    with pytest.raises(GraphError, match=rf"^cache_plan\.json: .*{said}") as error:
        check_plan_figures(FILE, plan, tiny_graph)
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    ("record", "changes"),
    [
        (LookAhead(window=1, num_rows=1, match=False), {"window": 1 << 16}),
        (BatchBytes(cached=1, aggregated=1), {"aggregated": -1}),
        (TOLD, {"rows": [-1]}),
        (TOLD, {"lists": [1 << 60]}),
        (TOLD, {"transactions": -4}),
        (TOLD, {"link_bytes": 1 << 61}),
        (SMALL.curve[0], {"alpha": -0.5}),
        (SMALL.curve[0], {"n_total": -1}),
    ],
)
def test_figures_out_of_range(record: Any, changes: dict[str, Any]) -> None:
    values = dataclasses.asdict(record)
    assert decode(type(record), values, source="plan") == record
    with pytest.raises(ValueError, match=rf"^plan\.{next(iter(changes))}"):
        decode(type(record), values | changes, source="plan")


def test_devices_that_disagree_on_the_places(tiny_graph: Graph) -> None:
    more = dataclasses.replace(TOLD, rows=(0, 0, 0, 5), lists=(0, 0, 0, 1))
    caches = (dataclasses.replace(CACHE, device=0), CACHE)
    plan = plan_of(
        devices=caches, cliques=((0,), (1,)), alphas=(None, None), predicted=(TOLD, more)
    )
    with pytest.raises(GraphError, match=r"reads at \[3, 4\] places"):
        check_plan_figures(FILE, plan, tiny_graph)


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
        place(DEGREE, dataclasses.replace(tiny_graph, origin=Origin(content="other"))),
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
