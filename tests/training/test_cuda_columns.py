"""Runs with P3 on cuda devices for which the host stands: each has columns of the features.

They learn what processors do, recorded or not, also if one of them finds no room.
"""

from pathlib import Path

import numpy as np
import pytest
from cuda_plans import cards, cuda, parts
from devices import plan_of
from one_line import one_line

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

P3 = {
    "gcn": (3, ("model=gcn", "runtime.accumulate=4", "batch_size=50")),
    "batch norm, unequal": (
        2,
        (
            *("model.norm=batch", "sampler.fanouts=[-1,4]", "runtime.clip_norm=0.1"),
            *("optimizer=sgd", "optimizer.momentum=0.9", "device_plan.split=[40,24]"),
        ),
    ),
}


@pytest.mark.parametrize("kind", P3)
def test_devices_with_columns_of_the_features_learn_what_processors_do(
    launched, tmp_path, kind
) -> None:
    num_devices, options = P3[kind]
    options = (*options, "partitioner=p3", f"num_threads={num_devices}", "epochs=2")
    found = launched(tmp_path / "cuda", cards(*["auto"] * num_devices), *options)
    assert {each.prefetch for each in found.result.layout.plan.shares} == {"device"}
    cpus = plan_of(*["cpu"] * num_devices)
    split = [] if "split" in str(options) else [f"device_plan.split={parts(num_devices, options)}"]
    known = launched(tmp_path / "cpu", cpus, "runtime.drm=false", *options, *split)
    assert found.losses == pytest.approx(known.losses, rel=1e-4)
    assert found.result.test_metric == pytest.approx(known.result.test_metric, abs=0.02)
    for step in found.of_device(0):
        assert step["traffic"]["rows"]["peer_bytes"] > 0


def test_recorded_steps_with_columns_have_the_bits_of_others(launched, tmp_path, caplog) -> None:
    options = (*P3["gcn"][1], "partitioner=p3", "num_threads=2", "epochs=2")
    found, known = (
        launched(tmp_path / captures, plan_of(*devices), *options)
        for captures in ("true", "false")
        for devices in [[cuda(index=index, captures=captures) for index in (0, 1)]]
    )
    assert found.losses == known.losses
    assert not [each for each in caplog.messages if "cannot be recorded" in each]


@pytest.fixture
def hubs(tmp_path: Path) -> Path:
    """A graph whose mini-batches are small, but for those with one of ten hubs among the seeds."""
    rng, count = np.random.default_rng(0), 600
    sources, destinations = rng.integers(10, count, 700), np.arange(700) % 590 + 10
    hub_sources = np.concatenate([rng.choice(count, 80, replace=False) for _ in range(10)])
    edges = np.stack(
        [
            np.concatenate([sources, hub_sources]),
            np.concatenate([destinations, np.repeat(np.arange(10), 80)]),
        ]
    )
    labels = rng.integers(4, size=count)
    features = (np.eye(4)[labels] + rng.normal(size=(count, 4))).astype(np.float32)
    file = tmp_path / "hubs.npz"
    np.savez(file, edge_index=edges, features=features, labels=labels)
    return file


def test_devices_find_no_room_together(launched, tmp_path, hubs, caplog) -> None:
    options = (
        *("dataset=arrays", f"dataset.raw={hubs}", "dataset.split=random", "batch_size=8"),
        *("sampler.fanouts=[60,60]", "model=sage", "model.hidden=8", "model.dropout=0.5"),
        *("epochs=1", "num_threads=2", "device_plan.split=[4,4]"),
    )
    known = launched(tmp_path / "cpu", "device_plan=cpu_x2", "runtime.drm=false", *options)
    with caplog.at_level("INFO"):
        both = (cards("device", "device"), "partitioner=p3")
        found = launched(tmp_path / "cuda", *both, *options)
    assert [each for each in caplog.messages if "repeated with the maximum capacity" in each]
    assert found.losses == pytest.approx(known.losses, rel=1e-4)


def test_columns_lie_in_device_memory(launched, tmp_path) -> None:
    options = ("partitioner=p3", "num_threads=2")
    with one_line("cuda:0", "features=device or auto"):
        launched(tmp_path, cards("host", "device"), *options)
    with one_line("cuda:0", "GPUs only, each another card"):  # two workers on one card
        launched(tmp_path, plan_of(cuda(), cuda()), *options)
    small = plan_of(*(cuda(index=i, memory_bytes=9_000) for i in (0, 1)))
    with one_line("exceed its memory; more devices have fewer columns each"):
        launched(tmp_path, small, *options)


def test_devices_with_columns_resume_together(resumed_and_whole) -> None:
    options = ("model=sage", "model.dropout=0.5", "num_threads=2", "partitioner=p3")
    resumed_and_whole(cards("device", "device"), *options)
