import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import accelerator, plan_of
from held_rows import HoldEvenVertices
from one_line import one_line
from row_exchange import TradeRows
from typed_graphs import shop

from gnnscale.backend.base import DeviceMemoryError
from gnnscale.cache import CachePlan, LookAheadCache, read_plan
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.graph import Graph
from gnnscale.planner import Emulated
from gnnscale.planner.cost_model.equations import BYTES_PER_PARAMETER, BatchSize
from gnnscale.planner.cost_model.stage_work import batch_bytes
from gnnscale.planner.cost_model.workload import Workload, unmeasured_workload
from gnnscale.run.artifacts import CACHE_PLAN
from gnnscale.run.config import RunConfig
from gnnscale.run.typed_inputs import read_by_type
from gnnscale.training.build.cache_problem import cache_budget, cache_task, plan_caches
from gnnscale.training.make_artifacts import make_artifacts

STATIC = ("cache_planner=pagraph", "cache_planner.ratio=0.1")

#: Joins GPUs 0 and 1 of three.
LINKS = "0 1 0\n1 0 0\n0 0 0\n"

EMULATED = accelerator(memory_bytes=100_000_000)
PEER = accelerator(memory_bytes=100_000_000, peer_bandwidth=1e10)
ONE, BOTH = plan_of(EMULATED), plan_of(EMULATED, EMULATED)


@pytest.fixture
def links(tmp_path: Path) -> str:
    (tmp_path / "links.txt").write_text(LINKS)
    return f"cache_planner.nvlink={tmp_path / 'links.txt'}"


def task_of(config: RunConfig) -> Any:
    return cache_task(config, config.dataset.open(), None)


def planned(config: RunConfig) -> tuple[Path, CachePlan]:
    (found,) = (each for each in make_artifacts(config) if each.name == CACHE_PLAN)
    return found.path, read_plan(found.path, config.dataset.open()).plan


def test_devices_behind_a_link_may_have_a_cache(settings) -> None:
    able = accelerator(sampled_edges_per_s=1e8, link_request_bytes=32, reads_host_memory=True)
    task = task_of(settings(*STATIC, plan_of("cpu", EMULATED, able), "epochs=7"))
    assert [
        (each.position, each.samples, each.loads, each.may_aggregate) for each in task.devices
    ] == [(1, False, False, True), (2, True, True, False)]
    assert (task.devices[1].request_bytes, task.devices[1].budget_bytes) == (32, 60 * 32)
    assert (task.num_devices, task.num_epochs, task.batch_size) == (3, 7, 64)
    assert (task.fanouts, task.cliques) == ((5, 3), ((1,), (2,)))
    assert [draw.device for draw in task.draws.first_step()] == [0, 1, 2]
    assert len(make_artifacts(settings(*STATIC, "device_plan=cpu_x2"))) == 1


def test_links_make_cliques_of_policies_that_share(settings, links) -> None:
    # The processor is no GPU of the matrix.
    plan = plan_of("cpu", PEER, PEER, PEER)
    for planner, cliques in (
        ("quiver", ((1, 2), (3,))),
        ("legion", ((1, 2), (3,))),
        ("pagraph", ((1,), (2,), (3,))),
    ):
        config = settings(f"cache_planner={planner}", "cache_planner.ratio=0.1", links, plan)
        assert task_of(config).cliques == cliques
    config = settings("cache_planner=quiver", "cache_planner.ratio=0.1", plan)
    assert task_of(config).cliques == ((1,), (2,), (3,))


def test_links_that_fit_no_devices(settings, links) -> None:
    for plan, message in (
        (BOTH, "emulated:0 has peer_bandwidth=null; set peer_bandwidth, or remove the links"),
        (plan_of(*[PEER] * 4), "expected at least 4 GPUs, one for each device of device_plan "),
    ):
        with one_line(message, begins=f"{links}: "):
            make_artifacts(settings(plan, "cache_planner=quiver", links, "cache_planner.ratio=0.1"))


def test_a_plan_that_is_given_is_used_as_it_is(settings, tmp_path) -> None:
    path, plan = planned(settings(*STATIC, ONE, f"cache_planner.store={tmp_path / 'p'}"))
    for given in (path, path / "cache_plan.json"):
        # Another seed has other batches; that is the user's affair.
        found, again = planned(settings(f"cache_plan={given}", ONE, "seed=5"))
        assert found == given
        assert [each.name for each in again.devices] == [each.name for each in plan.devices]
        assert (again.devices[0].features == plan.devices[0].features).all()
    files = {"cache_plan.json", "features_0.npy", "topology_0.npy"}
    assert {each.name for each in path.iterdir()} == files


def test_a_plan_that_cannot_be_used(settings, tmp_path) -> None:
    path, _ = planned(settings(*STATIC, ONE, f"cache_planner.store={tmp_path / 'p'}"))
    for spoil, message in (
        (lambda: (path / "features_0.npy").write_bytes(b"PK"), "features_0.npy"),
        (lambda: (path / "cache_plan.json").write_text("{}"), "format version None"),
        (lambda: (path / "cache_plan.json").write_text(""), "cannot be read as JSON"),
        (lambda: shutil.rmtree(path), "not a cache plan, it has no cache_plan.json"),
    ):
        spoil()
        with one_line(message, error=GraphError, begins=str(path)):
            make_artifacts(settings(f"cache_plan={path}", ONE))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("dataset.seed=1", r"p: is a cache plan of planted-partition \(600 .*, not of planted"),
        ("dataset.feature_dtype=bfloat16", "p: expected a plan for rows of 16 .* got 32 bytes"),
        (f"partitioner=hash {BOTH}", "p: expected a plan for the partition .* graph w"),
        (
            plan_of("cpu", EMULATED),
            "p: has a cache for emulated:0 at position 0, where device_plan has no device with its",
        ),
        (ONE, "p: has a cache for emulated:1 at position 1, where device_plan has no device"),
        (BOTH, "p: emulated:0, emulated:1 read each other's caches, but emulated:0 has peer_band"),
    ],
)
def test_a_plan_of_something_else(settings, tmp_path, links, overrides, message) -> None:
    peers, store = plan_of(PEER, PEER), f"cache_planner.store={tmp_path / 'p'}"
    quiver = ("cache_planner=quiver", "cache_planner.ratio=0.1", links)
    path, _ = planned(settings(*quiver, peers, store))
    with pytest.raises((GraphError, ConfigError), match=message) as error:
        make_artifacts(settings(f"cache_plan={path}", peers, *overrides.split()))
    assert str(error.value).isprintable()


def test_a_plan_over_other_parts(settings, tmp_path) -> None:
    store = f"cache_planner.store={tmp_path / 'p'}"
    path, _ = planned(settings(*STATIC, BOTH, "partitioner=hash", store))
    given = (f"cache_plan={path}", BOTH)
    for partitioner, message in (("random", "the partition "), ("none", "a graph without parts")):
        with pytest.raises(GraphError, match=f"p: expected a plan for {message}.* the partition"):
            make_artifacts(settings(*given, f"partitioner={partitioner}"))
    assert planned(settings(*given, "partitioner=hash"))[0] == path


def test_graphs_with_types(settings, tmp_path) -> None:
    shop(num_users=50, num_items=30).save(tmp_path / "shop")
    common = (*STATIC, ONE, "dataset=store", f"dataset.store={tmp_path / 'shop'}")
    config = settings(*common, "model=rsage", "sampler.edge_fanouts={tag-of-item:[0,1]}")
    task = cache_task(config, read_by_type(config.model, config.dataset.open(), seed=None), None)
    # A tenth of 9 rows of 4 bytes and of 30 of 20; rows of users are learned.
    assert task.devices[0].budget_bytes == 0 * 4 + 3 * 20
    assert task.fanouts == ((5, 5, 0, 5), (3, 3, 1, 3))
    (_, found) = make_artifacts(config)
    assert found.name == CACHE_PLAN
    config = settings(*common)
    with one_line("add model=rsage", begins="model: expected rgcn, rsage, rgat, hgt or custom"):
        plan_caches(config, config.dataset.open(), None)
    (_, ahead) = make_artifacts(settings(*common, "model=rsage", "cache_planner=belady"))
    assert ahead.name == CACHE_PLAN


def test_what_does_not_go_together(settings) -> None:
    for option, other, needed in (
        ("cache_plan=/p", "cache_planner=belady", "cache_planner=none"),
        ("cache_planner=legion", "partitioner=p3", "partitioner=none"),
        ("cache_plan=/p", "partitioner=p3", "partitioner=none"),
    ):
        with one_line(begins=f"{option}: expected {needed}"):
            settings(BOTH, option, other)


def test_stores_and_exchanges_of_ones_own(settings) -> None:
    config, other = settings(*STATIC, ONE), settings(*STATIC, "device_plan=cpu_x2")
    for seam, words in (
        ({"features": HoldEvenVertices()}, ("features: expected ", "caches, got HoldEvenVertices")),
        ({"exchange": TradeRows()}, ("exchange: expected null with caches",)),
    ):
        with one_line(*words):
            RunConfig(**{**vars(config), **seam})
        RunConfig(**{**vars(other), **seam})


def test_a_cache_larger_than_its_device(run, tmp_path, observer) -> None:
    large = ("cache_planner=pagraph", "cache_planner.ratio=0.9", "runtime.prefetch=none")
    begins = "emulated:0: out of device memory: the cache needs 0.0 MB"
    with one_line(error=DeviceMemoryError, begins=begins):
        run(tmp_path / "run", *large, plan_of(accelerator(memory_bytes=15_000)))
    assert observer.events == []
    assert not list((tmp_path / "run").rglob("*.safetensors"))


def test_tasks_of_one_run_are_equal(settings) -> None:
    config = settings(*STATIC, ONE, "device_plan.split=[64]")
    found = [list(task_of(config).draws.epoch(0)) for _ in range(2)]
    assert len(found[0]) == 6
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one.seeds, other.seeds)
        assert np.array_equal(one.batch.input_vertices, other.batch.input_vertices)


def test_hits_are_exact_for_a_fixed_split(settings) -> None:
    fixed, split = "runtime.drm=false", "device_plan.split=[40,24]"
    for overrides, exact in (
        ((ONE,), True),
        # The seeds of a step are moved from one device to the other while training.
        ((BOTH, split), False),
        ((BOTH, fixed), False),
        ((BOTH, split, fixed), True),
    ):
        assert task_of(settings(*STATIC, *overrides)).is_exact == exact


DEVICE = Emulated(macs_per_s=1e10, memory_bandwidth=5e9, memory_bytes=1_000_000, link_bandwidth=1e9)

FIRST = BatchSize(vertices=(100, 40, 10), edges=(150, 30))


@pytest.fixture
def graph(random_graph: Any) -> Graph:
    """300 rows of 80 bytes."""
    return random_graph()


@pytest.fixture
def workload(graph: Graph, settings: Any) -> Workload:
    model = settings().model.build(num_features=20, num_classes=5)
    return replace(unmeasured_workload(graph, model), host_aggregates=False)


@pytest.fixture
def budget(graph: Graph, workload: Workload) -> Callable[..., int]:
    def found(
        device: Emulated = DEVICE, *, first: Any = FIRST, in_flight: int = 2, **fields: Any
    ) -> int:
        how = {"workload": workload, "first": first, "in_flight": in_flight}
        return cache_budget(LookAheadCache(**{"name": "belady", **fields}), graph, device, **how)

    return found


def memory_of(workload: Workload) -> tuple[int, float]:
    """What the model takes, and the first mini-batch."""
    return BYTES_PER_PARAMETER * workload.num_weights, batch_bytes(workload, FIRST)


def test_a_given_budget_stays(budget) -> None:
    assert budget(budget_bytes=0) == 0
    # More than the device has: whoever opens the cache finds that out.
    assert budget(budget_bytes=1 << 40) == 1 << 40
    assert (budget(ratio=0.01), budget(ratio=7.5)) == (3 * 80, 300 * 80)


def test_otherwise_it_is_what_the_device_has_left(budget, workload) -> None:
    model, batch = memory_of(workload)
    assert budget() == int(900_000 - model - 2 * batch)
    assert budget(in_flight=5) == int(900_000 - model - 5 * batch)
    assert budget(reserve=0.5) == int(500_000 - model - 2 * batch)
    assert budget(first=None) == int(900_000 - model)
    larger = replace(DEVICE, memory_bytes=2_000_000)
    assert budget(larger) == budget() + 900_000


def test_a_device_that_has_nothing_left(budget) -> None:
    begins = "cache_planner=belady: small has no memory left for a cache: the model"
    words = ("the model and a mini-batch take ", "of 0.0 MB", "set cache_planner.budget_bytes")
    with one_line(*words, begins=begins):
        budget(replace(DEVICE, name="small", memory_bytes=20_000), in_flight=3)
    # Named, it is the user's affair.
    tiny = replace(DEVICE, memory_bytes=20_000)
    assert budget(tiny, budget_bytes=10_000) == 10_000


def test_fewer_are_in_flight_if_so_many_leave_nothing(budget, workload) -> None:
    model, batch = memory_of(workload)
    device = replace(DEVICE, memory_bytes=model + int(2.5 * batch))
    left = int(device.memory_bytes - model - 2 * batch)
    assert budget(device, reserve=0.0, in_flight=9) == left


def test_rows_that_match_need_memory_too(budget) -> None:
    """100 rows of a mini-batch stay until the next one is loaded, whatever the budget says."""
    matching = {"name": "belady_match", "match": True}
    assert budget() - budget(**matching) == 100 * 80
    assert budget(**matching, budget_bytes=1234) == 1234
