from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from held_rows import HoldEvenVertices
from row_exchange import TradeRows

from gnnscale.backend.base import DeviceMemoryError
from gnnscale.cache import CachePlan, CachePlannerConfig, LookAheadCache, read_plan
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.graph import Graph
from gnnscale.model.cost import LayerCost
from gnnscale.plan import Emulated
from gnnscale.plan.perf.equations import BYTES_PER_PARAMETER, BatchSize
from gnnscale.plan.perf.work import batch_bytes
from gnnscale.plan.perf.workload import Workload, unmeasured_workload
from gnnscale.runtime.cache.task import cache_budget, cache_task
from gnnscale.runtime.checkpoint.artefacts import CACHE_PLAN, make_artefacts
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.train import train

Settings = Callable[..., TrainConfig]

RATES = "macs_per_s:1e10,memory_bandwidth:5e9,link_bandwidth:1e9,memory_bytes:100000000"

PEERS = "peer_bandwidth:1e10"

STATIC = ("cache_planner=pagraph", "cache_planner.ratio=0.1")

#: Joins GPUs 0 and 1 of three.
LINKS = "0 1 0\n1 0 0\n0 0 0\n"


def devices(*kinds: str) -> str:
    """Return the option of a device plan: processors, and accelerators with more options."""
    each = [kind if kind == "cpu" else f"{{kind:emulated,{RATES}{kind}}}" for kind in kinds]
    return f"device_plan.devices=[{','.join(each)}]"


@pytest.fixture
def links(tmp_path: Path) -> str:
    (tmp_path / "links.txt").write_text(LINKS)
    return f"cache_planner.nvlink={tmp_path / 'links.txt'}"


def task_of(config: TrainConfig) -> Any:
    return cache_task(config, config.dataset.open(), None)


def planned(config: TrainConfig) -> tuple[Path, CachePlan]:
    (found,) = (each for each in make_artefacts(config) if each.name == CACHE_PLAN)
    return found.path, read_plan(found.path, config.dataset.open()).plan


def test_devices_behind_a_link_may_have_a_cache(settings: Settings) -> None:
    accelerator = ",sampled_edges_per_s:1e8,link_request_bytes:32,reads_host_memory:true"
    config = settings(*STATIC, devices("cpu", "", accelerator), "epochs=7")
    task = task_of(config)
    first, second = task.devices
    assert (first.position, first.samples, first.loads, first.may_aggregate) == (
        *(1, False, False, True),
    )
    assert (second.position, second.samples, second.loads, second.may_aggregate) == (
        *(2, True, True, False),
    )
    assert (second.request_bytes, second.budget_bytes) == (32, 60 * 32)
    assert (task.num_devices, task.num_epochs, task.batch_size) == (3, 7, 64)
    assert (task.fanouts, task.cliques) == ((5, 3), ((1,), (2,)))
    assert [draw.device for draw in task.draws.first_step()] == [0, 1, 2]


def test_links_make_cliques_of_policies_that_share(settings: Settings, links: str) -> None:
    # The processor is no GPU of the matrix.
    plan = devices("cpu", *[f",{PEERS}"] * 3)
    for planner, cliques in (
        ("quiver", ((1, 2), (3,))),
        ("legion", ((1, 2), (3,))),
        ("pagraph", ((1,), (2,), (3,))),
    ):
        config = settings(f"cache_planner={planner}", "cache_planner.ratio=0.1", links, plan)
        assert task_of(config).cliques == cliques
    config = settings("cache_planner=quiver", "cache_planner.ratio=0.1", plan)
    assert task_of(config).cliques == ((1,), (2,), (3,))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            (devices("", ""), "cache_planner=quiver"),
            "emulated:0, emulated:1 read each other's caches, but emulated:0 has "
            "peer_bandwidth=null; give it one, or leave the links out",
        ),
        (
            (devices(*[f",{PEERS}"] * 4), "cache_planner=legion"),
            "has 3 GPUs, device_plan has 4 devices with memory of their own",
        ),
    ],
)
def test_links_that_do_not_fit_the_devices(
    settings: Settings, links: str, overrides: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        make_artefacts(settings(*overrides, links, "cache_planner.ratio=0.1"))
    assert str(error.value) == f"{links}: {said}"


def test_a_plan_that_is_given_is_used_as_it_is(settings: Settings, tmp_path: Path) -> None:
    path, plan = planned(settings(*STATIC, devices(""), f"cache_planner.store={tmp_path / 'p'}"))
    for given in (path, path / "cache_plan.json"):
        # Another seed has other batches; that is the user's affair.
        found, again = planned(settings(f"cache_plan={given}", devices(""), "seed=5"))
        assert found == given
        assert [each.name for each in again.devices] == [each.name for each in plan.devices]
        assert (again.devices[0].features == plan.devices[0].features).all()
    assert sorted(each.name for each in path.iterdir()) == [
        *("cache_plan.json", "features_0.npy", "topology_0.npy")
    ]


def changed(path: Path, change: Callable[[Any], None]) -> None:
    file = path / "cache_plan.json"
    said = json.loads(file.read_text())
    change(said)
    file.write_text(json.dumps(said))


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (shutil.rmtree, "not a cache plan, it has no cache_plan.json"),
    "empty": (lambda path: (path / "cache_plan.json").write_text(""), "cannot be read as JSON"),
    "foreign": (lambda path: (path / "cache_plan.json").write_text("{}"), "format version None"),
    "figures": (
        lambda path: changed(path, lambda said: said.pop("notes")),
        "required field `notes`",
    ),
    "array": (lambda path: (path / "features_0.npy").write_bytes(b"PK"), "features_0.npy"),
    "no array": (lambda path: (path / "features_0.npy").unlink(), "features_0.npy: missing"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_plan_that_cannot_be_used(settings: Settings, tmp_path: Path, damage: str) -> None:
    path, _ = planned(settings(*STATIC, devices(""), f"cache_planner.store={tmp_path / 'p'}"))
    spoil, said = DAMAGE[damage]
    spoil(path)
    with pytest.raises(GraphError) as error:
        make_artefacts(settings(f"cache_plan={path}", devices("")))
    assert str(error.value).startswith(str(path))
    assert said in str(error.value)
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("dataset.seed=1",), r"p: is a cache plan of planted-partition \(600 .*, not of planted"),
        (("dataset.num_vertices=700",), r"not of planted-partition \(700 vertices"),
        (
            ("dataset.feature_dtype=bfloat16",),
            "p: is for rows of 32 bytes in float32, not of 16 bytes in bfloat16",
        ),
        (
            ("partitioner=hash", devices("", "")),
            "p: is for a graph without parts, not for the partition ",
        ),
        (
            (devices("cpu", ""),),
            "p: caches for emulated:0 at position 0, where device_plan has no device with memory",
        ),
        ((devices(""),), "p: caches for emulated:1 at position 1, where device_plan has no device"),
        (
            (devices("", ""),),
            "p: emulated:0, emulated:1 read each other's caches, but emulated:0 has peer_bandwidth",
        ),
    ],
)
def test_a_plan_of_something_else(
    settings: Settings, tmp_path: Path, links: str, overrides: tuple[str, ...], said: str
) -> None:
    path, _ = planned(
        settings(
            *("cache_planner=quiver", "cache_planner.ratio=0.1", links),
            *(devices(*[f",{PEERS}"] * 2), f"cache_planner.store={tmp_path / 'p'}"),
        )
    )
    both = devices(*[f",{PEERS}"] * 2)
    with pytest.raises((GraphError, ConfigError), match=said) as error:
        make_artefacts(settings(f"cache_plan={path}", both, *overrides))
    assert str(error.value).isprintable()


def test_a_plan_over_other_parts(settings: Settings, tmp_path: Path) -> None:
    both = devices("", "")
    path, _ = planned(
        settings(*STATIC, both, "partitioner=hash", f"cache_planner.store={tmp_path / 'p'}")
    )
    with pytest.raises(GraphError, match=r"p: is for the partition .*, not for the partition "):
        make_artefacts(settings(f"cache_plan={path}", both, "partitioner=random"))
    with pytest.raises(GraphError, match=r"p: is for the partition .*, not for a graph without"):
        make_artefacts(settings(f"cache_plan={path}", both))
    assert planned(settings(f"cache_plan={path}", both, "partitioner=hash"))[0] == path


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ("cache_plan=/p", "cache_planner=belady"),
            r"^cache_plan=/p: cannot be given with cache_planner=belady",
        ),
        (
            ("cache_planner=legion", "partitioner=p3"),
            r"^cache_planner=legion: does not go with partitioner=p3",
        ),
        (
            ("cache_plan=/p", "partitioner=p3"),
            r"^cache_plan=/p: does not go with partitioner=p3",
        ),
    ],
)
def test_what_does_not_go_together(
    settings: Settings, overrides: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        settings(devices("", ""), *overrides)


@pytest.mark.parametrize(
    ("seam", "said"),
    [
        ({"features": HoldEvenVertices()}, "^features: HoldEvenVertices cannot be given with cac"),
        ({"exchange": TradeRows()}, "^exchange: cannot be given with caches"),
    ],
)
def test_stores_and_exchanges_of_ones_own(
    settings: Settings, seam: dict[str, Any], said: str
) -> None:
    config = settings(*STATIC, devices(""))
    with pytest.raises(ConfigError, match=said):
        TrainConfig(**{**vars(config), **seam})
    TrainConfig(**{**vars(settings(*STATIC, "device_plan=cpu_x2")), **seam})


def test_processors_have_no_caches(settings: Settings) -> None:
    assert len(make_artefacts(settings(*STATIC, "device_plan=cpu_x2"))) == 1


def test_a_cache_larger_than_its_device(settings: Settings, tmp_path: Path, observer: Any) -> None:
    small = (
        "{kind:emulated,macs_per_s:1e10,memory_bandwidth:5e9,link_bandwidth:1e9,memory_bytes:15000}"
    )
    config = settings(
        *("cache_planner=pagraph", "cache_planner.ratio=0.9"),
        *(f"device_plan.devices=[{small}]", "runtime.prefetch=none"),
    )
    with pytest.raises(DeviceMemoryError) as error:
        train(config, tmp_path / "run", observer, options={})
    assert str(error.value).startswith("emulated:0: out of device memory: the cache needs 0.0 MB")
    assert "\n" not in str(error.value)
    assert observer.events == []
    assert not (tmp_path / "run").exists() or not any((tmp_path / "run").rglob("*.safetensors"))


def test_tasks_of_one_run_are_equal(settings: Settings) -> None:
    config = settings(*STATIC, devices(""), "device_plan.split=[64]")
    found = [list(task_of(config).draws.epoch(0)) for _ in range(2)]
    assert len(found[0]) == 6
    for one, other in zip(*found, strict=True):
        assert one.seeds.tolist() == other.seeds.tolist()
        assert one.batch.input_vertices.tolist() == other.batch.input_vertices.tolist()


@pytest.mark.parametrize(
    ("kinds", "overrides", "exact"),
    [
        (("",), (), True),
        (("", ""), (), False),
        (("cpu", ""), (), False),
        # The seeds of a step are moved from one device to the other while training.
        (("", ""), ("device_plan.split=[40,24]",), False),
        (("", ""), ("device_plan.split=[40,24]", "runtime.drm=false"), True),
        (("", ""), ("runtime.drm=false",), False),
    ],
)
def test_hits_are_exact_where_the_split_is_fixed(
    settings: Settings, kinds: tuple[str, ...], overrides: tuple[str, ...], exact: bool
) -> None:
    config = settings(*STATIC, devices(*kinds), *overrides)
    assert task_of(config).draws_are_exact == exact


DEVICE = Emulated(macs_per_s=1e10, memory_bandwidth=5e9, memory_bytes=1_000_000, link_bandwidth=1e9)

FIRST = BatchSize(vertices=(100, 40, 10), edges=(150, 30))


@pytest.fixture
def graph(random_graph: Callable[..., Graph]) -> Graph:
    """300 rows of 80 bytes."""
    return random_graph()


@pytest.fixture
def workload(graph: Graph, settings: Callable[..., TrainConfig]) -> Workload:
    model = settings().model.build(num_features=20, num_classes=5)
    return replace(unmeasured_workload(graph, model), host_aggregates=False)


def budget(graph: Graph, workload: Workload, device: Emulated = DEVICE, **options: Any) -> int:
    planner: CachePlannerConfig = LookAheadCache(
        name="belady", **{each: options.pop(each) for each in [*options] if each in _PLANNER}
    )
    options = {"first": FIRST, "in_flight": 2, **options}
    return cache_budget(planner, graph, device, workload=workload, **options)


_PLANNER = ("budget_bytes", "ratio", "reserve")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"budget_bytes": 1234}, 1234),
        ({"budget_bytes": 0}, 0),
        # More than the device has: whoever opens the cache finds that out.
        ({"budget_bytes": 1 << 40}, 1 << 40),
        ({"ratio": 0.1}, 30 * 80),
        ({"ratio": 0.01}, 3 * 80),
        ({"ratio": 0.0}, 0),
        ({"ratio": 1.0}, 300 * 80),
        ({"ratio": 7.5}, 300 * 80),
    ],
)
def test_what_is_asked_for_is_taken(
    graph: Graph, workload: Workload, asked: dict[str, Any], expected: int
) -> None:
    assert budget(graph, workload, **asked) == expected


def test_otherwise_it_is_what_the_device_has_left(graph: Graph, workload: Workload) -> None:
    model = BYTES_PER_PARAMETER * workload.num_weights
    batch = batch_bytes(workload, FIRST)
    assert budget(graph, workload) == int(900_000 - model - 2 * batch)
    assert budget(graph, workload, in_flight=5) == int(900_000 - model - 5 * batch)
    assert budget(graph, workload, reserve=0.5) == int(500_000 - model - 2 * batch)
    assert budget(graph, workload, first=None) == int(900_000 - model)
    larger = replace(DEVICE, memory_bytes=2_000_000)
    assert budget(graph, workload, larger) == budget(graph, workload) + 900_000


def test_a_batch_takes_rows_lists_and_activations(workload: Workload) -> None:
    assert all(isinstance(layer, LayerCost) for layer in workload.layers)
    # The rows alone: 100 of 80 bytes.
    assert batch_bytes(workload, FIRST) > 100 * 80 + 4 * 180


def test_a_device_that_has_nothing_left(graph: Graph, workload: Workload) -> None:
    with pytest.raises(ConfigError) as error:
        budget(graph, workload, replace(DEVICE, name="small", memory_bytes=20_000), in_flight=3)
    line = str(error.value)
    assert line.startswith("cache_planner=belady: small has no memory left for a cache: of 0.0 MB")
    assert "the model and a mini-batch take " in line
    assert line.endswith("cache_planner.budget_bytes allow one")
    # Named, it is the user's affair.
    tiny = replace(DEVICE, memory_bytes=20_000)
    assert budget(graph, workload, tiny, budget_bytes=10_000) == 10_000


def test_fewer_are_in_flight_where_so_many_leave_nothing(graph: Graph, workload: Workload) -> None:
    batch = batch_bytes(workload, FIRST)
    model = BYTES_PER_PARAMETER * workload.num_weights
    device = replace(DEVICE, memory_bytes=model + int(2.5 * batch))
    left = int(device.memory_bytes - model - 2 * batch)
    assert budget(graph, workload, device, reserve=0.0, in_flight=9) == left


def test_rows_that_match_need_memory_too(graph: Graph, workload: Workload) -> None:
    """100 rows of a mini-batch stay until the next one is loaded, whatever the budget says."""
    plain = budget(graph, workload)
    matching = LookAheadCache(name="belady_match", match=True)
    found = cache_budget(matching, graph, DEVICE, workload=workload, first=FIRST, in_flight=2)
    assert plain - found == 100 * 80
    named = replace(matching, budget_bytes=1234)
    assert cache_budget(named, graph, DEVICE, workload=workload, first=FIRST, in_flight=2) == 1234
