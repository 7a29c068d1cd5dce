"""``gnnscale train`` is ended by signals, and loses the processes that belong to it."""

import json
import os
import signal

import pytest

pytestmark = pytest.mark.integration

ENDLESS = "epochs=1000000"


def test_a_signal_to_the_command(runs, tmp_path) -> None:
    """One worker waits for the other's rows."""
    run = runs.until_trained(tmp_path / "run", ENDLESS, plan="p3")
    os.kill(run.process.pid, signal.SIGTERM)
    assert runs.ended(run, 130) == f"gnnscale train resume={tmp_path}/run"
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "interrupted"


def test_ctrl_c_while_workers_start(runs, tmp_path) -> None:
    run = runs.until_started(tmp_path / "run")
    os.killpg(run.process.pid, signal.SIGINT)
    assert runs.ended(run, 130) == f"gnnscale train resume={tmp_path}/run"


@pytest.mark.parametrize(
    ("plan", "starting"), [("hybrid", True), pytest.param("own", False, marks=pytest.mark.long)]
)
def test_workers_end_with_the_command(runs, tmp_path, plan, starting) -> None:
    if starting:
        run = runs.until_started(tmp_path / "run", plan=plan)
    else:
        run = runs.until_trained(tmp_path / "run", ENDLESS, plan=plan)
    run.process.kill()
    runs.ended(run, -signal.SIGKILL)


def test_a_run_outlives_the_server_that_forked_its_workers(runs, tmp_path) -> None:
    run = runs.until_trained(tmp_path / "run")
    os.kill(run.server().pid, signal.SIGKILL)
    runs.ended(run, 0)
