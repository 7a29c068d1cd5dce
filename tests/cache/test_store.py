import dataclasses
import json
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
from gnnscale.cache.plan import BatchBytes
from gnnscale.cache.store import (
    CACHE_PLAN,
    PlanIdentity,
    check_plan_figures,
    identify,
    plan_place,
    read_plan,
    write_plan,
)
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.core.types import decode
from gnnscale.graph import Graph, Origin
from gnnscale.partition.store import describe

JSON_FILE = CACHE_PLAN.header


def ids(*vertices: int) -> Any:
    return np.array(vertices, np.int32)


def cache_of(device: int, name: str, budget: int, features: Any, topology: Any, **more: Any) -> Any:
    arrays = {"features": features, "topology": topology}
    return DeviceCache(device=device, name=name, budget_bytes=budget, **arrays, **more)


#: Two devices that share, and one whose rows follow the batches to come.
PLAN = CachePlan(
    planner="legion",
    cliques=((0, 2), (3,)),
    devices=(
        # 0 and 3 are the neighbors of 2.
        cache_of(0, "a", 100, ids(4, 1), ids(2), feature_bytes=16, topology_bytes=16),
        cache_of(
            *(2, "b", 50, ids(), ids(0, 1, 2, 3)),
            feature_bytes=0,
            topology_bytes=52,
            host_aggregates=True,
        ),
        cache_of(
            *(3, "c", 24, ids(), ids()),
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


def with_first(**fields: Any) -> CachePlan:
    first = dataclasses.replace(PLAN.devices[0], **fields)
    return dataclasses.replace(PLAN, devices=(first, *PLAN.devices[1:]))


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
    found = []
    for plan in (left, right):
        devices = [
            {**vars(each), "features": each.features.tolist(), "topology": each.topology.tolist()}
            for each in plan.devices
        ]
        found.append({**vars(plan), "devices": devices})
    return found[0] == found[1]


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
    # As without types.
    assert said["devices"][2]["look_ahead"] == {"window": 2, "num_rows": 3, "match": True}
    assert sorted(each.name for each in stored.iterdir()) == [
        JSON_FILE,
        *(f"{kind}_{device}.npy" for kind in ("features", "topology") for device in (0, 2, 3)),
    ]


def test_plans_are_told_apart(tmp_path: Path, tiny_graph: Graph) -> None:
    none = CachePlan(planner="none", cliques=(), devices=(), alphas=(), predicted=None)
    assert same(read_plan(write(tmp_path / "none", tiny_graph, none), tiny_graph).plan, none)
    plan = dataclasses.replace(PLAN, predicted=None, curve=(), notes=())
    assert same(read_plan(write(tmp_path / "p", tiny_graph, plan), tiny_graph).plan, plan)

    def content(name: str, **fields: Any) -> str:
        folder = write(tmp_path / name, tiny_graph, with_first(**fields))
        return read_plan(folder, tiny_graph).content

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
    with pytest.raises(GraphError) as error:
        read_plan(stored, graph)
    line = str(error.value)
    assert line.startswith(str(stored))
    assert line.isprintable()
    return line


def test_plans_of_other_data_and_missing_files(stored, tiny_graph, random_graph, tmp_path) -> None:
    said = f"{stored}: is a cache plan of tiny (5 vertices, content "
    assert refused(stored, random_graph(num_features=2)).startswith(said)
    other = tiny_graph.with_split(train_idx=np.array([1]))
    assert "not of tiny (5 vertices, content " in refused(stored, other)
    half = {"features": tiny_graph.features.astype(np.float16), "feature_dtype": "float16"}
    assert refused(stored, dataclasses.replace(tiny_graph, **half)).endswith(
        "expected a plan for rows of 4 bytes in float16, got 8 bytes in float32"
    )
    assert "not a cache plan, it has no cache_plan.json" in refused(tmp_path, tiny_graph)
    assert "not a cache plan" in refused(tmp_path / "nowhere", tiny_graph)
    (stored / "features_2.npy").unlink()
    assert "features_2.npy: missing; run gnnscale plan-cache" in refused(stored, tiny_graph)


def cliques(*devices: list[int], alpha: float | None = None) -> dict[str, Any]:
    return {"cliques": [{"devices": each, "alpha": alpha} for each in devices]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"devices": []}, "devices [] are not those of the cliques [0, 2, 3]"),
        (cliques([0, 2]), "are not those of the cliques [0, 2]"),
        (cliques([0, 2], [2, 3]), "are not those of the cliques [0, 2, 2, 3]"),
        (cliques([0], alpha=1.5), "entry.cliques[0].alpha: Expected `float` <= 1"),
        ({"curve": [{"alpha": 0.5, "n_t": 1, "n_f": 1e300, "n_total": 3}]}, "entry.curve[0].n_f: "),
        ({"num_cached_topology": 6}, "devices.2 caches 6 topology, tiny has 5 vertices"),
    ],
)
def test_damaged_figures(stored: Path, tiny_graph: Graph, changes: Any, said: str) -> None:
    header = json.loads((stored / JSON_FILE).read_text())
    entry = header["devices"][1] if "num_cached_topology" in changes else header
    entry |= changes
    (stored / JSON_FILE).write_text(json.dumps(header))
    assert said in refused(stored, tiny_graph)


def test_bad_vertices_of_a_cache_are_refused(tmp_path: Path, stored: Path, tiny_graph) -> None:
    twice, none = "a vertex twice", "is no vertex"
    for number, (vertices, said) in enumerate((((4, 5), none), ((-1, 4), none), ((4, 4), twice))):
        plan = with_first(features=ids(*vertices))
        line = refused(write(tmp_path / str(number), tiny_graph, plan), tiny_graph)
        assert "features_0.npy: holds " in line
        assert said in line
    # Arrays that were exchanged.
    other = write(tmp_path / "other", tiny_graph, with_first(features=ids(1, 4)))
    (stored / "features_0.npy").write_bytes((other / "features_0.npy").read_bytes())
    assert "features_0.npy: checksum " in refused(stored, tiny_graph)
    assert refused(stored, tiny_graph).endswith("run gnnscale plan-cache again with force=true")


CACHE = dataclasses.replace(PLAN.devices[0], device=1)
AHEAD = dataclasses.replace(PLAN.devices[2], device=1)
TOLD = CacheTraffic(rows=(0, 2, 3), lists=(0, 0, 1), transactions=4, link_bytes=24)
SMALL = CachePlan(
    planner="legion",
    cliques=((1,),),
    devices=(CACHE,),
    alphas=(0.5,),
    predicted=(TOLD,),
    curve=(CurvePoint(alpha=0.5, n_t=1, n_f=2, n_total=3),),
)


def plan_of(*, cache: Any = None, told: Any = None, **fields: Any) -> CachePlan:
    found = dataclasses.replace(SMALL, **fields)
    if told is not None:
        found = dataclasses.replace(found, predicted=(dataclasses.replace(TOLD, **told),))
    changed = tuple(dataclasses.replace(each, **(cache or {})) for each in found.devices)
    return dataclasses.replace(found, devices=changed)


SIX_ROWS = LookAhead(window=1, num_rows=6, match=False)
FIVE_TYPED = dataclasses.replace(SIX_ROWS, num_rows=5, type_rows=(3, 2))


def ahead(**fields: Any) -> CachePlan:
    return plan_of(devices=(AHEAD,), cache=fields)


#: Two caches whose reads are at three places and at four.
DISAGREE = plan_of(
    devices=(dataclasses.replace(CACHE, device=0), CACHE),
    cliques=((0,), (1,)),
    alphas=(None, None),
    predicted=(TOLD, dataclasses.replace(TOLD, rows=(0, 0, 0, 5), lists=(0, 0, 0, 1))),
)


def test_figures_as_they_should_be_and_not(tiny_graph: Graph) -> None:
    for plan in (
        *(SMALL, plan_of(devices=(AHEAD,)), plan_of(predicted=None, curve=(), alphas=(None,))),
        plan_of(devices=(), cliques=(), alphas=(), predicted=None),
        # A plan for more devices than have a cache.
        plan_of(told={"rows": (0, 2, 0, 3), "lists": (0, 0, 0, 1)}),
    ):
        check_plan_figures(Path("cache_plan.json"), plan, tiny_graph)
    for record, changes in (
        (LookAhead(window=1, num_rows=1, match=False), {"window": 1 << 16}),
        (BatchBytes(cached=1, aggregated=1), {"aggregated": -1}),
        *(
            (TOLD, {"rows": [-1]}),
            (TOLD, {"link_bytes": 1 << 61}),
            (SMALL.curve[0], {"alpha": -0.5}),
        ),
    ):
        values = dataclasses.asdict(record)
        assert decode(type(record), values, source="plan") == record
        with pytest.raises(ValueError, match=rf"^plan\.{next(iter(changes))}"):
            decode(type(record), values | changes, source="plan")
    for plan, said in (
        (plan_of(planner="a\nb"), r"expected a line of up to 1000 characters, got 'a\\\\nb'"),
        (plan_of(notes=("x" * 1001,)), "expected a line of up to 1000 characters"),
        (plan_of(cache={"name": "\x1b"}), r"expected a line of up to 1000 characters"),
        (plan_of(cache={"feature_bytes": 8}), r"\.feature_bytes: expected 16 .* got 8"),
        (plan_of(cache={"topology_bytes": 0}), r"\.topology_bytes: expected 16 .* got 0"),
        (ahead(feature_bytes=0), r"devices.1.feature_bytes: expected 24 for its content, got 0"),
        (ahead(look_ahead=SIX_ROWS), "devices.1.look_ahead.num_rows: expected 0 to 5, got 6"),
        (ahead(look_ahead=FIVE_TYPED), r"type_rows: expected 1 numbers, 5 rows .*, got \[3, 2\]"),
        (ahead(matched_bytes=41), "devices.1.matched_bytes: expected 0 to 40, got 41"),
        (plan_of(cache={"matched_bytes": 1}), "devices.1.matched_bytes: expected 0 to 0, got 1"),
        (plan_of(told={"rows": ()}), r"got \[0, 3\]"),
        (plan_of(told={"rows": (2, 3), "lists": (0, 1)}), r"3 at least, got \[2\]"),
        (DISAGREE, r"got \[3, 4\]"),
    ):
        with pytest.raises(GraphError, match=rf"^cache_plan\.json: .*{said}") as error:
            check_plan_figures(Path("cache_plan.json"), plan, tiny_graph)
        assert str(error.value).isprintable()


DEGREE = StaticCache(name="pagraph", hotness="out_degree", scope="device")


def identity(
    planner: CachePlannerConfig, graph: Graph, *, partition=None, run=None, **task: Any
) -> PlanIdentity:
    wanted = small_task(graph, **{"budgets": [16, 8], **task})
    return identify(planner, wanted, partition=partition, run=run or {})


def test_an_identity_says_what_decides_a_plan(tiny_graph: Graph) -> None:
    planner = dataclasses.replace(DEGREE, store="elsewhere", ratio=0.5)
    found = identity(planner, tiny_graph, partition="ab", run={"sampler": "any"}, cliques=[[0, 1]])
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
        one, other = (
            plan_place(planner, identity(planner, graph, **task), policy=planner.policy)
            for _ in range(2)
        )
        assert one == other
        return one

    ahead = LookAheadCache(name="belady")
    planners = [
        *(DEGREE, dataclasses.replace(DEGREE, scope="all"), Legion(), Legion(alpha=0.5)),
        *(ahead, dataclasses.replace(ahead, match=True)),
    ]
    graphs = [{"origin": Origin(content="other")}, {"feature_dtype": "bfloat16"}]
    tasks: list[dict[str, Any]] = [
        *({"budgets": [16, 16]}, {"budgets": [16]}, {"cliques": [[0, 1]]}, {"partition": "ab"}),
        *({"seed": 1}, {"num_epochs": 2}, {"batch_size": 4}, {"samples": True}, {"loads": True}),
        {"run": {"sampler": "other"}},
    ]
    places = [place(each) for each in planners]
    places += [place(DEGREE, dataclasses.replace(tiny_graph, **each)) for each in graphs]
    places += [place(DEGREE, **each) for each in tasks]
    assert len(set(places)) == len(places)
    assert {each.parent for each in places} == {home / "cache_plans"}
    assert places[0].name.startswith("tiny-pagraph-")
    assert places[2].name.startswith("tiny-legion-")
    assert place(dataclasses.replace(DEGREE, store=f"{tmp_path}/x")) == tmp_path / "x"
    with pytest.raises(ConfigError, match=r"^cache_planner\.store=.*the file system's root"):
        NoCache(store="/")
