"""Training over parts: every device has its own, and all of them learn what one process would."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from composed import composed
from losses import Losses
from omegaconf import DictConfig
from same_seeds import OfParts

from gnnscale.core.errors import ConfigError
from gnnscale.graph import Graph
from gnnscale.options.config import typed
from gnnscale.partition import Range, make_partition, read_partition
from gnnscale.partition.partitioner import Parts
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.train import train

pytestmark = pytest.mark.integration

COMMON = (
    *("dataset.num_vertices=960", "dataset.num_edges=6000", "dataset.num_features=16"),
    *("model.hidden=16", "model.dropout=0.5", "sampler.fanouts=[10,5]", "batch_size=64"),
    *("num_threads=2", "epochs=2", "runtime.eval_every=2"),
)
#: Partitioners that divide the vertices.
PARTITIONERS = {
    **dict.fromkeys(("hash", "range", "random", "pagraph"), ()),
    "edge_cut": (),
    "hierarchical": ("partitioner.nvlink=siton",),
}
#: Those that two devices run; four run the others.
OF_TWO = ("hash", "range", "pagraph")


def owners(config: TrainConfig, num_parts: int) -> Any:
    graph = config.dataset.open()
    path = make_partition(config.partitioner, graph, num_parts=num_parts, num_hops=2, num_threads=2)
    found = read_partition(path, graph).parts
    assert isinstance(found, Parts)
    assert found.owner is not None
    return found.owner


@pytest.mark.long
@pytest.mark.parametrize("size", [2, 4])
def test_devices_learn_what_one_process_fed_the_same_seeds_does(
    options: Callable[..., DictConfig], together: Callable[..., None], tmp_path: Path, size: int
) -> None:
    plan = f"device_plan=cpu_x{size}"
    names = [name for name in PARTITIONERS if (name in OF_TWO) == (size == 2)]
    runs = {name: [*COMMON, plan, f"partitioner={name}", *PARTITIONERS[name]] for name in names}
    uneven = {2: [7, 57], 4: [30, 4, 20, 10]}[size]
    runs["uneven"] = [
        *(*COMMON, plan, "partitioner=random", "runtime.prefetch=two_stage"),
        f"device_plan.split={json.dumps(uneven).replace(' ', '')}",
    ]
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    together("train_together", size, tmp_path)
    seen = set()
    common = typed(composed(COMMON), TrainConfig)
    for name, overrides in runs.items():
        found = json.loads((tmp_path / f"{name}.json").read_text())
        config = typed(composed(overrides), TrainConfig)
        owner = owners(config, size)
        batch_sizes = tuple(config.device_plan.split or [64 // size] * size)
        alone = replace(common, seed_order=OfParts(owner=owner, batch_sizes=batch_sizes))
        expected = Losses()
        train(alone, tmp_path / f"alone-{name}", expected, options={})
        assert found["losses"] == pytest.approx(expected.steps, rel=1e-5), name
        seen.add(tuple(found["losses"]))

        # Every device has seeds in every step of an epoch but the last, and they stay there.
        splits = np.array(found["splits"]).reshape(2, -1, size)
        assert (splits[:, :-1] > 0).all()
        assert (splits == splits[0]).all()
        assert (splits <= batch_sizes).all()
    # The order follows from the parts.
    assert len(seen) == len(runs)


def test_a_run_over_parts_says_so(launched: Any, tmp_path: Path) -> None:
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
    launched: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Range, "_owners", lambda self, graph, parts: first_half(graph))
    run = launched(tmp_path / "own", *COMMON, "device_plan=cpu_x2", "partitioner=range")
    seeds = [[device["seeds"] for device in step["devices"]] for step in run.steps]
    # 576 of 960 vertices train, and each device takes 32 a step.
    assert seeds == [[32, 32]] * (2 * 9)
    (note,) = run.summary["partition"]["notes"]
    assert note.startswith("part 1 has no training vertex")


def first_half(graph: Graph) -> Any:
    """Owners by which the second part has vertices, and none that trains."""
    owner = np.ones(graph.num_vertices, np.int16)
    owner[graph.train_idx] = 0
    return owner


def test_p3_moves_what_is_expected(launched: Any, tmp_path: Path) -> None:
    run = launched(tmp_path / "own", *COMMON, "device_plan=cpu_x2", "partitioner=p3")
    partition = run.summary["partition"]
    assert (partition["algorithm"], partition["edge_cut_fraction"]) == ("p3", None)
    moved = run.summary["step_bytes"]
    assert moved["peers"] == pytest.approx(moved["expected"]["p3"], rel=0.25)
    assert moved["expected"]["cheaper"] in ("p3", "data_parallel")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("partitioner=hash", "partitioner.num_parts=3"),
            r"^partitioner.num_parts=3: device_plan has 2 devices",
        ),
        (
            ("partitioner=hash", "batch_size=1"),
            r"^batch_size=1: each of 2 devices trains the vertices of its own part",
        ),
        (
            ("partitioner=random", "device_plan.split=[0,64]", "batch_size=64"),
            r"^batch_size=64: each of 2 devices",
        ),
        (("partitioner=p3", "model=gat"), r"^partitioner=p3: GAT cannot be split by columns"),
        (
            (
                "partitioner=p3",
                "device_plan.devices=[cpu,{kind:cpu,host_aggregates:false}]",
            ),
            r"^partitioner=p3: cpu:1 trains weights of its own, or aggregates by itself",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    options: Callable[..., DictConfig], overrides: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        typed(options("device_plan=cpu_x2", *overrides), TrainConfig)


def test_more_devices_than_columns(launched: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^partitioner.num_parts=4: .* has 3 feature columns"):
        launched(
            *(tmp_path / "own", *COMMON, "dataset.num_features=3", "partitioner=p3"),
            "device_plan=cpu_x4",
        )


def test_a_partition_of_another_graph_is_refused(launched: Any, tmp_path: Path) -> None:
    store = f"partitioner.store={tmp_path / 'parts'}"
    options = (*COMMON, "device_plan=cpu_x2", "partitioner=hash", store)
    launched(tmp_path / "own", *options, "epochs=1")
    with pytest.raises(Exception, match="parts: is a partition of"):
        launched(tmp_path / "other", *options, "dataset.seed=1", "epochs=1")


def test_resuming_over_other_parts_is_refused(launched: Any, tmp_path: Path) -> None:
    options = (*COMMON, "partitioner=random")
    launched(tmp_path / "own", *options, "device_plan=cpu_x2", "epochs=1")
    with pytest.raises(ConfigError, match=r"^resume: .*partition"):
        launched(
            *(tmp_path / "own", *options, "device_plan=cpu_x4", "epochs=2"),
            resume=tmp_path / "own",
        )


@pytest.mark.long
def test_p3_resumes_on_other_devices(launched: Any, tmp_path: Path) -> None:
    options = (*COMMON, "partitioner=p3")
    whole = launched(tmp_path / "whole", *options, "device_plan=cpu_x2", "epochs=2")
    launched(tmp_path / "own", *options, "device_plan=cpu_x2", "epochs=1")
    for plan in ("cpu", "cpu_x4"):
        run = shutil.copytree(tmp_path / "own", tmp_path / plan)
        resumed = launched(run, *options, f"device_plan={plan}", "epochs=2", resume=run)
        assert resumed.losses == pytest.approx(whole.losses, rel=1e-4), plan
