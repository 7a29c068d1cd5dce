from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnscale.hardware import usable_cores
from gnnscale.plan.calibration.calibrate import estimate, fit_rates, thread_counts
from gnnscale.plan.calibration.contention import PairTask, time_pair
from gnnscale.plan.calibration.probes import STEP_PROBES, probe_graph, time_steps
from gnnscale.plan.platform import ThisMachine


def test_rates_are_found_again() -> None:
    work = np.random.default_rng(0).random((6, 3)) * [1e9, 1e6, 1]
    rates = {"a": 2e9, "b": 1e7, "c": 4.0}
    found = fit_rates(tuple(rates), work, work @ [1 / rate for rate in rates.values()])
    assert found == pytest.approx(rates, rel=1e-6)


def test_an_amount_that_costs_nothing_has_no_limit() -> None:
    work = [(1.0, 0.0), (2.0, 1.0), (3.0, 0.0)]
    assert fit_rates(("a", "b"), work, [1.0, 2.0, 3.0])["b"] == float("inf")


@pytest.mark.parametrize(("cores", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6])])
def test_numbers_of_threads(cores: int, counts: list[int]) -> None:
    assert thread_counts(cores) == counts


def test_an_estimate_is_whole(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    found = estimate()
    assert torch.get_num_threads() == threads
    assert found.processor.cores == found.processor.threads[-1] == usable_cores()
    assert found.processor.macs_per_s[-1] > 0
    found.write(tmp_path / "platform.yaml")
    again = ThisMachine(file=tmp_path / "platform.yaml").open()
    assert asdict(again) == asdict(found)


def test_two_processes_measure_together() -> None:
    task = PairTask(
        num_values=(16, 1 << 22),
        probes=STEP_PROBES[:1],
        graph_sizes=(1 << 10, 1 << 12),
        threads=1,
        repeats=3,
    )
    pair = time_pair(task)
    assert len(pair.reduce_s) == 2
    assert min(pair.reduce_s) > 0
    assert pair.steps[0].sync_s > 0
    assert pair.steps[0].step_s > pair.steps[0].propagate_s > 0


def test_a_process_that_ends_early_is_noticed() -> None:
    task = PairTask(
        num_values=(-1,), probes=(), graph_sizes=(1 << 10, 1 << 12), threads=1, repeats=1
    )
    with pytest.raises(RuntimeError, match="ended early"):
        time_pair(task)


def test_probes_are_trained() -> None:
    graph = probe_graph(1 << 12, 1 << 14)
    for probe in STEP_PROBES:
        if probe.num_seeds <= 128:
            step = time_steps(probe, graph, threads=1, repeats=1)
            assert min(step.load_s, step.propagate_s, step.update_s) > 0
            assert step.workload.widths[0] == probe.num_features
            assert step.size.vertices[-1] == probe.num_seeds
