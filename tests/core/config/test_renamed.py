import json
import shutil
from importlib import import_module
from pathlib import Path

import pytest

from gnnscale.core.config import renamed

RELEASE = Path(__file__).parent / "release_0_2"


@pytest.mark.long
def test_a_stored_path_names_a_class_that_is_stored_by_it() -> None:
    for stored in renamed._CURRENT:
        module, _, name = renamed.current_path(stored).rpartition(".")
        assert renamed.stored_path(getattr(import_module(module), name)) == stored
    # Other paths stay as they are.
    assert renamed.current_path("mine.Model") == "mine.Model"
    assert renamed.stored_path(dict) == "builtins.dict"


def stores(home: Path) -> set[Path]:
    return {path for path in home.glob("*/*/*") if path.is_file()}


def losses(run: Path) -> list[float]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["train_loss"] for line in lines]


@pytest.mark.integration
def test_runs_are_resumed_and_their_stores_serve_others(
    run_lines, write_figures, tmp_path: Path
) -> None:
    shutil.copytree(RELEASE, tmp_path, dirs_exist_ok=True)
    home, again = write_figures(tmp_path / "home"), tmp_path / "again"
    before = stores(home)
    commands = [["train", f"resume={tmp_path / name}", "epochs=4"] for name in ("cached", "links")]
    for name in ("legion", "preaggregated"):
        options = tmp_path / name / "config.yaml"
        commands.append(["train", f"config={options}", f"output={again / name}"])
    for answer in run_lines([[f"GNNSCALE_HOME={home}", *each] for each in commands], tmp_path):
        answer.succeeded()
    # A run of more epochs has a plan of its own.
    made = {path.parent.name.rpartition("-")[0] for path in stores(home) - before}
    assert made == {"planted-partition-pagraph"}
    assert before <= stores(home)
    expected = json.loads((tmp_path / "losses.json").read_text())
    for name in ("cached", "links"):
        wanted = [loss for _, loss in expected[name]]
        assert losses(tmp_path / name) == pytest.approx(wanted, rel=1e-5)
    for name in ("legion", "preaggregated"):
        assert losses(again / name) == pytest.approx(losses(tmp_path / name), rel=1e-5)
