from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "many_lines.py"


@dataclass(frozen=True)
class Answer:
    status: int
    stdout: str
    stderr: str
    left: list[str]

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


@pytest.fixture(scope="module")
def run_lines(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[Sequence[Sequence[str]]], list[Answer]]]:
    """Run command lines, each in an empty directory, and tell what each did."""
    home = tmp_path_factory.mktemp("home")
    with subprocess.Popen(
        [sys.executable, PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "GNNSCALE_HOME": str(home)},
        text=True,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        requests, answers = program.stdin, program.stdout

        def run(lines: Sequence[Sequence[str]]) -> list[Answer]:
            requests.write(json.dumps([list(line) for line in lines]) + "\n")
            requests.flush()
            return [Answer(**each) for each in json.loads(answers.readline())]

        yield run
