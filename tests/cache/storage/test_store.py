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
    CacheTraffic,
    CurvePoint,
    DeviceCache,
    LookAhead,
    NoCache,
    StoredPlan,
)
from gnnscale.cache.storage.identity import identify
from gnnscale.cache.storage.store import JSON_FILE, NPZ_FILE, read_plan, write_plan
from gnnscale.core.errors import GraphError
from gnnscale.graph import Graph


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
    assert sorted(each.name for each in stored.iterdir()) == [JSON_FILE, NPZ_FILE]


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
    (stored / NPZ_FILE).unlink()
    assert "cache_plan.npz: missing" in refused(stored, tiny_graph)
    (stored / JSON_FILE).unlink()
    (stored / JSON_FILE).mkdir()
    assert "not a regular file" in refused(stored, tiny_graph)


def test_plans_of_other_data(
    stored: Path, tiny_graph: Graph, random_graph: Callable[..., Graph]
) -> None:
    assert refused(stored, random_graph(num_features=2)).startswith(
        f"{stored}: is a cache plan of tiny (5 vertices, content "
    )
    assert "not of tiny (5 vertices, content " in refused(
        stored, dataclasses.replace(tiny_graph, train_idx=np.array([1]))
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
        ({"format_version": 1}, "format version 1, this release reads 2"),
        ({"planner": 3}, "entry.planner: 3 is no str"),
        ({"seconds": None}, "entry.seconds: None is no float"),
        ({"devices": [{}]}, "entry.devices.0: device is missing"),
        ({"devices": []}, "devices [] are not those of the cliques [0, 2, 3]"),
        ({"cliques": [{"devices": [0, 2], "alpha": None}]}, "are not those of the cliques [0, 2]"),
        (
            {"cliques": [{"devices": each, "alpha": None} for each in ([0, 2], [3], [])]},
            "are not those of the cliques [0, 2, 3]",
        ),
        (
            {"cliques": [{"devices": each, "alpha": None} for each in ([0, 2], [2, 3])]},
            "are not those of the cliques [0, 2, 2, 3]",
        ),
        ({"arrays": {}}, "arrays are [], allowed are ['features_0', "),
        ({"identity": None}, "identity: None is no record"),
        ({"identity": {"options": 3}}, "identity.options: 3 is no dict"),
        ({"predicted": {}}, "entry.predicted: pcie_transactions is missing"),
        ({"notes": ["\x1b[2J"]}, "'\\\\x1b[2J' is no line of up to 1000 characters"),
    ],
)
def test_damaged_figures(stored: Path, tiny_graph: Graph, changes: Any, said: str) -> None:
    file = stored / JSON_FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    assert said in refused(stored, tiny_graph)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "cannot be read as JSON"),
        (b"[1]", "holds a list, not an object"),
        (b"[" * 100_000, "cannot be read as JSON"),
        (b'{"seconds": NaN}', "NaN is not a number"),
    ],
)
def test_no_figures(stored: Path, tiny_graph: Graph, text: bytes, said: str) -> None:
    (stored / JSON_FILE).write_bytes(text)
    assert said in refused(stored, tiny_graph)


def test_a_number_of_vertices_that_the_graph_has_not(stored: Path, tiny_graph: Graph) -> None:
    file = stored / JSON_FILE
    said = json.loads(file.read_text())
    said["devices"][1]["num_cached_topology"] = 6
    file.write_text(json.dumps(said))
    assert "devices.2 caches 6 topology, tiny has 5 vertices" in refused(stored, tiny_graph)


def test_archives_that_were_exchanged(tmp_path: Path, stored: Path, tiny_graph: Graph) -> None:
    first = dataclasses.replace(PLAN.devices[0], features=ids(1, 4))
    plan = dataclasses.replace(PLAN, devices=(first, *PLAN.devices[1:]))
    other = write(tmp_path / "other", tiny_graph, plan)
    (stored / NPZ_FILE).write_bytes((other / NPZ_FILE).read_bytes())
    assert "not the array that cache_plan.json tells of" in refused(stored, tiny_graph)
    assert refused(stored, tiny_graph).endswith("run gnnscale plan-cache again with force=true")


@pytest.mark.parametrize(
    ("vertices", "said"),
    [
        ((4, 5), "features_0 holds what is no vertex"),
        ((-1, 4), "features_0 holds what is no vertex"),
        ((4, 4), "features_0 holds a vertex twice"),
    ],
)
def test_vertices_that_no_cache_has(
    tmp_path: Path, tiny_graph: Graph, vertices: tuple[int, ...], said: str
) -> None:
    first = dataclasses.replace(PLAN.devices[0], features=ids(*vertices))
    plan = dataclasses.replace(PLAN, devices=(first, *PLAN.devices[1:]))
    assert said in refused(write(tmp_path / "p", tiny_graph, plan), tiny_graph)
