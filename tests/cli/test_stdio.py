"""Standard streams whose readers go away, and commands that are silent at first."""

import json
import os
import pty
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import TINY

GNNSCALE = (sys.executable, "-m", "gnnscale")
LATE = """
    import sys
    import time

    from gnnscale.cli import stdio

    stdio._ON_TERMINAL_S = stdio._ELSEWHERE_S = float(sys.argv[1])
    both = stdio.StandardStreams()
    both.announce(at_once=False)
    time.sleep(float(sys.argv[2]))
    print("word", file=sys.stderr, flush=True)
"""

TALKING = """
    import sys

    from gnnscale.cli.stdio import StandardStreams

    streams = StandardStreams()
    for _ in range(10_000):
        print("a line that nobody reads")
        print("another", file=sys.stderr)
    streams.flush()
    sys.exit(141 if streams.unread else 0)
"""


def program(script: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]


def test_what_nobody_reads_is_dropped_and_told_by_the_status() -> None:
    pipe, nobody = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(program(TALKING), stdout=pipe, stderr=nobody) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) == 141
    done = subprocess.run(program(TALKING), capture_output=True, text=True)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 10_000)
    assert "Error" not in done.stderr


@pytest.mark.parametrize(
    ("wait", "silence", "said"), [(0, 1, "starting\nword\n"), (60, 0, "word\n")]
)
def test_silence_is_broken_off_a_terminal(wait: float, silence: float, said: str) -> None:
    done = subprocess.run(program(LATE, wait, silence), capture_output=True, text=True)
    assert done.stderr == said


def test_on_a_terminal_the_next_word_takes_its_place() -> None:
    screen, terminal = pty.openpty()
    with subprocess.Popen(program(LATE, 0, 1), stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        while b"word" not in shown:
            shown += os.read(screen, 4096)
        process.wait(timeout=60)
    os.close(screen)
    assert shown.startswith(b"starting\r\x1b[Kword")


@pytest.mark.parametrize(
    "command", [["train", "--help"], pytest.param(["doctor"], marks=pytest.mark.long)]
)
def test_a_closed_pipe_is_no_traceback(command: list[str], tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)  # nobody reads, from the first byte on
    streams = {"stdout": write, "stderr": subprocess.PIPE, "text": True}
    done = subprocess.run([*GNNSCALE, *command], cwd=tmp_path, timeout=120, **streams)
    os.close(write)
    assert done.returncode == 141
    assert done.stderr in ("", "starting\n")


def without(closed: str, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command as a shell does that has closed some of its streams."""
    line = ["sh", "-c", f'exec "$@" {closed}', "sh", *command]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, **options)


@pytest.mark.parametrize("closed", ["2>&-", pytest.param("0<&- 1>&- 2>&-", marks=pytest.mark.long)])
def test_a_run_without_a_stream(closed: str, tmp_path: Path, environment: dict[str, str]) -> None:
    run = tmp_path / "run"
    options = ("batch_size=64", "epochs=1", "device_plan=cpu_x2", f"output={run}")
    done = without(closed, *GNNSCALE, "train", *TINY, *options, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "summary.json").read_text())["status"] == "completed"
    assert "epoch 1/1" in (run / "train.log").read_text()
    assert done.stdout.endswith("" if "1>&-" in closed else f"{run}\n")
    if "2>&-" in closed:
        assert done.stderr == ""


@pytest.mark.long
@pytest.mark.parametrize(("closed", "stream"), [("2>&-", "stdout"), ("1>&-", "stderr")])
def test_what_is_wrong_is_told_where_it_can_be(closed: str, stream: str, tmp_path: Path) -> None:
    done = without(closed, *GNNSCALE, "train", "epochs=0", cwd=tmp_path)
    assert done.returncode == 1
    assert getattr(done, stream).splitlines()[-1].startswith("epochs=0: must be at least 1")


def test_closed_streams_are_taken_by_no_other_file(tmp_path: Path) -> None:
    script = """
        import sys

        from gnnscale.cli.stdio import StandardStreams

        StandardStreams()
        with open("file", "w") as file:
            assert file.fileno() > 2
            print("lost", file=sys.stderr, flush=True)
    """
    assert without("2>&-", *program(script), cwd=tmp_path).returncode == 0
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.integration
def test_standard_error_is_json_lines(gnnscale, tmp_path) -> None:
    """Of a run, of a wrong line and of a resumed run; standard output is for results."""
    (tmp_path / "mine.py").write_text(
        "import warnings\ndef loss(outputs, targets):\n"
        "    warnings.warn('of\\nmine')\n    return outputs.square().mean()\n"
    )
    loss = "loss.function=mine.py:loss"
    lines = (
        ("train", *TINY, "loss=custom", loss, "epochs=1", "output=run", "log=json"),
        ("train", *TINY, "epochs=1", "output=run", "log=json"),
        ("train", "resume=run", "log=json", "epochs=2", loss),
    )
    answers = [gnnscale(*line, WITH_STREAMS="1") for line in lines]
    assert [answer.returncode for answer in answers] == [0, 1, 0]
    trained, refused, resumed = (
        [json.loads(line) for line in answer.stderr.splitlines()] for answer in answers
    )
    keys = {"time", "level", "logger", "message"}
    assert all(each.keys() == keys for each in (*trained, *refused, *resumed))
    for epoch, ended in enumerate((trained, resumed), 1):
        assert ended[-1]["message"].startswith(f"epoch {epoch}/{epoch} ")
        assert ended[-1]["level"] == "INFO"
        (warned,) = (each for each in ended if each["logger"] == "py.warnings")
        assert "UserWarning: of\nmine\n" in warned["message"]
    (error,) = refused
    assert error["level"] == "ERROR"
    assert "holds a run" in error["message"]
    assert answers[0].stdout.splitlines()[-1] == str(tmp_path / "run")
    wrong = gnnscale("train", "log=yaml", WITH_STREAMS="1")
    assert (wrong.returncode, wrong.stderr) == (1, "log=yaml: expected json or text\n")
