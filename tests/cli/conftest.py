import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "many_lines.py"


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


Command = Callable[..., Any]


@pytest.fixture(scope="session")
def environment(stores: Path) -> dict[str, str]:
    return os.environ | {"GNNSCALE_HOME": str(stores)}


@pytest.fixture(scope="session")
def command_in(environment: dict[str, str]) -> Callable[..., Command]:
    """Run the command line in a directory, in a new process, by its module or another program."""

    def of(directory: Path, *program: object) -> Command:
        def command(*arguments: object, **variables: str) -> Any:
            return subprocess.run(
                [sys.executable, *map(str, [*(program or ("-m", "gnnscale")), *arguments])],
                cwd=directory,
                env=environment | variables,
                capture_output=True,
                text=True,
                timeout=240,
            )

        return command

    return of


@pytest.fixture
def gnnscale(tmp_path: Path, run_lines: Callable[..., list[Answer]]) -> Command:
    """Run the command line in ``tmp_path``, by a process that has its imports behind it."""

    def command(*arguments: object, **variables: str) -> Answer:
        given = [f"{name}={value}" for name, value in variables.items()]
        return run_lines([[*given, *map(str, arguments)]], tmp_path)[0]

    return command


@pytest.fixture(scope="session")
def run_lines(environment: dict[str, str]) -> Iterator[Callable[..., list[Answer]]]:
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

        def run(lines: Sequence[Sequence[str]], directory: Path | None = None) -> list[Answer]:
            started_in = None if directory is None else str(directory)
            request = {"directory": started_in, "lines": [list(line) for line in lines]}
            requests.write(json.dumps(request) + "\n")
            requests.flush()
            return [Answer(**each) for each in json.loads(answers.readline())]

        yield run
