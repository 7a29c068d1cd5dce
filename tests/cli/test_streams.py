"""Standard streams whose readers go away, and commands that are silent at first."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import textwrap

import pytest

LATE = """
    import sys
    import time

    from gnnscale.cli import streams

    streams._ON_TERMINAL_S = streams._ELSEWHERE_S = float(sys.argv[1])
    both = streams.Streams()
    both.announce(at_once=False)
    time.sleep(float(sys.argv[2]))
    print("word", file=sys.stderr, flush=True)
"""

TALKING = """
    import sys

    from gnnscale.cli.streams import Streams

    streams = Streams()
    for _ in range(10_000):
        print("a line that nobody reads")
        print("another", file=sys.stderr)
    streams.flush()
    sys.exit(141 if streams.unread else 0)
"""


def program(script: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]


def test_what_nobody_reads_is_dropped_and_told_by_the_status() -> None:
    with subprocess.Popen(
        program(TALKING), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
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
def test_a_closed_pipe_is_no_traceback(command: list[str], tmp_path: object) -> None:
    read, write = os.pipe()
    os.close(read)  # nobody reads, from the first byte on
    with subprocess.Popen(
        [sys.executable, "-m", "gnnscale", *command],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        cwd=str(tmp_path),
    ) as process:
        os.close(write)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 141
    assert errors in ("", "starting\n")
