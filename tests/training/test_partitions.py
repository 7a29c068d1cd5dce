"""Training over parts: every device has its own, and all of them learn what one process would."""

import shutil
from typing import Any

import numpy as np
import pytest
from devices import ROWS, plan_of
from same_seeds import OfParts

from gnnscale.core.errors import ConfigError
from gnnscale.graph import Graph
from gnnscale.partition import Range, make_partition, read_partition
from gnnscale.run.config import RunConfig

pytestmark = pytest.mark.integration

COMMON = (
    *("dataset.num_vertices=960", "dataset.num_edges=6000", "dataset.num_features=16"),
    *("model.hidden=16", "model.dropout=0.5", "sampler.fanouts=[10,5]"),
    *("num_threads=2", "epochs=2", "runtime.eval_every=2"),
)
#: Partitioners that divide the vertices, by the number of devices that run them.
PARTITIONERS = {
    2: {"hash": (), "pagraph": ()},
    4: {"hierarchical": ("partitioner.nvlink=siton",)},
}


def owners(config: RunConfig, num_parts: int) -> Any:
    graph = config.dataset.open()
    path = make_partition(config.partitioner, graph, num_parts=num_parts, num_hops=2, num_threads=2)
    return read_partition(path, graph).parts.owner


@pytest.mark.long
@pytest.mark.parametrize(("size", "uneven"), [(2, [7, 57]), (4, [30, 4, 20, 10])])
def test_devices_learn_what_one_process_fed_the_same_seeds_does(
    settings, losses, trained_together, tmp_path, size, uneven
) -> None:
    common = (*COMMON, f"device_plan=cpu_x{size}")
    runs = {
        name: [*common, f"partitioner={name}", *options]
        for name, options in PARTITIONERS[size].items()
    }
    runs["uneven"] = [
        *(*common, "partitioner=random", "runtime.prefetch=two_stage"),
        f"device_plan.split={uneven}",
    ]
    seen = set()
    for name, found in trained_together(size, runs).items():
        config = settings(*runs[name])
        batch_sizes = tuple(config.device_plan.split or [64 // size] * size)
        order = OfParts(owner=owners(config, size), batch_sizes=batch_sizes)
        expected = losses(tmp_path / f"alone-{name}", *COMMON, seed_order=order)
        assert found["losses"] == pytest.approx(expected, rel=1e-5), name
        seen.add(tuple(found["losses"]))

        # Every device has seeds in every step of an epoch but the last, and they stay there.
        splits = np.array(found["splits"]).reshape(2, -1, size)
        assert (splits[:, :-1] > 0).all()
        assert (splits == splits[0]).all()
        assert (splits <= batch_sizes).all()
    # The order follows from the parts.
    assert len(seen) == len(runs)


def test_a_run_over_parts_says_so(launched, tmp_path) -> None:
    run = launched(tmp_path / "own", *COMMON, "device_plan=cpu_x2", "partitioner=hash")
    partition = run.summary["partition"]
    assert (partition["algorithm"], partition["num_parts"]) == ("hash", 2)
    assert 0.4 < partition["edge_cut_fraction"] < 0.6
    assert 1 <= partition["vertex_balance"] < 1.2
    moved = run.summary["step_bytes"]
    assert moved["host"] > 0
    assert (moved["link"], moved["peers"]) == (0, 0)
    # What was sampled to plan by is much like what is trained.
    expected = moved["expected"]["data_parallel"]
    weights = 2 * 2 * 16 * 16 * 4
    assert moved["host"] + weights == pytest.approx(expected, rel=0.25)
    whole = launched(tmp_path / "whole", *COMMON, "device_plan=cpu_x2")
    assert whole.summary["partition"] is None


def test_a_device_whose_part_trains_nothing_helps_the_others(
    launched, tmp_path, monkeypatch
) -> None:
    """The second part has vertices, and none that trains."""

    def owners(self: Range, graph: Graph, num_parts: int) -> Any:
        return (~np.isin(np.arange(graph.num_vertices), graph.train_idx)).astype(np.int16)

    monkeypatch.setattr(Range, "_owners", owners)
    # Its own place: another test has stored the partition that these options make.
    own = ("partitioner=range", f"partitioner.store={tmp_path / 'parts'}")
    run = launched(tmp_path / "own", *COMMON, "device_plan=cpu_x2", *own)
    # 576 of 960 vertices train, and each device takes 32 a step.
    assert run.seeds == [(32, 32)] * (2 * 9)
    (note,) = run.summary["partition"]["notes"]
    assert note.startswith("part 1 has no training vertex")


def test_p3_moves_what_is_expected(launched, tmp_path) -> None:
    run = launched(tmp_path / "own", *COMMON, "device_plan=cpu_x2", "partitioner=p3")
    partition = run.summary["partition"]
    assert (partition["algorithm"], partition["edge_cut_fraction"]) == ("p3", None)
    moved = run.summary["step_bytes"]
    assert moved["peers"] == pytest.approx(moved["expected"]["p3"], rel=0.25)
    assert moved["expected"]["cheaper"] in ("p3", "data_parallel")


def test_what_does_not_go_together(settings) -> None:
    for overrides, message in (
        ("partitioner=hash partitioner.num_parts=3", r"num_parts=3: expected 2, a part for"),
        ("partitioner=hash batch_size=1", r"^batch_size=1: expected a seed or more for each of 2"),
        ("partitioner=random device_plan.split=[0,64]", r"^batch_size=64: expected a seed or more"),
        ("partitioner=p3 model=gat", r"^partitioner=p3: expected model=gcn, .* got GAT, "),
        (f"partitioner=p3 {plan_of('cpu', ROWS)}", r"=p3: expected devices .* got cpu:1, "),
    ):
        with pytest.raises(ConfigError, match=message):
            settings("device_plan=cpu_x2", *overrides.split())


def test_resuming_over_other_parts_is_refused(launched, tmp_path) -> None:
    options = (*COMMON, "partitioner=random")
    launched(tmp_path, *options, "device_plan=cpu_x2", "epochs=1")
    with pytest.raises(ConfigError, match=r"^resume: .*partition"):
        launched(tmp_path, *options, "device_plan=cpu_x4", "epochs=2", resume=tmp_path)


@pytest.mark.long
def test_p3_resumes_on_other_devices(launched, tmp_path) -> None:
    options = (*COMMON, "partitioner=p3")
    whole = launched(tmp_path / "whole", *options, "device_plan=cpu_x2", "epochs=2")
    launched(tmp_path / "own", *options, "device_plan=cpu_x2", "epochs=1")
    for plan in ("cpu", "cpu_x4"):
        run = shutil.copytree(tmp_path / "own", tmp_path / plan)
        resumed = launched(run, *options, f"device_plan={plan}", "epochs=2", resume=run)
        assert resumed.losses == pytest.approx(whole.losses, rel=1e-4), plan
