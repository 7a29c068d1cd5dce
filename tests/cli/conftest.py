from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

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


class RunLines(Protocol):
    def __call__(
        self, lines: Sequence[Sequence[str]], directory: Path | None = None
    ) -> list[Answer]: ...


@pytest.fixture(scope="module")
def run_lines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunLines]:
    """Run command lines, each in an empty directory if in none, and tell what each did."""
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

        def run(lines: Sequence[Sequence[str]], directory: Path | None = None) -> list[Answer]:
            started_in = None if directory is None else str(directory)
            request = {"directory": started_in, "lines": [list(line) for line in lines]}
            requests.write(json.dumps(request) + "\n")
            requests.flush()
            return [Answer(**each) for each in json.loads(answers.readline())]

        yield run
