import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_fixtures import Answer

Command = Callable[..., Any]


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
