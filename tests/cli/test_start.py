"""How a command starts: what its process imports, and what else it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "imported.py"
STORE = (
    *("dataset.num_vertices=600", "dataset.num_edges=3000", "dataset.num_classes=4"),
    "dataset.num_features=8",
)
TINY = (
    *(*STORE, "model.hidden=8", "sampler.fanouts=[5,3]"),
    *("batch_size=64", "epochs=1", "num_threads=1"),
)
Imported = Callable[..., list[str]]


@pytest.fixture(scope="module")
def imported(
    tmp_path_factory: pytest.TempPathFactory, write_figures: Callable[[Path], Path]
) -> Imported:
    """Run a command to a good end, and return which heavy modules its process has imported."""
    folder = tmp_path_factory.mktemp("start")
    environment = os.environ | {"GNNSCALE_HOME": str(write_figures(folder / "home"))}

    def run(*arguments: str) -> list[str]:
        answer = subprocess.run(
            [sys.executable, PROGRAM, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert answer.returncode == 0, answer.stderr
        label, *names = answer.stdout.splitlines()[-1].split()
        assert label == "imported:"
        return names

    return run


@pytest.mark.parametrize("arguments", [("--help",), ("--cfg", "job")])
def test_what_ends_before_training_imports_nothing_heavy(
    imported: Imported, arguments: tuple[str, ...]
) -> None:
    assert imported("train", *arguments) == []


@pytest.mark.timeout(300)
def test_who_launches_a_run_imports_nothing_heavy(imported: Imported) -> None:
    imported("prepare", *STORE)  # to make the store is another matter
    assert imported("train", *TINY, "device_plan=cpu_x2") == []
