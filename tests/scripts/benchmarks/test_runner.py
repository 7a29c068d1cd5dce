import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks import runner

WORKER = """
import sys
from types import SimpleNamespace
from benchmarks.runner import serve
def worker(system, options):
    if system == "absent":
        import a_library_that_nobody_has
    return lambda number: {"s": 2.0 + number}
serve(worker, SimpleNamespace(worker=sys.argv[2], threads=1))
"""


@pytest.mark.long
def test_a_system_that_is_not_installed_is_left_out(tmp_path, capfd, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(runner.SCRIPT.parent))
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    command = [sys.executable, str(script)]
    options = SimpleNamespace(rounds=3, threads=1)
    # A system of another environment has a separate command.
    script.with_name("other.py").write_text(WORKER.replace("2.0", "5.0"))
    others = {"other": [sys.executable, str(script.with_name("other.py"))]}
    systems = ["here", "absent", "other"]
    found = runner.interleave(systems, options, command=command, others=others)
    # The round that comes first does not count.
    assert found == {"here": {"s": 4.0}, "other": {"s": 7.0}}
    assert capfd.readouterr().err.splitlines() == [
        "absent: No module named 'a_library_that_nobody_has'",
        "absent is left out: it did not start",
    ]


@pytest.mark.long
def test_every_case_has_options(capsys: pytest.CaptureFixture[str]) -> None:
    for case in runner.CASES:
        with pytest.raises(SystemExit) as end:
            runner.main([case, "--help"])
        assert end.value.code == 0
        assert f"python scripts/benchmarks {case}" in capsys.readouterr().out


@pytest.mark.long
def test_a_function_runs_in_a_process_of_its_own() -> None:
    from benchmarks.cases.runtime import step_seconds

    steps: list[dict[str, Any]] = [{"seconds": each} for each in (1.0, 3.0, 0.5)]
    assert runner.in_subprocess(step_seconds, steps) == [1.0, 2.0, 0.5]


def test_what_is_missed_makes_the_status(tmp_path, monkeypatch, capsys) -> None:
    from benchmarks.cases import fpga_cycles

    monkeypatch.setattr(fpga_cycles, "run", lambda options: {"a": 1, "missed": ["too slow"]})
    assert runner.main(["fpga_cycles", "--json", str(tmp_path / "a.json")]) == 1
    assert json.loads((tmp_path / "a.json").read_text())["a"] == 1
    assert capsys.readouterr().err == "missed: too slow\n"
