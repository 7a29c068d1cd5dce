"""Rows and lists of vertex types that are read from the disk change nothing that is learnt."""

from dataclasses import replace

import numpy as np
import pytest
from learnt import same, weights
from one_line import one_line
from typed_graphs import shop

from gnnscale import Graph
from gnnscale.features import DiskFeaturesConfig
from gnnscale.graph import FeatureMatrix, TypedFeatures
from gnnscale.graph.dtypes import quantized
from gnnscale.training import open_device
from gnnscale.training.build import topology

pytestmark = pytest.mark.integration


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a store of tags without features, users of int8 and items of float16 features."""
    graph = shop(num_users=1000, num_items=1500)
    generator = np.random.default_rng(0)
    users = quantized(generator.standard_normal((1000, 30)).astype(np.float32), "int8")
    items = generator.standard_normal((1500, 40)).astype(np.float16)
    matrices = [
        None,
        FeatureMatrix(rows=users, dtype="int8", width=30),
        FeatureMatrix(rows=items, dtype="float16", width=40),
    ]
    path = tmp_path_factory.mktemp("shop") / "store"
    replace(graph, features=TypedFeatures(matrices)).save(path)
    assert Graph.open(path).features.widths == (0, 30, 40)
    return str(path)


def common(store: str) -> tuple[str, ...]:
    return (
        *("dataset=store", f"dataset.store={store}", "model=rsage", "model.hidden=8"),
        # Bits of products follow the number of threads, which a plan takes from what it measures.
        *("sampler.fanouts=[4,3]", "batch_size=64", "epochs=2", "num_threads=1"),
        *("model.dropout=0.5", "runtime.eval_every=2"),
    )


DISK = ("features=disk", "features.memory_bytes=320_000", "features.window=2")
LISTS = "sampler.memory_bytes=20_000"
#: What is read from the disk, and how mini-batches are prepared.
RUNS = {
    "rows": (*DISK, "runtime.prefetch=none"),
    "static": (*DISK, "features.policy=out_degree", "runtime.prefetch=one_stage"),
    "lists": (*DISK, "sampler.memory_bytes=0", "runtime.prefetch=two_stage"),
}


def test_the_disk_changes_nothing_learnt(trained_together, store) -> None:
    fixed = (*common(store), "device_plan=cpu_x2", "device_plan.split=[60,4]", "runtime.drm=false")
    found = trained_together(
        2, {"memory": fixed, **{name: (*fixed, *how) for name, how in RUNS.items()}}
    )
    expected = found["memory"]["losses"]
    assert len(set(expected)) == len(expected) == 20
    for name in RUNS:
        assert found[name]["losses"] == expected, name


def read(run) -> tuple[int, int]:
    """Return the rows, and the neighbors, that a run of one device has read from the disk."""
    traffic = [epoch.devices[0].traffic for epoch in run.history]
    return sum(each.tier.misses for each in traffic), sum(each.neighbors.misses for each in traffic)


@pytest.mark.parametrize(
    "changes",
    [
        ("model.without_features=constant", "sampler.edge_fanouts={item-bought-by-user:[3,0]}"),
        ("task=links", "task.edge_type=user-buys-item", "batch_size=512"),
        ("runtime.deterministic=true", "model=hgt"),
    ],
)
def test_the_disk_is_read_for_all_that_trains(run, tmp_path, store, changes) -> None:
    one = (*common(store), "device_plan=cpu", *changes)
    memory = run(tmp_path / "memory", *one)
    disk = run(tmp_path / "disk", *one, *DISK, "features.memory_bytes=900_000", LISTS)
    assert read(memory) == (0, 0)
    assert min(read(disk)) > 0
    for left, right in zip(memory.history, disk.history, strict=True):
        assert (left.train_loss, left.valid_metric) == (right.train_loss, right.valid_metric)
    assert memory.test_metric == disk.test_metric


def test_a_graph_without_types_is_one_type(run, tmp_path) -> None:
    options = ("model=rsage", "device_plan=cpu", "epochs=1", "num_threads=1")
    memory, disk = (
        run(tmp_path / str(len(how)), *options, *how)
        for how in ((), ("features=disk", "features.memory_bytes=1e7", LISTS))
    )
    assert min(read(disk)) > 0
    assert memory.history[0].train_loss == disk.history[0].train_loss


def test_a_run_goes_on_from_the_disk(run, tmp_path, store) -> None:
    one = (*common(store), "device_plan=cpu", "runtime.drm=false")
    run(tmp_path / "whole", *one)
    run(tmp_path / "part", *one, *DISK, "epochs=1")
    run(tmp_path / "part", *one, *DISK, LISTS, f"resume={tmp_path / 'part'}")
    assert same(weights(tmp_path / "part"), weights(tmp_path / "whole"))


def test_what_exceeds_memory_is_read_from_the_disk_by_itself(
    run, tmp_path, store, monkeypatch, caplog
) -> None:
    one = (*common(store), "device_plan=cpu", "epochs=1")
    memory = run(tmp_path / "memory", *one)
    monkeypatch.setattr(
        open_device, "chosen_tier", lambda features, graph, may_choose: DiskFeaturesConfig()
    )
    monkeypatch.setattr(topology, "exceeds_memory", lambda graph: True)
    with caplog.at_level("INFO"):
        disk = run(tmp_path / "disk", *one)
    lines = [line for line in caplog.messages if line.startswith("features=disk: ")]
    assert [line.partition("; ")[0].partition(" hold ")[2] for line in lines] == [
        *("100% of 0.0 MiB of rows of user", "100% of 0.1 MiB of rows of item")
    ]
    assert disk.history[0].train_loss == memory.history[0].train_loss
    assert read(disk)[0] > 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("features=shared",), ("model=rsage: expected features=host or disk", "features=shared")),
        ((*DISK, "features.memory_bytes=1000"), ("the rows of a step do not fit", "missing")),
        ((LISTS, "device_plan=cuda"), ("sampler.memory_bytes=20000", "cuda:0")),
    ],
)
def test_what_does_not_go_with_it_is_refused(run, tmp_path, store, changes, words) -> None:
    with one_line(*words):
        run(tmp_path, *common(store), *changes)
