from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
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


@pytest.fixture(scope="session")
def run_lines(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Answer]]:
    """Run command lines, each in an empty directory, and tell what each did."""
    home = tmp_path_factory.mktemp("home")

    def run(lines: Sequence[Sequence[str]]) -> list[Answer]:
        done = subprocess.run(
            [sys.executable, PROGRAM],
            input=json.dumps([list(line) for line in lines]),
            env={**os.environ, "GNNSCALE_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=250,
            check=True,
        )
        return [Answer(**each) for each in json.loads(done.stdout)]

    return run
