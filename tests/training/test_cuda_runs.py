"""Runs on a cuda device for which the host stands: they learn what a processor does.

Its streams are late at random, and nothing in a step may wait for it, but for users' own code.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cuda_plans import cards, cuda, parts
from devices import ROWS, plan_of
from learnt import same, weights
from losses import At, Losses
from one_line import one_line
from own_modules import ALL

from gnnscale.backend.base import DeviceError, DeviceMemoryError
from gnnscale.backend.cuda import backend, host_engine, inference
from gnnscale.backend.cuda.host_kernels import HostKernels
from gnnscale.core.shared_memory import SharedMemory
from gnnscale.run.checkpoint import LAST
from gnnscale.run.checkpoint.file import load_checkpoint

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


ALONE, HYBRID = plan_of(cuda()), plan_of("cpu", cuda())
ON_DEVICE, ON_HOST = (plan_of(cuda(features=place, topology=place)) for place in ("device", "host"))
STEPS = 6
ALWAYS = "runtime.checkpoint_every_s=0"


def own(module: type) -> tuple[str, ...]:
    return "model=custom", f"model.module=own_modules:{module.__name__}", "model.dropout=0.5"


MODELS: dict[str, tuple[str, ...]] = {
    "gcn": ("model=gcn", "model.dropout=0.5"),
    "sage": ("model=sage", "model.dropout=0.5", "runtime.clip_norm=0.1", "runtime.accumulate=4"),
    "gin": ("model=gin", "model.dropout=0.5", "model.norm=layer", "optimizer=sgd"),
    "gat": ("model=gat", "model.dropout=0.5", "runtime.deterministic=true"),
    "input dropout": ("model=gcn", "model.input_dropout=0.4"),
    "batch norm": ("model=sage", "model.norm=batch", "optimizer.schedule=plateau"),
    "layer-wise": ("model=gcn", "sampler=layerwise", "sampler.layer_sizes=[30,20]"),
    "all neighbours": ("model=sage", "sampler.fanouts=[-1,4]"),
    "with replacement": ("model=sage", "sampler.replace=true"),
    "links": ("task=links", "model=sage", "model.dropout=0.5"),
    "links_appnp": ("task=links", "model=appnp"),
    **{each.__name__: own(each) for each in ALL},
}


@pytest.mark.parametrize("model", MODELS)
def test_it_learns_what_a_processor_does(run: Any, tmp_path: Path, model: str) -> None:
    known = Losses()
    run(tmp_path / "cpu", *MODELS[model], plan_of(ROWS), watched=known)
    for place in (ON_DEVICE, ON_HOST):
        found = Losses()
        run(tmp_path / str(len(place)), *MODELS[model], place, watched=found)
        assert found.steps == pytest.approx(known.steps, rel=1e-4)


def test_bfloat16_is_near_float32(run: Any, tmp_path: Path) -> None:
    known, found = Losses(), Losses()
    run(tmp_path / "float32", ALONE, watched=known)
    run(tmp_path / "bfloat16", ALONE, "runtime.compute_dtype=bfloat16", watched=found)
    assert found.steps != known.steps
    assert found.steps == pytest.approx(known.steps, rel=2e-2)


def learnt(directory: Path) -> list[torch.Tensor]:
    last = load_checkpoint(directory / LAST)
    optimizer = [each for kept in last["optimizer"].values() for each in kept.values()]
    return [*last["model"].values(), *optimizer]


@pytest.mark.parametrize("step", [4, 9])
@pytest.mark.parametrize("model", ["sage", "OwnBlocks"])
def test_a_run_resumes_from_any_step(run: Any, tmp_path: Path, step: int, model: str) -> None:
    options = (*MODELS[model], ALWAYS, ALONE)
    run(tmp_path / "whole", *options)
    part = tmp_path / "part"
    with pytest.raises(KeyboardInterrupt):
        run(part, *options, watched=At(step))
    run(part, *options, f"resume={part}")
    pairs = zip(learnt(part), learnt(tmp_path / "whole"), strict=True)
    assert all(torch.equal(*each) for each in pairs)
    assert same(weights(part), weights(tmp_path / "whole"))


@pytest.mark.parametrize("model", ["gat", "links"])
def test_beside_a_processor_the_host_updates_the_weights(
    launched: Any, tmp_path: Path, model: str
) -> None:
    options = ("runtime.drm=false", "device_plan.split=[40,24]", "num_threads=2", *MODELS[model])
    found = launched(tmp_path / "cuda", HYBRID, *options)
    assert found.result.layout.plan.shares[1].prefetch != "device"
    known = launched(tmp_path / "cpu", "device_plan=cpu_x2", *options)
    assert found.losses == pytest.approx(known.losses, rel=1e-4)


def test_a_device_is_rehearsed_alone_and_goes_on_beside_a_processor(
    launched: Any, tmp_path: Path
) -> None:
    # The host is slow in a GPU's place: the processor stays.
    options = ("epochs=100000", "runtime.patience=1", "num_threads=2", "model=sage")
    for attempt in range(4):  # a busy machine may make it slower beside the processor
        found = launched(tmp_path / f"hybrid_{attempt}", HYBRID, *options)
        if found.result.layout.left_out is None:
            break
    assert found.result.layout.left_out is None
    assert found.result.layout.predicted.rehearsed is not None
    known = launched(tmp_path / "cpu", "device_plan=cpu_x2", *options)
    assert found.losses[:12] == pytest.approx(known.losses[:12], rel=1e-4)


#: A GPU whose sampling takes longest, by counted work.
MOVES_SAMPLING = (
    plan_of("cpu", cuda(sampled_edges_per_s=2e4)),
    *("runtime.deterministic=true", "runtime.prefetch=two_stage", "num_threads=4"),
)


@pytest.mark.parametrize("model", ["sage", "links"])
def test_sampling_moves_to_the_host_and_changes_no_loss(
    launched: Any, tmp_path: Path, model: str
) -> None:
    options = ("device_plan.split=[40,24]", "epochs=6", "runtime.clip_norm=0.1")
    chosen = next(each for each in MODELS[model] if each.startswith(("model=", "task=")))
    found = launched(tmp_path / "moved", *MOVES_SAMPLING, *options, chosen)
    decisions = [step["decision"] for step in found.steps if step.get("decision")]
    assert any("the host samples" in each for each in decisions)
    # With its data on the device, nothing but what the host has sampled crosses the link.
    by_host = [each["traffic"]["lists"] for each in found.of_device(1) if "traffic" in each]
    assert 0 < len(by_host) < len(found.steps)
    assert all(each["link_bytes"] > 0 for each in by_host)
    known = launched(tmp_path / "cpu", "device_plan=cpu_x2", "runtime.drm=false", *options, chosen)
    assert found.losses == pytest.approx(known.losses, rel=1e-4)


def test_a_run_resumes_while_sampling_moves(resumed_and_whole: Any) -> None:
    resumed_and_whole(*MOVES_SAMPLING, "model=sage", "model.dropout=0.5")


TWO = plan_of(cuda(features="host"), cuda(features="host"))
#: Caches, and whether the plan is of the run's own batches.
CACHES = {
    "rows": ("cache_planner=gnnlab", "cache_planner.ratio=0.3"),
    "rows of peers": ("cache_planner=quiver", "cache_planner.ratio=0.2"),
    "rows and lists of peers": ("cache_planner=legion", "cache_planner.ratio=0.2"),
    "sized by itself": ("cache_planner=pagraph", "cache_planner.reserve=0.5"),
}
SPLIT = "device_plan.split=[32,32]"
ONE_EPOCH = ("epochs=1", "runtime.drm=false", "num_threads=2", SPLIT)


@pytest.mark.parametrize("kind", CACHES)
def test_caches_in_device_memory_change_no_loss_and_hit_as_planned(
    launched: Any, tmp_path: Path, kind: str
) -> None:
    options = [*CACHES[kind], *ONE_EPOCH, "model=sage", "model.dropout=0.5"]
    if "peers" in kind:
        links = tmp_path / "links.csv"
        links.write_text("0 1\n1 0\n")
        options.append(f"cache_planner.nvlink={links}")
    found = launched(tmp_path / "cached", TWO, *options)
    known = launched(tmp_path / "none", TWO, *ONE_EPOCH, "model=sage", "model.dropout=0.5")
    assert found.losses == known.losses
    assert found.summary["cache"]["predicted"]["exact"]
    check_hits(found.summary["cache"])
    rows = [step["traffic"]["rows"] for step in found.of_device(0)]
    assert any(each.get("peer_hits") for each in rows) == ("peers" in kind)


TOGETHER = {
    "two": (("device", "device"), ()),
    "three": (("device", "host", "device"), ("batch_size=50",)),
    "mini-batches of an update": (("device", "device"), ("runtime.accumulate=4", "optimizer=sgd")),
    "batch norm": (("device", "host"), ("model.norm=batch", "runtime.accumulate=2")),
    "attention": (("device", "device"), ("model=gat", "runtime.clip_norm=0.1")),
    "unequal": (("device", "device"), ("device_plan.split=[40,24]",)),
}


@pytest.mark.parametrize("kind", TOGETHER)
def test_devices_that_sum_by_themselves_learn_what_processors_do(
    launched: Any, tmp_path: Path, kind: str
) -> None:
    places, more = TOGETHER[kind]
    options = ("model=sage", "model.dropout=0.5", "num_threads=3", *more)
    found = launched(tmp_path / "cuda", cards(*places), *options)
    assert {share.prefetch for share in found.result.layout.plan.shares} == {"device"}
    split = "" if "split" in str(more) else f"device_plan.split={parts(len(places), more)}"
    cpus = plan_of(*(ROWS for _ in places))
    known = launched(tmp_path / "cpu", cpus, *options, "runtime.drm=false", *filter(None, [split]))
    assert found.losses == pytest.approx(known.losses, rel=1e-4)


def test_devices_resume_together(resumed_and_whole: Any) -> None:
    options = ("model=sage", "model.dropout=0.5", "num_threads=2")
    resumed_and_whole(cards("device", "device"), *options)


@pytest.mark.parametrize("planner", ["gnnlab", "legion"])
def test_a_device_alone_reads_its_cache_in_recorded_steps(
    launched: Any, tmp_path: Path, planner: str
) -> None:
    options = (f"cache_planner={planner}", "cache_planner.ratio=0.2", "epochs=1")
    found = launched(tmp_path / "cached", plan_of(cuda()), *options)
    known = launched(tmp_path / "none", ON_HOST, "epochs=1")
    assert found.losses == known.losses
    check_hits(found.summary["cache"])


SIZES_ITSELF = ("cache_planner=pagraph", "cache_planner.reserve=0.25", "epochs=1", "num_threads=2")


@pytest.mark.parametrize("num_devices", [1, 2])
def test_a_cache_takes_what_a_rehearsal_leaves(
    launched: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, num_devices: int
) -> None:
    memory = 4 << 30
    devices = plan_of(*[cuda(memory_bytes=memory)] * num_devices)
    with caplog.at_level("INFO"):
        found = launched(tmp_path, devices, *SIZES_ITSELF)
    check_hits(found.summary["cache"])
    (line,) = [each for each in caplog.messages if "for each GPU's cache" in each]
    budget, left = (float(each) for each in re.findall(r"([0-9.]+) GiB", line))
    # The host counts what its process has grown, of which there are some MiB.
    assert 2 < left < 4
    rounded = 0.1  # both are printed with one digit
    assert left - 1 - 4 / 64 - rounded < budget <= left - 1 + rounded


def test_no_memory_is_left_for_a_cache(launched: Any, tmp_path: Path) -> None:
    with one_line("cuda:0 has no memory left for a cache: steps without one leave 0.0 MiB"):
        launched(tmp_path, plan_of(cuda(memory_bytes=1 << 20)), *SIZES_ITSELF)


def check_hits(cache: dict[str, Any]) -> None:
    """What the device has counted is what was planned."""
    measured, predicted = cache["measured"], cache["predicted"]
    assert measured["feature_hit_rate"] > 0
    assert measured["transactions"] == predicted["transactions"]
    for rate in ("feature_hit_rate", "topology_hit_rate"):
        if predicted[rate] is not None:  # policies without lists do not count them
            assert measured[rate] == pytest.approx(predicted[rate], rel=1e-12)


AHEAD = ("epochs=2", "cache_planner.predicted_epochs=null")
FIFTH = "cache_planner.ratio=0.2"


@pytest.mark.parametrize("planner", ["belady", "belady_match", "match"])
@pytest.mark.parametrize("window", ["1", "null"])
def test_rows_follow_the_batches_and_hit_as_planned(
    launched: Any, tmp_path: Path, planner: str, window: str
) -> None:
    options = [f"cache_planner={planner}", *AHEAD, "model=sage", "model.dropout=0.5"]
    options += [FIFTH] if planner != "match" else []  # which keeps no more than a mini-batch
    found = launched(
        tmp_path / "cached", plan_of(cuda()), *options, f"cache_planner.window={window}"
    )
    known = launched(tmp_path / "none", ON_HOST, "epochs=2", "model=sage", "model.dropout=0.5")
    assert found.losses == known.losses
    assert found.summary["cache"]["predicted"]["exact"]
    check_hits(found.summary["cache"])


def test_rows_follow_the_batches_of_each_of_two_devices(launched: Any, tmp_path: Path) -> None:
    options = ("cache_planner=belady_match", FIFTH, *AHEAD, "num_threads=2", SPLIT)
    found = launched(tmp_path / "cached", cards("auto", "auto"), *options, "runtime.drm=false")
    known = launched(tmp_path / "none", cards("host", "host"), "epochs=2", "num_threads=2")
    assert found.losses == known.losses
    check_hits(found.summary["cache"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((HYBRID,), ("got a dynamic cache on cuda:1", "next to a CPU worker")),
        (
            (plan_of(cuda()), "runtime.compute_dtype=bfloat16"),
            ("has rows of the stored type", "bfloat16"),
        ),
    ],
)
def test_rows_cannot_follow(
    launched: Any, tmp_path: Path, given: tuple[str, ...], words: tuple[str, ...]
) -> None:
    with one_line(*words):
        launched(tmp_path, *given, "cache_planner=belady", FIFTH)


def test_what_is_reported_is_marked_as_emulated(launched: Any, tmp_path: Path) -> None:
    reported = launched(tmp_path, ON_HOST)
    (device,) = reported.summary["devices"]
    assert device["figures"] == "emulated"
    for step in reported.of_device(0):
        assert set(step["stage_s"]) >= {"sample", "load", "propagate", "sync"}
        assert step["stage_s"]["propagate"] > 0
        rows = step["traffic"]["rows"]
        assert rows["link_bytes"] == rows["host_bytes"] > 0
        assert step["traffic"]["lists"]["link_requests"] > 0
    # What lies in the device's memory crosses nothing, of which reports have no word.
    on_device = launched(tmp_path / "device", ON_DEVICE)
    assert not any("traffic" in each for each in on_device.of_device(0))


def test_data_that_do_not_fit_are_one_line(run: Any, tmp_path: Path) -> None:
    small = plan_of(cuda(memory_bytes=100_000, features="device", topology="host"))
    with one_line("features=device", "MB", "features=host"):
        run(tmp_path, small, "dataset.num_features=64")


class TooSmall(HostKernels):
    """A device whose memory is too small for what comes after some launches."""

    left = 60

    def launch(self, name: str, *arguments: Any, **options: Any) -> None:
        TooSmall.left -= 1
        if TooSmall.left < 0:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        super().launch(name, *arguments, **options)


def test_a_step_without_memory_names_itself_and_what_helps(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_engine, "HostKernels", TooSmall)
    begins = "cuda:0: out of device memory in step "
    with one_line("2.00 GiB", "sampler.fanouts", error=DeviceMemoryError, begins=begins):
        run(tmp_path, ALONE)


@pytest.mark.parametrize("model", ["gcn", "sage", "gat", "PyGBipartite"])
@pytest.mark.parametrize("place", [ON_DEVICE, ON_HOST])
def test_it_evaluates_over_all_neighbours(
    run: Any, tmp_path: Path, model: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "_CHUNK_EDGES", 500)
    known = run(tmp_path / "cpu", *MODELS[model], plan_of(ROWS))
    found = run(tmp_path / "cuda", *MODELS[model], place)
    assert found.test_metric == pytest.approx(known.test_metric, abs=0.02)
    before = [each.valid_metric for each in known.history]
    assert [each.valid_metric for each in found.history] == pytest.approx(before, abs=0.02)


class Faulty(HostKernels):
    """A device that reads an address which is not there."""

    def launch(self, name: str, *arguments: Any, **options: Any) -> None:
        if name.startswith("aggregate"):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        super().launch(name, *arguments, **options)


def test_a_fault_of_the_gpu_names_the_step(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_engine, "HostKernels", Faulty)
    begins = "cuda:0: the GPU failed in step 0, of 64 seeds, or just before it"
    with one_line("illegal memory access", "LAUNCH_BLOCKING", error=DeviceError, begins=begins):
        run(tmp_path, ALONE)


def test_little_memory_after_a_rehearsal_is_a_warning(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    options = plan_of(cuda(features="host", topology="host", memory_bytes=1 << 30))
    run(tmp_path, options, "epochs=1", "runtime.eval_every=2")
    assert "may not fit" not in caplog.text

    class Full(host_engine.HostEngine):
        def peak_bytes(self) -> int:
            return int(0.95 * self.memory_bytes)

    monkeypatch.setattr(backend, "HostEngine", Full)
    run(tmp_path / "full", options, "epochs=1", "runtime.eval_every=2")
    assert "may not fit" in caplog.text


def test_a_sampled_graph_is_the_processors(run: Any, tmp_path: Path) -> None:
    counts: list[list[int]] = []

    class Watching(Losses):
        def stepped(self, record: Any) -> None:
            super().stepped(record)
            counts[-1].append(record.num_edges)

    for number, plan in enumerate((plan_of(ROWS), ALONE)):
        counts.append([])
        run(tmp_path / str(number), plan, watched=Watching())
    assert counts[0] == counts[1]
    assert np.sum(counts[0]) > 0


def test_what_gpus_read_in_host_memory_is_filled_once(
    launched: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    filled = SharedMemory.filled.__func__  # type: ignore[attr-defined]

    def counted(cls: Any, source: Any) -> SharedMemory:
        made.append(source.nbytes)
        return filled(cls, source)  # type: ignore[no-any-return]

    monkeypatch.setattr(SharedMemory, "filled", classmethod(counted))
    known = launched(tmp_path / "device", ON_DEVICE)
    assert not made
    two = plan_of(cuda(features="host", topology="host"), cuda(features="host", topology="host"))
    found = launched(tmp_path / "host", two, "num_threads=2", "device_plan.split=[40,24]")
    assert len(made) == 3  # features, and both arrays of the topology
    assert found.losses == pytest.approx(known.losses, rel=1e-4)
