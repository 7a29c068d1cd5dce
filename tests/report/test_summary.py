import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import epochs
import pytest
from small_plans import plan_of, share

from gnnscale.cache import CacheStats, CacheTraffic, Uncached
from gnnscale.core.gpu import GpuUse
from gnnscale.core.stages import Access, Traffic
from gnnscale.planner import Cpu, DevicePlan
from gnnscale.report.formatting import energy_sentence
from gnnscale.report.page.devices import devices
from gnnscale.report.summary import append_metrics, summarize, write_json, write_metrics
from gnnscale.run.records import DeviceEpoch, EpochRecord, RunLayout, TrainResult


def epoch(number: int, metric: float | None, seconds: float, **changes: Any) -> EpochRecord:
    sizes = {"num_edges": 2_000_000, "num_vertices": 300, "peak_rss_bytes": 1000 * number}
    times = {"epoch_time_s": seconds, "eval_time_s": None, "stage_times_s": stage_times(seconds)}
    fields: dict[str, Any] = {"train_loss": 1.0 / number, **sizes, **times}
    return epochs.epoch(number, metric, devices=(cpu(seconds, **changes),), **fields)


def stage_times(seconds: float) -> dict[str, float | None]:
    times = {"sample": seconds, "load": 1.0, "propagate": 2, "sync": 0}
    return {**times, "exchange": None, "transfer": None}


def cpu(seconds: float, **changes: Any) -> DeviceEpoch:
    values: dict[str, Any] = {
        **{"name": "cpu:0", "kind": "cpu", "figures": "measured", "batch_share": 1.0},
        **{"threads": {"sample": 2, "load": 2, "propagate": 2}, "traffic": Traffic()},
        **{"stage_times_s": stage_times(seconds), "host_to_device_bytes": None},
        **{"peak_rss_bytes": round(seconds * 100), "pss_bytes": 50},
    }
    return DeviceEpoch(**values | changes)


def plan(*names: str) -> DevicePlan:
    return plan_of(*(share(Cpu(name=name), threads=2) for name in names))


def result(*history: EpochRecord, **changes: Any) -> TrainResult:
    values: dict[str, Any] = {
        **{"dataset": "cora", "model": "Gcn", "seed": 4, "measures": ("accuracy",)},
        **{"ceiling": None, "history": history, "test_metrics": {"accuracy": 0.7}},
        **{"layout": RunLayout(plan=plan("cpu:0"))},
    }
    return TrainResult(**values | changes)


def test_summary_by_hand() -> None:
    history = (epoch(1, 0.5, 1.0), epoch(2, 0.8, 2.0), epoch(3, 0.6, 5.0))
    summary = summarize(result(*history), status="completed")
    assert summary["status"] == "completed"
    assert (summary["dataset"], summary["model"], summary["seed"]) == ("cora", "Gcn", 4)
    assert (summary["epochs"], summary["best_epoch"]) == (3, 2)
    assert (summary["valid_metric"], summary["test_metric"]) == (0.8, 0.7)
    assert summary["train_loss"] == pytest.approx(1 / 3)
    assert summary["epoch_time_s"] == {"mean": pytest.approx(8 / 3), "median": 2.0}
    assert summary["mteps"] == pytest.approx(6 / 8)
    assert summary["nvtps"] == pytest.approx(900 / 8)
    assert summary["peak_rss_bytes"] == 3000
    (device,) = summary["devices"]
    assert (device["name"], device["kind"], device["batch_share"]) == ("cpu:0", "cpu", 1.0)
    assert (summary["figures"], device["figures"]) == ("measured", "measured")
    assert device["threads"] == {"sample": 2, "load": 2, "propagate": 2}
    absent = {"exchange": None, "transfer": None}
    means = {"sample": pytest.approx(8 / 3), "load": 1, "propagate": 2, "sync": 0, **absent}
    assert device["stage_times_s"] == means
    assert (device["peak_rss_bytes"], device["pss_bytes"]) == (500, 50)


def test_runs_with_other_devices_and_without_an_epoch() -> None:
    before = epoch(1, 0.5, 1.0, name="other:0")
    after = replace(epoch(2, 0.6, 2.0), devices=(cpu(2.0), cpu(3.0, name="cpu:1")))
    layout = RunLayout(plan=plan("cpu:0", "cpu:1"))
    devices = summarize(result(before, after, layout=layout), status="completed")["devices"]
    assert [each["stage_times_s"]["sample"] for each in devices] == [2.0, 3.0]
    devices = summarize(result(before, layout=layout), status="interrupted")["devices"]
    assert [each["batch_share"] for each in devices] == [None, None]
    summary = summarize(result(test_metrics={}), status="failed", error="no data")
    assert summary["error"] == "no data"
    assert summary["epochs"] == 0
    figures = ("train_loss", "mteps", "nvtps", "best_epoch", "peak_rss_bytes")
    assert all(summary[name] is None for name in figures)
    assert summary["epoch_time_s"] == {"mean": None, "median": None}
    (device,) = summary["devices"]
    assert (device["name"], device["kind"]) == ("cpu:0", "cpu")
    assert device["batch_share"] is device["traffic"] is None
    assert set(device["stage_times_s"].values()) == {None}


def test_devices_are_told_apart(hybrid_run: Any) -> None:
    summary = summarize(hybrid_run.result, status="completed", predicted={"step_s": 0.1})
    assert summary["predicted"] == {"step_s": 0.1}
    processor, accelerator = summary["devices"]
    assert (processor["kind"], processor["figures"]) == ("cpu", "measured")
    assert (accelerator["kind"], accelerator["figures"]) == ("emulated", "emulated")
    assert summary["figures"] == "emulated"
    moved = accelerator["traffic"]
    link_bytes = moved["rows"]["link_bytes"] + moved["lists"]["link_bytes"]
    assert accelerator["host_to_device_bytes"] == pytest.approx(link_bytes, abs=1)
    # Of the three epochs.
    late = {"late_s": pytest.approx(0.003), "late_stages": 6, "late_steps": 3}
    assert accelerator["counters"] == late
    times = [each.devices[1].stage_times_s["transfer"] for each in hybrid_run.epochs]
    assert accelerator["stage_times_s"]["transfer"] == pytest.approx(sum(times) / 3)
    json.dumps(summary, allow_nan=False)


def test_traffic_is_the_mean_of_an_epoch_and_rates_are_of_the_run() -> None:
    cold = Traffic(
        rows=Access(misses=100, link_bytes=4000, link_requests=100),
        lists=Access(hits=1, peer_hits=2, misses=1, peer_bytes=64),
    )
    warm = Traffic(rows=Access(hits=60, misses=40, link_bytes=1600, link_requests=41))
    history = (epoch(1, 0.5, 1.0, traffic=cold), epoch(2, 0.5, 1.0, traffic=warm))
    (device,) = summarize(result(*history), status="completed")["devices"]
    assert device["traffic"]["rows"] == {
        **{"hits": 30, "peer_hits": 0, "misses": 70, "host_bytes": 0},
        **{"link_bytes": 2800, "link_requests": 70, "peer_bytes": 0, "waited_us": 0},
    }
    assert device["traffic"]["lists"]["peer_bytes"] == 32
    assert device["feature_hit_rate"] == pytest.approx(60 / 200)
    assert device["topology_hit_rate"] == pytest.approx(3 / 4)
    never = epoch(1, 0.5, 1.0, traffic=Traffic(rows=Access(misses=9)))
    (device,) = summarize(result(never), status="completed")["devices"]
    assert (device["feature_hit_rate"], device["topology_hit_rate"]) == (0, None)


def test_metrics_tell_the_kind_of_figures_and_hit_rates(tmp_path: Path, cached_run: Any) -> None:
    write_metrics(tmp_path, cached_run.epochs[:1])
    processor, accelerator = json.loads((tmp_path / "metrics.jsonl").read_text())["devices"]
    assert (processor["figures"], accelerator["figures"]) == ("measured", "emulated")
    assert (processor["feature_hit_rate"], accelerator["feature_hit_rate"]) == (None, 0.75)
    assert accelerator["topology_hit_rate"] is None
    rows = accelerator["traffic"]["rows"]
    assert rows["hits"] == 3 * rows["misses"] > 0
    assert accelerator["counters"] == {"late_s": 0.001, "late_stages": 2, "late_steps": 1}


def test_metrics_are_a_line_for_each_epoch(tmp_path: Path) -> None:
    write_metrics(tmp_path, [epoch(1, 0.5, 1.0)])
    append_metrics(tmp_path, epoch(2, None, 2.0))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    assert lines[1]["valid_metric"] is None
    assert lines[1]["mteps"] == 1.0
    assert lines[1]["nvtps"] == 150.0
    write_metrics(tmp_path, [epoch(1, 0.5, 1.0)])
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1
    write_json(tmp_path / "a.json", {"x": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": 1}
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", "metrics.jsonl"}


def test_what_was_simulated_of_an_fpga(simulated_run: Any) -> None:
    run = simulated_run.result
    cpu, fpga = summarize(run, status="completed")["devices"]
    assert cpu["csim"] is None
    assert fpga["csim"] == {
        "cycles": 1000,
        "busy": {"aggregate": 0.8, "update": 0.2, "memory": 0.4},
        "bottleneck": "aggregate",
        "memory_bytes": {"feature": 3 << 20, "edge": 1 << 20},
        "events": {"routing_conflicts": 3},
        "card_s": pytest.approx(90_000 / 300e6),
        "simulating_s": 6,
    }
    # What went on with a bitstream is not what was simulated.
    first, *others = run.history
    cards = [(each.devices[0], replace(each.devices[1], counters={})) for each in others]
    later = [replace(each, devices=devices) for each, devices in zip(others, cards, strict=True)]
    resumed = summarize(replace(run, history=(first, *later)), status="completed")
    assert resumed["devices"][1]["csim"]["cycles"] == 1000
    started = summarize(simulated_run.started, status="failed")
    assert started["devices"][1]["csim"] is None


@pytest.mark.parametrize(("first_epochs", "rate", "transactions"), [(1, 0.0, 100), (None, 0.3, 70)])
def test_a_plan_and_its_epochs(first_epochs: int | None, rate: float, transactions: int) -> None:
    """A cache that is empty at first hits less in the first epoch than in the run."""
    cold = Traffic(rows=Access(misses=100, link_requests=100))
    warm = Traffic(rows=Access(hits=60, misses=40, link_requests=40))
    found = (epoch(1, 0.5, 1.0, traffic=cold), epoch(2, 0.5, 1.0, traffic=warm))
    caches = CacheStats(
        planner="belady",
        alpha=None,
        cliques=((0,),),
        cache_bytes=8,
        host_aggregates=0,
        num_epochs=1,
        exact=False,
        first_epochs=first_epochs,
        predicted=CacheTraffic(rows=(0, 100), lists=(0, 0), transactions=100, link_bytes=0),
    )
    layout = RunLayout(plan=plan("cpu:0"), cache=caches)
    cache = summarize(result(*found, layout=layout), status="completed")["cache"]
    assert cache["predicted"]["feature_hit_rate"] == 0
    assert cache["measured"]["feature_hit_rate"] == pytest.approx(rate)
    assert cache["measured"]["transactions"] == transactions
    assert cache["measured"]["num_epochs"] == (first_epochs or 2)
    assert cache["whole_run"]["feature_hit_rate"] == pytest.approx(0.3)
    assert cache["whole_run"]["transactions"] == 70


def test_what_gpus_took_is_of_the_whole_run() -> None:
    used = [GpuUse(energy_j=30.0, received_bytes=100), GpuUse(energy_j=12.0, received_bytes=60)]
    history = [epoch(number, 0.5, 1.0, gpu=each) for number, each in enumerate(used, 1)]
    summary = summarize(result(*history), status="completed")
    assert summary["devices"][0]["gpu"] == {
        "energy_j": 42.0,
        "received_bytes": 160,
        "sent_bytes": None,
        "power_w": 21.0,  # over two epochs of a second
    }
    assert summary["energy_j"] == 42.0
    assert energy_sentence(summary) == (
        "energy: 42 J while training, 21.0 J an epoch, by NVML over all GPUs"
    )
    assert "42" in devices(summary)
    # What one GPU does not count is not known of all.
    history[1] = replace(history[1], devices=(cpu(1.0, gpu=GpuUse()),))
    assert summarize(result(*history), status="completed")["energy_j"] is None
    without = summarize(result(epoch(1, 0.5, 1.0)), status="completed")
    assert without["energy_j"] is without["devices"][0]["gpu"] is energy_sentence(without) is None
    assert "J of the run" not in devices(without)
    found = result(epoch(1, 0.5, 1.0))
    assert summarize(found, status="completed")["nvlink"] is None
    layout = replace(found.layout, nvlink=((0, 4), (4, 0)))
    summary = summarize(replace(found, layout=layout), status="completed")
    assert summary["nvlink"] == [[0, 4], [4, 0]]
    shown = devices(summary)
    assert "NVLinks between GPUs" in shown
    assert "GPU 1" in shown
    alone = replace(found.layout, nvlink=((0,),))
    assert "NVLinks" not in devices(summarize(replace(found, layout=alone), status="completed"))


def test_a_summary_says_when_a_run_was_and_why_nothing_is_cached() -> None:
    uncached = Uncached(num_devices=1, of_devices=2, reason="the host aggregates")
    layout = RunLayout(plan=plan("cpu:0"), uncached=uncached)
    found = summarize(result(layout=layout), status="completed", started=0.25, ended=1.5)
    assert found["started"] == "1970-01-01T00:00:00.250+00:00"
    assert found["ended"] == "1970-01-01T00:00:01.500+00:00"
    assert found["uncached"] == {
        "devices": 1,
        "of": 2,
        "reason": "1 of 2 devices cache nothing: the host aggregates",
    }
    nothing = summarize(result(layout=RunLayout(plan=plan("cpu:0"))), status="completed")
    assert (nothing["started"], nothing["ended"], nothing["uncached"]) == (None, None, None)
