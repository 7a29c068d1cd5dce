import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from late_source import NUM_ROWS, PRIORITY, ROWS, WIDTH, LateSource
from one_line import one_line
from typed_graphs import shop

from gnnscale.cache import CachePlan, CacheTraffic, DeviceCache, LookAhead
from gnnscale.cache.belady import Belady
from gnnscale.cache.plan import TypeReads
from gnnscale.distributed.process_group import SINGLE_PROCESS, all_gather_object
from gnnscale.features import HostFeatures
from gnnscale.features.cached import CachedFeatures, LookAheadFeatures, TypedLookAhead
from gnnscale.features.tiered.policies import TierPlanner
from gnnscale.features.tiered.store import TieredStore, WorkerBuffer
from gnnscale.features.typed import TypedStore
from gnnscale.planner import Cpu, Device, Emulated
from gnnscale.planner.cost_model.workload import CacheEffect
from gnnscale.sampling import NeighborSampler, TypedSampler
from gnnscale.training.build.cache import (
    cache_effects,
    devices_with_caches,
    find_uncached,
    open_caches,
    refill,
    shared_rows,
)

DEVICE = Emulated(macs_per_s=1e10, memory_bandwidth=5e9, memory_bytes=1 << 30, link_bandwidth=1e9)

SAMPLES = dataclasses.replace(DEVICE, sampled_edges_per_s=1e8, link_request_bytes=32)


def ids(*vertices: int) -> Any:
    return np.array(vertices, np.int32)


def cache(device: int = 0, **fields: Any) -> DeviceCache:
    usual = {"name": f"emulated:{device}", "budget_bytes": 100, "features": ids(4, 1)}
    usual |= {"topology": ids(2), "feature_bytes": 16, "topology_bytes": 16}
    return DeviceCache(device=device, **usual | fields)


def plan(*caches: DeviceCache, **fields: Any) -> CachePlan:
    cliques = tuple((each.device,) for each in caches)
    wanted = {"cliques": cliques, "alphas": (None,) * len(cliques), "predicted": None, **fields}
    return CachePlan(planner="any", devices=caches, **wanted)


def test_a_static_cache_is_filled_with_copies(tiny_graph) -> None:
    features = tiny_graph.features.copy()
    graph = dataclasses.replace(tiny_graph, features=features)
    found = open_caches(plan(cache()), graph, DEVICE, SINGLE_PROCESS)
    assert isinstance(found.store, CachedFeatures)
    assert (found.look_ahead, found.lists, found.num_bytes) == (None, None, 32)
    features[:] = -1
    rows, traffic = found.store.gather(ids(1, 0, 4), dtype=torch.float32, num_threads=1)
    assert rows.tolist() == [[1, 10], [-1, -1], [4, 40]]
    assert (traffic.rows.hits, traffic.rows.misses) == (2, 1)


def test_a_device_that_samples_has_lists(tiny_graph) -> None:
    found = open_caches(plan(cache()), tiny_graph, SAMPLES, SINGLE_PROCESS)
    batch = NeighborSampler(tiny_graph, fanouts=[9]).sample(np.array([0, 2]), 0)
    read = found.lists.read(batch)
    # The list of 2 has two neighbours and offsets; so has that of 0, at the host.
    assert (read.hits, read.misses, read.link_requests, read.link_bytes) == (3, 3, 3, 96)
    assert read.host_bytes == 3 * tiny_graph.indices.itemsize


def test_a_cache_that_looks_ahead_is_empty_at_first(tiny_graph) -> None:
    policy = LookAhead(window=2, num_rows=2, match=False)
    ahead = cache(look_ahead=policy, features=ids(), topology=ids())
    for device in (DEVICE, SAMPLES):
        found = open_caches(plan(ahead), tiny_graph, device, SINGLE_PROCESS)
        assert isinstance(found.look_ahead, LookAheadFeatures)
        assert (found.look_ahead.window, found.lists) == (2, None)
    policy = dataclasses.replace(policy, num_rows=4, type_rows=(3, 0, 1))
    typed = open_caches(plan(cache(look_ahead=policy)), shop(6, 4), SAMPLES, SINGLE_PROCESS)
    assert isinstance(typed.look_ahead, TypedLookAhead)
    assert [None if each is None else len(each._rows) for each in typed.stores] == [3, None, 1]
    # Devices without a cache.
    assert open_caches(plan(), tiny_graph, DEVICE, SINGLE_PROCESS) is None
    assert open_caches(plan(cache(device=1)), tiny_graph, DEVICE, SINGLE_PROCESS) is None
    aggregated = cache(features=ids(), topology=ids(), host_aggregates=True)
    assert open_caches(plan(aggregated), tiny_graph, DEVICE, SINGLE_PROCESS) is None


def test_rows_are_kept_as_they_are_stored(random_graph) -> None:
    graph = random_graph(dtype=torch.bfloat16)
    found = open_caches(plan(cache(features=np.arange(0, 300, 2))), graph, DEVICE, SINGLE_PROCESS)
    stores = (HostFeatures.of(graph), found.store)
    (expected, _), (rows, traffic) = (
        each.gather(np.arange(300), dtype=torch.float32, num_threads=1) for each in stores
    )
    assert torch.equal(rows, expected)
    assert traffic.rows.hits == 150


def traffic_of(rows: tuple[int, ...], lists: tuple[int, ...] = (0, 0, 0)) -> CacheTraffic:
    return CacheTraffic(rows=rows, lists=lists, transactions=1, link_bytes=1)


def test_effects_are_what_the_plan_predicts() -> None:
    predicted = (traffic_of((5, 3, 2), (1, 0, 3)), traffic_of((0, 0, 0)))
    shared = plan(cache(0), cache(1), cliques=((0, 1),), alphas=(None,), predicted=predicted)
    first, second = cache_effects(2, shared)
    assert (first.num_bytes, first.row_misses, first.list_misses) == (32, 0.2, 0.75)
    assert first.peer_rows == pytest.approx(0.3)
    parts = [TypeReads(name=str(size), row_bytes=size, rows=(1, 0, 2)) for size in (30, 10)]
    typed = dataclasses.replace(traffic_of((2, 0, 4)), types=(parts[0], parts[1]))
    parts[0] = dataclasses.replace(parts[0], rows=(0, 2, 2))
    other = dataclasses.replace(typed, types=tuple(parts))
    effects = cache_effects(2, dataclasses.replace(shared, predicted=(typed, other)))
    assert [each.row_misses for each in effects] == [80 / 120, 80 / 150]
    assert [each.peer_rows for each in effects] == pytest.approx([0, 10 / 150])
    # A device that reads nothing is spared nothing.
    assert (second.row_misses, second.peer_rows, second.list_misses) == (1.0, 0.0, 1.0)
    nothing = CacheEffect()
    assert cache_effects(2, None) == [nothing, nothing]
    aggregated = plan(cache(1, host_aggregates=True), predicted=(traffic_of((0, 0, 0)),))
    assert cache_effects(2, aggregated) == [nothing, nothing]
    (unknown,) = cache_effects(1, plan(cache()))
    assert (unknown.num_bytes, unknown.row_misses) == (32, nothing.row_misses)


def test_devices_with_a_cache_take_rows_as_they_are() -> None:
    devices: list[Device] = [Cpu(), DEVICE, DEVICE]
    found = devices_with_caches(devices, plan(cache(1), cache(2, host_aggregates=True)))
    assert [each.host_aggregates for each in found] == [True, False, True]
    assert devices_with_caches(devices, None) == tuple(devices)


def test_a_run_says_why_nothing_is_cached() -> None:
    assert find_uncached(None, requested=False) is None
    for given, line in (
        (None, "nothing is cached: no device of device_plan has memory that a link connects"),
        (
            plan(cache(host_aggregates=True)),
            "1 of 1 devices cache nothing: the host aggregates the first layer",
        ),
    ):
        found: Any = find_uncached(given, requested=True)
        assert found.line.startswith(line)


#: The second of two workers, each on a machine of its own.
FAR: Any = SimpleNamespace(rank=1, size=2, local_size=1, is_rank0=False, barrier=lambda: None)
FAR.gather, FAR.broadcast_object = lambda mine: [], lambda value: [None, None]


def test_a_clique_over_two_machines_is_refused(tiny_graph) -> None:
    shared = plan(cache(0), cache(1), cliques=((0, 1),), alphas=(None,))
    with one_line("on one machine, got 2 machines", begins="cache plan: expected devices [0, 1], "):
        open_caches(shared, tiny_graph, DEVICE, FAR)


@pytest.mark.timeout(120)
def test_several_processes_map_each_others_rows(together) -> None:
    together("check_trade", 3)


def test_one_process_has_its_own_rows() -> None:
    assert all_gather_object([1], SINGLE_PROCESS) == [[1]]
    with shared_rows(2, 3, np.dtype(np.int32), SINGLE_PROCESS) as mapped:
        mapped(0)[:] = [[1, 2, 3], [4, 5, 6]]
    assert mapped(0).tolist() == [[1, 2, 3], [4, 5, 6]]


def test_rows_of_each_type_are_cached() -> None:
    graph = shop(num_users=6, num_items=4)  # tags 0 to 8, users 9 to 14, items 15 to 18
    first = plan(cache(features=ids(18, 3, 15), topology=ids(16, 9), feature_bytes=44))
    found = open_caches(first, graph, SAMPLES, SINGLE_PROCESS)
    batch = TypedSampler(graph, fanouts=[-1]).sample(np.arange(9, 19), 0)
    tags, _, items = (batch.vertices(number) for number in range(3))
    without, _ = TypedStore.of(graph).gather_types(batch, dtype=torch.float32, num_threads=1)

    def check(held_tags: set[int], held_items: set[int]) -> None:
        rows, traffic = found.store.gather_types(batch, dtype=torch.float32, num_threads=1)
        assert all(torch.equal(*pair) for pair in zip(rows, without, strict=True))
        hits = [len(held_tags & set(tags.tolist())), 0, len(held_items & set(items.tolist()))]
        misses = [len(tags) - hits[0], 0, len(items) - hits[2]]
        assert [part.rows.hits for part in traffic] == hits
        assert [part.rows.host_bytes for part in traffic] == [4 * misses[0], 0, 20 * misses[2]]
        counts = {"rows from emulated:0": sum(hits), "rows from the host": sum(misses)}
        assert found.counters() == counts

    check({3}, {15, 18})
    refill(found, plan(cache(features=ids(0, 1, 16))), graph, SINGLE_PROCESS)
    check({0, 1}, {16})
    # A read of each neighbor in a vertex's lists of all edge types, and one of their offsets.
    read = found.lists.read(batch)
    own = sum(1 + int(np.diff(graph.without_types().indptr)[vertex]) for vertex in (9, 16))
    assert (read.hits, read.misses) == (own, batch.num_edges + 10 - own)


def test_caches_of_types_are_above_host_memory() -> None:
    tier = tier_of(LateSource(), num_kept=0, window=1, ahead=2)
    with one_line("cache_planner=none", begins="cache_planner: expected rows in memory"):
        open_caches(plan(cache()), shop(6, 4), DEVICE, SINGLE_PROCESS, tier=tier)


def tier_of(source: LateSource, *, num_kept: int, window: int, ahead: int) -> TieredStore:
    policy = Belady(NUM_ROWS, num_kept, window=window, priority=PRIORITY, num_threads=1)
    planner = TierPlanner(policy, num_kept=num_kept, num_staged=4, window=window)
    return TieredStore(WorkerBuffer(source, planner, window=window, ahead=ahead))


def test_a_cache_above_a_tier_is_filled_from_its_source(random_graph) -> None:
    graph, source = random_graph(NUM_ROWS, 40, num_features=WIDTH), LateSource()
    tier = tier_of(source, num_kept=2, window=0, ahead=1)
    found = open_caches(plan(cache()), graph, DEVICE, SINGLE_PROCESS, tier=tier)
    assert found.multilevel is found.store
    assert source.asked == [[1, 4]]
    assert tier.rows.lead == found.multilevel.lead
    step = ids(4, 0)
    found.multilevel.expect(step)
    rows, traffic = found.store.gather(step, dtype=torch.float32, num_threads=1)
    assert np.array_equal(rows.numpy(), ROWS[step])
    assert (traffic.rows.hits, traffic.rows.misses, traffic.tier.misses) == (1, 1, 1)
    assert traffic.tier.link_requests == 1  # what filled the cache is not counted
    assert found.counters() == {"rows from emulated:0": 1, "rows from the host": 1}
    # Another row, as after another plan.
    refill(found, plan(cache(features=ids(2, 0))), graph, SINGLE_PROCESS)
    assert source.asked == [[1, 4], [0], [0, 2]]
    again = ids(4, 0)
    found.multilevel.expect(again)
    rows, traffic = found.store.gather(again, dtype=torch.float32, num_threads=1)
    assert np.array_equal(rows.numpy(), ROWS[again])
    assert (traffic.rows.hits, traffic.rows.misses) == (1, 1)


def test_a_cache_above_a_tier_looks_ahead_of_it(random_graph) -> None:
    graph = random_graph(NUM_ROWS, 40, num_features=WIDTH)
    tier = tier_of(LateSource(), num_kept=0, window=1, ahead=2)
    look_ahead = LookAhead(window=3, num_rows=2, match=True)
    ahead = cache(look_ahead=look_ahead, features=ids(), topology=ids())
    found = open_caches(plan(ahead), graph, DEVICE, SINGLE_PROCESS, tier=tier)
    assert found.multilevel is not None
    assert found.look_ahead is None
    assert found.multilevel.lead == 3 + 1 + 2
    steps = [ids(1, 2), ids(2, 3)]
    for each in steps:
        found.multilevel.expect(each)
    refill(found, plan(ahead), graph, SINGLE_PROCESS)  # rows that follow are left alone
    hits = []
    for each in steps:
        rows, traffic = found.store.gather(each, dtype=torch.float32, num_threads=1)
        assert np.array_equal(rows.numpy(), ROWS[each])
        hits.append(traffic.rows.hits)
    assert hits == [0, 1]
