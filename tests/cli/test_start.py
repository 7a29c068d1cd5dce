"""How a command starts: what its process imports, and what else it starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import STORE, TINY

PROGRAM = Path(__file__).parent / "programs" / "imported.py"
Imported = Callable[..., list[str]]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory, command_in: Callable[..., Any]) -> Imported:
    command = command_in(tmp_path_factory.mktemp("start"), PROGRAM)

    def run(*arguments: str) -> list[str]:
        answer = command(*arguments)
        assert answer.returncode == 0, answer.stderr
        label, *names = answer.stdout.splitlines()[-1].split()
        assert label == "imported:"
        return names

    return run


@pytest.mark.long
@pytest.mark.parametrize("arguments", [("--help",), ("--cfg", "job")])
def test_before_training_nothing_is_heavy(imported: Imported, arguments: tuple[str, ...]) -> None:
    assert imported("train", *arguments) == []


@pytest.mark.long
@pytest.mark.timeout(300)
def test_who_launches_a_run_imports_nothing_heavy(imported: Imported, gnnscale: Any) -> None:
    gnnscale("prepare", *STORE)  # to make the store is another matter
    options = ("batch_size=64", "epochs=1", "device_plan=cpu_x2")
    assert imported("train", *TINY, *options) == []
