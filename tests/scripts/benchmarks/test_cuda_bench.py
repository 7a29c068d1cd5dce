import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from benchmarks.cuda.bench import TARGETS
from benchmarks.cuda.main import FIGURES, PAGE, main, rows, table_of, with_table

SCRIPT = Path(__file__).parents[3] / "scripts" / "benchmarks" / "bench_cuda.py"


def test_without_a_gpu_it_says_so_in_one_line(capsys) -> None:
    if torch.cuda.is_available():
        pytest.skip("a CUDA device is here")
    assert main(["gather"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "no GPU here" in error


def test_arguments_that_are_refused(capsys) -> None:
    for arguments, message in (
        (["speed"], "sections are check, gather"),
        (["--docs", "--on-host"], "--docs: writes all rows of a card"),
    ):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 2
        assert message in capsys.readouterr().err


def test_the_page_has_every_row_as_it_was_measured() -> None:
    page, found = PAGE.read_text(), json.loads(FIGURES.read_text())
    assert with_table(page, table_of(found)) == page
    assert found["card"] in page
    shown = rows(found["values"])
    assert [row[0] for row in shown] == [target[0] for target in TARGETS]
    for what, target, measured, holds in shown:
        assert measured.startswith("did not run: ") == (holds == ""), what
        assert target.startswith(("at least ", "at most ")), what
    # A table takes the place of another.
    other = with_table(page, table_of({"card": "a card", "date": "2026-01-31", "values": {}}))
    assert "| row | target | a card, 2026-01-31 | reached |\n|---|---|---|---|\n" in other
    assert with_table(other, table_of(found)) == page


def test_a_row_that_did_not_run_says_so() -> None:
    first, second, *_ = rows({TARGETS[0][1]: {"value": None, "reason": "no cable"}})
    assert first[2:] == ["did not run: no cable", ""]
    assert second[2:] == ["did not run: not in the measured sections", ""]
    reached = {TARGETS[0][1]: {"value": 1e12, "unit": "B/s"}}
    assert rows(reached)[0][3] == "yes"
    assert rows(reached, on_host=True)[0][3] == ""


@pytest.mark.integration
@pytest.mark.timeout(560)
def test_every_section_runs_and_is_marked_as_emulated(tmp_path, csim_home, write_figures) -> None:
    out, home = tmp_path / "figures.json", write_figures(tmp_path / "home")
    (home / "cuda").symlink_to(csim_home / "cuda")  # compiled for all tests
    command = [sys.executable, SCRIPT, "--on-host", "--out", out]
    # Threads that wait leave the cores to other tests.
    environment = os.environ | {"GNNSCALE_HOME": str(home), "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(out.read_text())
    assert found["figures"] == "emulated"
    values = found["values"]
    assert values["check.comparisons"]["value"] > 50
    assert values["epoch.loss_difference"]["value"] < 1e-4
    for name in ("gather.of_aligned", "sample.edges_per_s", "epoch.seconds", "profile.host_step"):
        assert values[name]["value"] > 0
    for name in ("step.of_limits", "step.predicted_error", "inference.of_cores", "hybrid.of_alone"):
        assert values[name]["value"] > 0
    assert values["step.differing_losses"]["value"] == values["cache.hits_off"]["value"] == 0
    assert values["peers.loss_difference"]["value"] < 1e-5
    assert "emulated by the host" in done.stdout
    assert " yes " not in done.stdout
