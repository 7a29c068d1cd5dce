"""Files of release 0.2 are read: its run directories resume, and its stores are not made again."""

import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from gnnscale.core.config import renamed

RELEASE = Path(__file__).parent / "release_0_2"


@pytest.mark.long
@pytest.mark.parametrize("stored", sorted(renamed._CURRENT))
def test_a_stored_path_names_a_class_that_is_stored_by_it(stored: str) -> None:
    module, _, name = renamed.current_path(stored).rpartition(".")
    assert renamed.stored_path(getattr(import_module(module), name)) == stored


def test_other_paths_stay_as_they_are() -> None:
    assert renamed.current_path("mine.Model") == "mine.Model"
    assert renamed.stored_path(dict) == "builtins.dict"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Copy the files of release 0.2."""
    return shutil.copytree(RELEASE, tmp_path, dirs_exist_ok=True)


def train(release: Path, *options: str) -> None:
    """Run ``gnnscale train`` with the stores of a copied release."""
    environment = os.environ | {"GNNSCALE_HOME": str(release / "home")}
    command = [sys.executable, "-m", "gnnscale", "train", *options]
    subprocess.run(command, cwd=release, env=environment, check=True, timeout=240)


def stores(release: Path) -> set[Path]:
    """Return the files of all stores in home."""
    return {path for path in (release / "home").glob("*/*/*") if path.is_file()}


def losses(run: Path) -> list[float]:
    """Return the mean training loss of each epoch."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["train_loss"] for line in lines]


@pytest.mark.integration
@pytest.mark.parametrize("name", ["cached", "links"])
def test_a_run_is_resumed(name: str, release: Path) -> None:
    train(release, f"resume={release / name}", "epochs=4")
    expected = [loss for _, loss in json.loads((release / "losses.json").read_text())[name]]
    assert losses(release / name) == pytest.approx(expected, rel=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize("name", ["cached", "legion", "preaggregated"])
def test_stores_of_a_run_serve_another_run(name: str, release: Path) -> None:
    before = stores(release)
    again = release / "again"
    train(release, f"config={release / name / 'config.yaml'}", f"output={again}")
    assert stores(release) == before
    assert losses(again) == pytest.approx(losses(release / name), rel=1e-5)
