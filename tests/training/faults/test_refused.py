"""``gnnscale train`` without enough memory for a worker, or with options that do not fit."""

from pathlib import Path
from typing import Any

import pytest
from fault_injection.cases import take_memory, take_memory_as_it_begins

pytestmark = pytest.mark.timeout(300)

ENDLESS = "epochs=1000000"


@pytest.mark.long
def test_a_worker_whose_memory_runs_out(runs: Any, tmp_path: Path) -> None:
    # Where it validates next, it needs a thread, which cannot begin.
    run = runs.until_trained(tmp_path / "run", ENDLESS)
    take_memory(run.workers()[0])
    assert runs.ended(run, 1).startswith("worker cpu:0: out of memory")


@pytest.mark.integration
def test_a_device_of_ones_own_whose_memory_runs_out(runs: Any, tmp_path: Path) -> None:
    for number in range(3):
        run = runs.start(tmp_path / f"run-{number}", plan="own")
        take_memory_as_it_begins(run, 1)
        run.wait_until_gone()
        if run.process.returncode:  # else it had all that it needs by then
            break
    assert runs.ended(run, 1).startswith("worker copying:1: out of memory")


@pytest.mark.long
def test_options_that_no_run_can_start_with(runs: Any, tmp_path: Path) -> None:
    wrong = {
        "device": ("device_plan.devices=[gpu]", "device_plan.devices.0.kind=gpu"),
        "split": ("device_plan.split=[40,40]", "expected a sum of batch_size=64, got 80"),
    }
    started = {name: runs.start(tmp_path / name, option) for name, (option, _) in wrong.items()}
    for name, run in started.items():
        assert wrong[name][1] in runs.ended(run, 1)
