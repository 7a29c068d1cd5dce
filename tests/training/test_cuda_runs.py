"""Runs on a cuda device for which the host stands: they learn what a processor does.

Its streams are late at random, and nothing in a step may wait for it, but for users' own code.
"""

import itertools
import re
from typing import Any

import pytest
import torch
from cuda_plans import cards, cuda, parts
from devices import ROWS, plan_of
from learnt import all_same
from losses import At, Losses
from one_line import one_line
from own_modules import ALL

from gnnscale.backend.base import DeviceError, DeviceMemoryError
from gnnscale.backend.cuda import backend, host_engine, inference
from gnnscale.backend.cuda.host_kernels import HostKernels
from gnnscale.core.shared_memory import SharedMemory

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


ALONE, HYBRID = plan_of(cuda()), plan_of("cpu", cuda())
ON_DEVICE, ON_HOST = (plan_of(cuda(features=place, topology=place)) for place in ("device", "host"))
ALWAYS = "runtime.checkpoint_every_s=0"


def own(module: type) -> tuple[str, ...]:
    return "model=custom", f"model.module=own_modules:{module.__name__}", "model.dropout=0.5"


MODELS: dict[str, tuple[str, ...]] = {
    "gcn": ("model=gcn", "model.dropout=0.5", "model.input_dropout=0.4"),
    "sage": ("model=sage", "model.dropout=0.5", "runtime.clip_norm=0.1", "runtime.accumulate=4"),
    "gin": ("model=gin", "model.norm=layer", "optimizer=sgd", "sampler.fanouts=[-1,4]"),
    "gat": ("model=gat", "model.dropout=0.5", "runtime.deterministic=true"),
    "batch norm": ("model.norm=batch", "optimizer.schedule=plateau", "sampler.replace=true"),
    "layer-wise": ("model=gcn", "sampler=layerwise", "sampler.layer_sizes=[30,20]"),
    "links": ("task=links", "model=sage", "model.dropout=0.5", "epochs=1"),
    "links_appnp": ("task=links", "model=appnp", "epochs=1"),
    **{each.__name__: own(each) for each in ALL},
}


PLACES = dict(zip(MODELS, itertools.cycle([ON_DEVICE, ON_HOST]), strict=False))


@pytest.mark.parametrize(("model", "place"), PLACES.items(), ids=PLACES)
def test_it_learns_what_a_processor_does(run, tmp_path, model, place, monkeypatch) -> None:
    monkeypatch.setattr(inference, "_CHUNK_EDGES", 500)
    known, found = Losses(), Losses()
    options = ("epochs=2", *MODELS[model])
    on_cpu = run(tmp_path / "cpu", *options, plan_of(ROWS), watched=known)
    on_cuda = run(tmp_path / "cuda", *options, place, watched=found)
    assert found.steps == pytest.approx(known.steps, rel=1e-4)
    assert on_cuda.test_metric == pytest.approx(on_cpu.test_metric, abs=0.02)
    metrics = [[each.valid_metric for each in result.history] for result in (on_cuda, on_cpu)]
    assert metrics[0] == pytest.approx(metrics[1], abs=0.02)
    # What was sampled is the same.
    sampled = [[each.num_edges for each in result.history] for result in (on_cuda, on_cpu)]
    assert sampled[0] == sampled[1]
    assert min(sampled[0]) > 0


def test_bfloat16_is_near_float32(losses, tmp_path) -> None:
    known = losses(tmp_path / "float32", ALONE)
    found = losses(tmp_path / "bfloat16", ALONE, "runtime.compute_dtype=bfloat16")
    assert found != known
    assert found == pytest.approx(known, rel=2e-2)


@pytest.mark.parametrize(("step", "model"), [(4, "sage"), (9, "OwnBlocks")])
def test_a_run_resumes_from_any_step(run, tmp_path, step, model) -> None:
    options = (*MODELS[model], ALWAYS, ALONE)
    run(tmp_path / "whole", *options)
    part = tmp_path / "part"
    with pytest.raises(KeyboardInterrupt):
        run(part, *options, watched=At(step))
    run(part, *options, f"resume={part}")
    assert all_same(part, tmp_path / "whole")


#: A GPU whose sampling takes longest, by counted work.
MOVES_SAMPLING = (
    plan_of("cpu", cuda(sampled_edges_per_s=2e4)),
    *("runtime.deterministic=true", "runtime.prefetch=two_stage", "num_threads=4"),
)


def test_sampling_moves_to_the_host_and_changes_no_loss(launched, tmp_path) -> None:
    options = ("device_plan.split=[40,24]", "epochs=6", "runtime.clip_norm=0.1", "task=links")
    found = launched(tmp_path / "moved", *MOVES_SAMPLING, *options)
    decisions = [step["decision"] for step in found.steps if step.get("decision")]
    assert any("the host samples" in each for each in decisions)
    # With its data on the device, nothing but what the host has sampled crosses the link.
    by_host = [each["traffic"]["lists"] for each in found.of_device(1) if "traffic" in each]
    assert 0 < len(by_host) < len(found.steps)
    assert all(each["link_bytes"] > 0 for each in by_host)
    known = launched(tmp_path / "cpu", "device_plan=cpu_x2", "runtime.drm=false", *options)
    assert found.losses == pytest.approx(known.losses, rel=1e-4)


def test_a_run_resumes_while_sampling_moves(resumed_and_whole) -> None:
    resumed_and_whole(*MOVES_SAMPLING, "model=sage", "model.dropout=0.5")


TWO = plan_of(cuda(features="host"), cuda(features="host"))
CACHES = {
    "rows": ("cache_planner=gnnlab", "cache_planner.ratio=0.3"),
    "rows and lists of peers": ("cache_planner=legion", "cache_planner.ratio=0.2"),
}
SPLIT = "device_plan.split=[32,32]"
ONE_EPOCH = ("epochs=1", "runtime.drm=false", "num_threads=2", SPLIT)


def test_caches_in_device_memory_change_no_loss_and_hit_as_planned(launched, tmp_path) -> None:
    common = (TWO, *ONE_EPOCH, "model.dropout=0.5")
    links = tmp_path / "links.csv"
    links.write_text("0 1\n1 0\n")
    known = launched(tmp_path / "none", *common)
    for kind, options in CACHES.items():
        joined = [f"cache_planner.nvlink={links}"] if "peers" in kind else []
        found = launched(tmp_path / kind, *common, *options, *joined)
        assert found.losses == known.losses
        assert found.summary["cache"]["predicted"]["exact"]
        check_hits(found.summary["cache"])
        rows = [step["traffic"]["rows"] for step in found.of_device(0)]
        assert any(each.get("peer_hits") for each in rows) == ("peers" in kind)


TOGETHER = {
    "three": (
        ("device", "host", "device"),
        ("batch_size=50", "runtime.accumulate=4", "optimizer=sgd"),
    ),
    "batch norm, uneven": (
        ("device", "host"),
        ("model.norm=batch", "runtime.accumulate=2", "device_plan.split=[40,24]"),
    ),
}


@pytest.mark.parametrize("kind", TOGETHER)
def test_devices_that_sum_by_themselves_learn_what_processors_do(launched, tmp_path, kind) -> None:
    places, more = TOGETHER[kind]
    options = ("model=sage", "model.dropout=0.5", "num_threads=3", *more)
    found = launched(tmp_path / "cuda", cards(*places), *options)
    assert {share.prefetch for share in found.result.layout.plan.shares} == {"device"}
    split = "" if "split" in str(more) else f"device_plan.split={parts(len(places), more)}"
    cpus = plan_of(*(ROWS for _ in places))
    known = launched(tmp_path / "cpu", cpus, *options, "runtime.drm=false", *filter(None, [split]))
    assert found.losses == pytest.approx(known.losses, rel=1e-4)


SIZES_ITSELF = ("cache_planner=pagraph", "cache_planner.reserve=0.25", "epochs=1", "num_threads=2")


def test_a_cache_takes_what_a_rehearsal_leaves(launched, tmp_path, caplog) -> None:
    devices = plan_of(*[cuda(memory_bytes=4 << 30)] * 2)
    with caplog.at_level("INFO"):
        found = launched(tmp_path, devices, *SIZES_ITSELF)
    check_hits(found.summary["cache"])
    (line,) = [each for each in caplog.messages if "for each GPU's cache" in each]
    budget, left = (float(each) for each in re.findall(r"([0-9.]+) GiB", line))
    # The host counts what its process has grown, of which there are some MiB or none.
    assert 2 < left <= 4
    rounded = 0.1  # both are printed with one digit
    assert left - 1 - 4 / 64 - rounded < budget <= left - 1 + rounded


def test_no_memory_is_left_for_a_cache(launched, tmp_path) -> None:
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


def test_rows_follow_the_batches_and_hit_as_planned(launched, tmp_path) -> None:
    known = launched(tmp_path / "none", ON_HOST, "epochs=2", "model.dropout=0.5")
    check_report(known)
    for planner, *more in (
        ("belady", "cache_planner.window=1", FIFTH, *AHEAD),
        ("belady_match", "cache_planner.window=null", FIFTH, *AHEAD),
        ("match", "cache_planner.window=1", *AHEAD),  # which keeps no more than a mini-batch
        ("legion", FIFTH, "epochs=1"),  # whose rows and lists stay
    ):
        options = (f"cache_planner={planner}", *more, "model.dropout=0.5")
        found = launched(tmp_path / planner, plan_of(cuda()), *options)
        assert found.losses == known.losses[: len(found.losses)]
        assert found.summary["cache"]["predicted"]["exact"]
        check_hits(found.summary["cache"])


def check_report(run: Any) -> None:
    """What crosses the link is told, and marked as emulated."""
    (device,) = run.summary["devices"]
    assert device["figures"] == "emulated"
    for step in run.of_device(0):
        assert set(step["stage_s"]) >= {"sample", "load", "propagate", "sync"}
        assert step["stage_s"]["propagate"] > 0
        rows = step["traffic"]["rows"]
        assert rows["link_bytes"] == rows["host_bytes"] > 0
        assert step["traffic"]["lists"]["link_requests"] > 0


def test_rows_follow_the_batches_of_each_of_two_devices(launched, tmp_path) -> None:
    options = ("cache_planner=belady_match", FIFTH, *AHEAD, "num_threads=2", SPLIT)
    found = launched(tmp_path / "cached", cards("auto", "auto"), *options, "runtime.drm=false")
    known = launched(tmp_path / "none", cards("host", "host"), "epochs=2", "num_threads=2")
    assert found.losses == known.losses
    check_hits(found.summary["cache"])


def test_rows_cannot_follow(launched, tmp_path) -> None:
    belady = ("cache_planner=belady", FIFTH)
    with one_line("got a dynamic cache on cuda:1", "next to a CPU worker"):
        launched(tmp_path, HYBRID, *belady)
    with one_line("has rows of the stored type", "bfloat16"):
        launched(tmp_path, plan_of(cuda()), *belady, "runtime.compute_dtype=bfloat16")


def test_data_that_do_not_fit_are_one_line(run, tmp_path) -> None:
    small = plan_of(cuda(memory_bytes=100_000, features="device", topology="host"))
    with one_line("features=device", "MB", "features=host"):
        run(tmp_path, small, "dataset.num_features=64")


def failing(kernel: str, launches: int, error: Exception) -> type[HostKernels]:
    """Return kernels of which those that begin with ``kernel`` fail after some launches."""
    left = iter(range(launches))

    class Failing(HostKernels):
        def launch(self, name: str, *arguments: Any, **options: Any) -> None:
            if name.startswith(kernel) and next(left, None) is None:
                raise error
            super().launch(name, *arguments, **options)

    return Failing


def test_a_step_that_fails_names_itself_and_what_helps(run, tmp_path, monkeypatch) -> None:
    error: Exception = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    monkeypatch.setattr(host_engine, "HostKernels", failing("", 60, error))
    begins = "cuda:0: out of device memory in step "
    with one_line("2.00 GiB", "sampler.fanouts", error=DeviceMemoryError, begins=begins):
        run(tmp_path, ALONE)
    error = RuntimeError("CUDA error: an illegal memory access was encountered")
    monkeypatch.setattr(host_engine, "HostKernels", failing("aggregate", 0, error))
    begins = "cuda:0: the GPU failed in step 0, of 64 seeds, or just before it"
    with one_line("illegal memory access", "LAUNCH_BLOCKING", error=DeviceError, begins=begins):
        run(tmp_path, ALONE)


def test_little_memory_after_a_rehearsal_is_a_warning(run, tmp_path, monkeypatch, caplog) -> None:
    options = plan_of(cuda(features="host", topology="host", memory_bytes=1 << 30))
    run(tmp_path, options, "epochs=1", "runtime.eval_every=2")
    assert "may not fit" not in caplog.text

    class Full(host_engine.HostEngine):
        def peak_bytes(self) -> int:
            return int(0.95 * self.memory_bytes)

    monkeypatch.setattr(backend, "HostEngine", Full)
    run(tmp_path / "full", options, "epochs=1", "runtime.eval_every=2")
    assert "may not fit" in caplog.text


def test_what_gpus_read_in_host_memory_is_filled_once(launched, tmp_path, monkeypatch) -> None:
    made: list[int] = []
    filled = SharedMemory.filled.__func__  # type: ignore[attr-defined]

    def counted(cls: Any, source: Any) -> SharedMemory:
        made.append(source.nbytes)
        return filled(cls, source)  # type: ignore[no-any-return]

    monkeypatch.setattr(SharedMemory, "filled", classmethod(counted))
    known = launched(tmp_path / "device", ON_DEVICE)
    assert not made
    # What lies in the device's memory crosses nothing, of which reports have no word.
    assert not any("traffic" in each for each in known.of_device(0))
    two = plan_of(cuda(features="host", topology="host"), cuda(features="host", topology="host"))
    found = launched(tmp_path / "host", two, "num_threads=2", "device_plan.split=[40,24]")
    assert len(made) == 3  # features, and both arrays of the topology
    assert found.losses == pytest.approx(known.losses, rel=1e-4)
