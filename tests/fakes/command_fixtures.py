"""Fixtures of command lines whose processes have their imports behind them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "cli" / "programs" / "many_lines.py"


@dataclass(frozen=True)
class Answer:
    """What a command line did. Its names are those of ``subprocess.CompletedProcess``, too."""

    status: int
    stdout: str
    stderr: str
    left: list[str]

    @property
    def returncode(self) -> int:
        return self.status

    def succeeded(self) -> "Answer":
        assert self.status == 0, self
        return self

    def refused(self) -> "Answer":
        assert self.status == 1, self
        assert "Traceback" not in self.stderr
        return self

    @property
    def last_line(self) -> str:
        """What a refused command says after its progress."""
        return self.refused().stderr.splitlines()[-1]

    @property
    def line(self) -> str:
        """The one line that a refused command says, and all that it leaves."""
        assert self.status in (1, 2), self
        assert self.stdout == "", self
        assert self.left == [], self
        assert len(self.stderr) < 3000
        (line,) = self.stderr.splitlines()
        assert self.stderr.endswith("\n")
        assert line.isprintable()
        return line


@pytest.fixture(scope="session")
def environment(stores: Path) -> dict[str, str]:
    return os.environ | {"GNNSCALE_HOME": str(stores)}


@pytest.fixture(scope="session")
def run_lines(environment: dict[str, str]) -> Iterator[Callable[..., list[Answer]]]:
    """Run command lines, each in a process that has its imports behind it."""
    with subprocess.Popen(
        [sys.executable, PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        requests, answers = program.stdin, program.stdout

        def run(
            lines: Sequence[Sequence[str]],
            directory: Path | None = None,
            *,
            at_once: bool = False,
        ) -> list[Answer]:
            started_in = None if directory is None else str(directory)
            given = [list(line) for line in lines]
            request = {"directory": started_in, "lines": given, "at_once": at_once}
            requests.write(json.dumps(request) + "\n")
            requests.flush()
            return [Answer(**each) for each in json.loads(answers.readline())]

        yield run
