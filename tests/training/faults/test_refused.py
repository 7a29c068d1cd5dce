"""``gnnscale train`` without enough memory for a worker, or with options that do not fit."""

import pytest
from fault_injection.cases import take_memory_as_it_begins

pytestmark = pytest.mark.timeout(300)


@pytest.mark.integration
def test_a_device_of_ones_own_whose_memory_runs_out(runs, tmp_path) -> None:
    for number in range(3):
        run = runs.start(tmp_path / f"run-{number}", plan="own")
        take_memory_as_it_begins(run, 1)
        run.wait_until_gone()
        if run.process.returncode:  # else it had all that it needs by then
            break
    assert runs.ended(run, 1).startswith("worker copying:1: out of memory")
