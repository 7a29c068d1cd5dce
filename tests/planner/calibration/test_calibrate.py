from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from one_line import one_line
from round_figures import processor
from scipy.optimize import nnls

from gnnscale.core.errors import GraphError
from gnnscale.core.hardware import cache_bytes, multiplies_bfloat16, usable_cores
from gnnscale.core.memory import read_memory
from gnnscale.planner.calibration import calibrate, probes
from gnnscale.planner.calibration.calibrate import estimate, thread_counts
from gnnscale.planner.calibration.contention import PairTask, time_pair
from gnnscale.planner.calibration.fit import fit_rates, least_squares, sync_rates
from gnnscale.planner.calibration.probes import (
    STEP_PROBES,
    StepProbe,
    probe_graph,
    time_steps,
)
from gnnscale.planner.cost_model.predict import Host
from gnnscale.planner.platform import ThisMachine

pytestmark = pytest.mark.integration

PROBE = STEP_PROBES[0]


def small_step(probe: StepProbe = PROBE) -> probes.StepTimes:
    return time_steps(probe, probe_graph(1 << 10, 1 << 12), threads=1, repeats=1)


def times_of(steps: list[Any], *, operand_s: float, **given: Any) -> calibrate._Times:
    default = {"product_s": 1e-3, "bfloat16_s": None, "sample_s": 1.0}
    return calibrate._Times(steps=steps, operand_s=operand_s, **default | given)


def test_rates_are_found_again() -> None:
    work = np.random.default_rng(0).random((6, 3)) * [1e9, 1e6, 1]
    rates = {"a": 2e9, "b": 1e7, "c": 4.0}
    found = fit_rates(tuple(rates), work, work @ [1 / rate for rate in rates.values()])
    assert found == pytest.approx(rates, rel=1e-6)
    work = [(1.0, 0.0), (2.0, 1.0), (3.0, 0.0)]
    assert fit_rates(("a", "b"), work, [1.0, 2.0, 3.0])["b"] == float("inf")
    counts = [thread_counts(cores) for cores in (1, 2, 6)]
    assert counts == [[1], [1, 2], [1, 2, 4, 6]]
    step = small_step()
    bytes_s = 1e-9 * step.workload.weight_bytes
    steps = [
        replace(step, load_s=s, propagate_s=3 * s, sync_s=2e-4 + bytes_s + 0.05 * 4 * s)
        for s in (1e-3, 2e-3, 8e-3)
    ]
    found = sync_rates(steps, 1e-9)
    assert found == pytest.approx({"sync_latency_s": 2e-4, "straggler_wait": 0.05})
    # Workers that are never late.
    steady = [replace(each, sync_s=2e-4 + bytes_s) for each in steps]
    assert sync_rates(steady, 1e-9)["straggler_wait"] == pytest.approx(0.0, abs=1e-9)


def test_least_squares_are_those_of_scipy() -> None:
    for seed in range(20):
        draw = np.random.default_rng(seed)
        m, n = int(draw.integers(3, 30)), int(draw.integers(1, 9))
        a = draw.random((m, n)) * (draw.random((m, n)) < 0.7)
        b = np.maximum(a @ draw.normal(0.5, 1, n) + 0.1 * draw.normal(size=m), 0)
        expected, residual = nnls(a, b)
        found = least_squares(a, b)
        assert (found >= 0).all()
        assert np.linalg.norm(a @ found - b) == pytest.approx(residual, rel=1e-9, abs=1e-12)
        if np.linalg.matrix_rank(a) == n:
            assert found == pytest.approx(expected, rel=1e-7, abs=1e-9)


def test_an_estimate_is_whole(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    found = estimate()
    assert torch.get_num_threads() == threads
    assert found.processor.cores == found.processor.threads[-1] == usable_cores()
    assert found.processor.rates.macs_per_s[-1] > 0
    assert (found.processor.rates.bfloat16_macs_per_s is not None) == multiplies_bfloat16()
    found.write(tmp_path / "platform.yaml")
    again = ThisMachine(file=tmp_path / "platform.yaml").open()
    assert asdict(again) == asdict(found)


def test_a_calibration_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = calibrate._needed_bytes(calibrate._FULL)
    assert needed > 400 << 20
    memory = replace(read_memory(), available=needed - 1)
    monkeypatch.setattr("gnnscale.core.hardware.read_memory", lambda: memory)
    with one_line("calibrate=true: needs ", "GiB of memory", error=GraphError):
        calibrate.calibrate()


#: What two processes measure, in little time.
TASK = PairTask(
    num_values=(16, 1 << 20),
    reduces=3,
    probes=(PROBE,),
    graph_sizes=(1 << 12, 1 << 12),
    threads=1,
    repeats=3,
)


def test_two_processes_measure_together() -> None:
    pair = time_pair(TASK)
    assert len(pair.reduce_s) == len(pair.sum_s) == 2
    assert min(*pair.reduce_s, *pair.sum_s) > 0
    assert pair.steps[0].sync_s > 0
    assert pair.solo_steps[0].propagate_s > 0
    assert pair.solo_steps[0].size == pair.steps[0].size
    assert pair.solo_steps[0].sync_s == 0
    assert pair.steps[0].step_s > pair.steps[0].propagate_s > 0
    with pytest.raises(RuntimeError, match="ended early"):
        time_pair(replace(TASK, num_values=(-1,), reduces=1, probes=()))


def test_loading_is_fitted_to_steps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the graph's rows do not fit in the cache: rows read by themselves come faster."""
    measured = small_step()
    # Ten times the vertices take ten times as long, and a constant.
    steps = []
    for times in (1, 2, 5, 10):
        vertices, edges = (
            tuple(times * each for each in counts)
            for counts in (measured.size.vertices, measured.size.edges)
        )
        size = replace(measured.size, vertices=vertices, edges=edges)
        steps.append(replace(measured, size=size, load_s=1e-4 + times * 1e-3))
    monkeypatch.setattr(probes, "rows_seconds", None)
    found = calibrate._load_rates(calibrate._FULL, steps, 1)
    assert found["load_s"] == pytest.approx(1e-4, rel=1e-3)
    scalars = ("load_s", "lookups_per_s")
    rates = {name: rate if name in scalars else [rate] for name, rate in found.items()}
    fitted = processor(1, cache_bytes=cache_bytes(), **rates)
    host = Host(processor=fitted, num_workers=1, emulates=False)
    for step in steps:
        assert host.load(step.workload, step.size, 1, 1) == pytest.approx(step.load_s, rel=1e-3)


def test_propagation_is_predicted_as_it_was_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that follow the equations exactly are found again, operands among them."""
    rates = {"operand_bandwidth": [2e9], "stream_bandwidth": [1e9], "aggregate_bandwidth": [4e9]}
    host = Host(processor=processor(1, layer_s=[1e-4], **rates), num_workers=1, emulates=False)
    graph = probe_graph(1 << 10, 1 << 12)
    steps = []
    for probe in STEP_PROBES[:3]:
        step = time_steps(probe, graph, threads=1, repeats=1)
        steps.append(replace(step, propagate_s=host.propagate(step.workload, step.size, 1, 1)))
    product_s = calibrate._QUICK.product_rows * calibrate._WIDTH**2 / 1e9
    times = times_of(steps, operand_s=2048 * (16 / 1e9 + 4 / 2e9), product_s=product_s)
    found = calibrate._propagation_rates(calibrate._QUICK, times)
    assert found["operand_bandwidth"] == pytest.approx(2e9)
    assert found["stream_bandwidth"] == pytest.approx(1e9, rel=1e-6)
    assert found["aggregate_bandwidth"] == pytest.approx(4e9, rel=1e-6)
    assert found["layer_s"] == pytest.approx(1e-4, rel=1e-6)
    # By hand: 4 of 6 ms multiply 2 values by 2 outputs, and 2 ms read them, 8 bytes.
    monkeypatch.setattr(calibrate, "_OPERANDS", (2, 2))
    monkeypatch.setattr(calibrate, "_WIDTH", 1)
    effort = replace(calibrate._QUICK, product_rows=1)  # 1 ms for one multiplication
    step = small_step()
    times = times_of([step], operand_s=6e-3)
    found = calibrate._propagation_rates(effort, times)
    assert found["macs_per_s"] == pytest.approx(1000)
    assert found["operand_bandwidth"] == pytest.approx(8 / 2e-3)
    hidden = calibrate._propagation_rates(effort, replace(times, operand_s=3e-3))
    assert hidden["operand_bandwidth"] == float("inf")


def test_probes_are_trained() -> None:
    assert sum(probe.num_seeds == 1024 and len(probe.fanouts) == 2 for probe in STEP_PROBES) >= 3
    for probes_of in (STEP_PROBES, probes.ESTIMATE_PROBES):
        assert any(each.stored == "uint8" and each.row_bytes >= 1000 for each in probes_of)
    assert small_step(replace(PROBE, stored="uint8")).workload.feature_bytes == 1
    graph = probe_graph(1 << 10, 1 << 12)
    for probe in STEP_PROBES:
        if probe.num_seeds <= 128:
            step = time_steps(probe, graph, threads=1, repeats=1)
            assert min(step.load_s, step.propagate_s, step.update_s) > 0
    sparse, dense = probes.probe_graphs(1 << 12, 1 << 12)
    assert (sparse.num_vertices, dense.num_vertices) == (4096, 512)
    assert sparse.num_edges == dense.num_edges
    table = probes.probe_table(sparse, STEP_PROBES)
    widest = {dense: max(p.row_bytes for p in STEP_PROBES if p.dense == dense) for dense in (0, 1)}
    assert table.nbytes == max(4096 * widest[0], 512 * widest[1])
    own = time_steps(PROBE, sparse, threads=1, repeats=1)
    shared = time_steps(PROBE, sparse, threads=1, repeats=1, table=table)
    assert own.size == shared.size
