from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from pictures import SVG, assert_nothing_leaves, texts
from printed import on_console
from small_tasks import small_task

from gnnscale.cache import (
    CachePlan,
    CacheTraffic,
    CurvePoint,
    DeviceCache,
    Legion,
    LookAhead,
    LookAheadCache,
    NoCache,
    RowType,
    StaticCache,
    StoredPlan,
)
from gnnscale.cache.plan import TypeReads
from gnnscale.cache.store import identify
from gnnscale.graph import Graph
from gnnscale.report.cache_plan import draw, print_plan


def cache(device: int, **fields: Any) -> DeviceCache:
    sizes = {"budget_bytes": 3 << 20, "feature_bytes": 1 << 20, "topology_bytes": 1 << 19}
    fields = {"features": np.arange(1200), "topology": np.arange(7), **sizes, **fields}
    return DeviceCache(device=device, name=f"emulated:{device}", **fields)


Stored = Callable[..., StoredPlan]
#: Two devices that share, and one that is read nowhere.
PLAN = CachePlan(
    planner="legion",
    cliques=((0, 1), (2,)),
    devices=(cache(0), cache(1), cache(2, features=np.arange(0), topology=np.arange(0))),
    alphas=(0.25, None),
    predicted=(
        CacheTraffic(
            rows=(50, 25, 0, 25), lists=(3, 0, 0, 1), transactions=2_000_000, link_bytes=1 << 20
        ),
        CacheTraffic(rows=(0, 0, 0, 10), lists=(0,) * 4, transactions=500_000, link_bytes=1 << 20),
        CacheTraffic(rows=(0,) * 4, lists=(0,) * 4, transactions=0, link_bytes=0),
    ),
    curve=tuple(
        CurvePoint(alpha=alpha, n_t=4e6 * (1 - alpha), n_f=2e6 * alpha, n_total=4e6 - 2e6 * alpha)
        for alpha in (0.0, 0.5, 1.0)
    ),
    notes=("a [red]note",),
)


@pytest.fixture
def stored(tiny_graph: Graph) -> Stored:
    identity = identify(NoCache(), small_task(tiny_graph, [0]), partition=None, run={})
    return partial(StoredPlan, identity=identity, seconds=1.5, path=Path("p"), content="")


def printed(stored: StoredPlan, graph: str = "mine") -> str:
    return on_console(print_plan, stored, graph=graph, width=40)


def drawn(stored: StoredPlan, graph: str = "mine") -> list[str]:
    return texts(draw(stored, graph=graph))


def cells(text: str, name: str) -> list[str]:
    row = next(line for line in text.splitlines() if line.startswith(f"│ {name} "))
    return [each.strip() for each in row.split("│")][2:-1]


def test_a_table_has_a_row_for_each_device(stored: Stored) -> None:
    text = printed(stored(plan=PLAN), "[bold]mine")
    assert "[bold]mine: caches by legion, hits predicted" in text
    sizes, hits = ["3.0 MiB", "7", "1,200", "1.5 MiB"], ["50.0 %", "25.0 %", "25.0 %"]
    assert cells(text, "emulated:0") == sizes + hits
    assert cells(text, "emulated:1")[-3:] == ["0.0 %", "0.0 %", "100.0 %"]
    # Of no rows there are no parts.
    assert cells(text, "emulated:2") == ["3.0 MiB", "0", "0", "1.5 MiB", "–", "–", "–"]
    lines = text.splitlines()
    assert "one cache of emulated:0, emulated:1; adjacency lists take 25.0 % of it" in lines
    rates = "feature hit rate 0.6818, topology hit rate 0.7500, 2.50M transactions, 2.0 MiB of rows"
    predicted = f"predicted of an epoch, on average over the run: {rates} over the links"
    assert predicted in " ".join(text.split())
    assert lines[-2:] == ["a [red]note", "planned in 1.50 s"]
    plan = replace(PLAN, predicted=None, curve=(), alphas=(None, None), notes=())
    text = printed(stored(plan=plan))
    assert cells(text, "emulated:0")[-3:] == ["–", "–", "–"]
    assert "one cache of emulated:0, emulated:1\n" in text
    assert "predicted" not in text
    assert "million transactions" not in "".join(drawn(stored(plan=plan)))


def test_caches_that_look_ahead_and_very_many_devices(stored: Stored) -> None:
    ahead = LookAhead(window=8, num_rows=1234, match=True)
    looking = cache(0, look_ahead=ahead, matched_bytes=5 << 20)
    devices = (looking, cache(1, host_aggregates=True), cache(2))
    alone = {"cliques": ((0,), (1,), (2,)), "alphas": (None,) * 3, "devices": devices}
    text = printed(stored(plan=replace(PLAN, exact=True, **alone)))
    # Beyond the budget, and part of what is taken.
    assert cells(text, "emulated:0")[2:5] == ["1,234", "5.0 MiB", "6.5 MiB"]
    assert "matched" in text
    assert "matched" not in printed(stored(plan=PLAN))
    assert cells(text, "emulated:1")[1:3] == ["host aggregates", ""]
    assert "looks 8 steps ahead, and reads rows of the batch before, beyond the budget\n" in text
    assert "predicted of an epoch, as the run draws them" in text
    caches, cliques = tuple(map(cache, range(70))), tuple((device,) for device in range(70))
    many = {"cliques": cliques, "devices": caches, "alphas": (None,) * 70, "predicted": None}
    text = printed(stored(plan=replace(PLAN, **many)))
    assert "emulated:63" in text
    assert "emulated:64" not in text
    assert "│ ... " in text


def test_vertex_types_have_a_table_and_bars(stored: Stored) -> None:
    types = [
        RowType(name=name, vertices=slice(first, first + 1000), row_bytes=size, is_cached=True)
        for name, first, size in (("[b]item", 0, 1 << 10), ("tag", 1000, 1 << 20))
    ]
    reads = ((30, 25, 0, 5), (20, 0, 0, 20)), ((0, 0, 0, 10), (0, 0, 0, 0)), ((0,) * 4, (0,) * 4)
    predicted = tuple(
        replace(
            traffic,
            types=tuple(
                TypeReads(name=entry.name, row_bytes=entry.row_bytes, rows=rows)
                for entry, rows in zip(types, of_device, strict=True)
            ),
        )
        for traffic, of_device in zip(PLAN.predicted or (), reads, strict=True)
    )
    plan = stored(plan=replace(PLAN, predicted=predicted))
    text = on_console(print_plan, plan, graph="mine", types=types, width=40)
    # Two devices cache the vertices below 1200.
    hits = ["42.9 %", "35.7 %", "21.4 %"]
    assert cells(text, "[b]item") == ["1,024", "2,000", "2.0 MiB", *hits]
    assert cells(text, "tag") == ["1,048,576", "400", "400.0 MiB", "50.0 %", "0.0 %", "50.0 %"]
    assert {"[b]item", "tag", "70 rows", "40 rows"} <= set(drawn(plan))
    assert "vertex type" not in printed(stored(plan=PLAN))
    ahead = LookAhead(window=8, num_rows=1234, match=False, type_rows=(1000, 234))
    dynamic = tuple(
        replace(each, features=each.topology[:0], look_ahead=ahead) for each in plan.plan.devices
    )
    plan = stored(plan=replace(plan.plan, devices=dynamic))
    text = on_console(print_plan, plan, graph="mine", types=types, width=40)
    assert cells(text, "[b]item")[1] == f"{1000 * len(dynamic):,}"
    assert cells(text, "tag")[1] == f"{234 * len(dynamic):,}"


def test_a_picture_shows_where_rows_are_found_and_the_cost_model(stored: Stored) -> None:
    found = drawn(stored(plan=PLAN), "a <b> & c")
    assert found[0] == "a <b> & c: caches by legion, hits predicted"
    assert {"own cache", "peers", "host", "emulated:2", "100 rows", "10 rows"} <= set(found)
    root = ElementTree.fromstring(draw(stored(plan=PLAN), graph="mine"))
    rects = [each for each in root.iter(f"{SVG}rect") if each.find(f"{SVG}title") is not None]
    widths = [("own", 180), ("peers", 90), ("host", 90), ("own", 0), ("peers", 0), ("host", 360)]
    assert [(each.get("class"), float(each.get("width", 0))) for each in rects] == widths
    lines = [each for each in root.iter(f"{SVG}path") if each.get("data-label")]
    labels = [each.get("data-label") for each in lines]
    assert labels == ["N_T, sampling", "N_F, features", "N_total"]
    paths = [each.get("d", "") for each in lines]
    assert [path.count("L") + path.count("M") for path in paths] == [3, 3, 3]
    # All memory of a clique without an alpha counts for nothing.
    assert len([each for each in root.iter(f"{SVG}path") if each.get("class") == "mark"]) == 1


@pytest.mark.parametrize(
    "planner",
    [
        NoCache(),
        StaticCache(name="pagraph", hotness="out_degree", scope="device"),
        StaticCache(name="quiver", hotness="presampled", scope="clique", shared=True),
        Legion(),
        LookAheadCache(name="belady", window=2, match=True),
        LookAheadCache(name="belady", predicted_epochs=0),
    ],
)
def test_nothing_leaves_the_picture(stored, random_graph, planner) -> None:
    devices: dict[str, Any] = {"cliques": [[0, 1], [2]], "batch_size": 64, "samples": True}
    plan = planner.plan(small_task(random_graph(), [2400, 0, 1600], **devices))
    assert printed(stored(plan=plan)).count("emulated:") >= len(plan.devices)
    assert_nothing_leaves(draw(stored(plan=plan), graph="a graph"))
