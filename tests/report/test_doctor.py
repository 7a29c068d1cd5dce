from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from rich.console import Console

from gnnscale.config import ConfigError, typed
from gnnscale.dataset import PlantedPartition
from gnnscale.report.doctor import DoctorConfig, examine_store, print_store, store_problem


@pytest.fixture
def store(tmp_path: Path) -> Path:
    small = {"num_vertices": 40, "num_edges": 100, "num_classes": 2, "num_features": 2}
    return PlantedPartition(name="x", store=str(tmp_path / "[red]store"), **small).prepare()


def damage(store: Path) -> None:
    """Make the last feature not finite."""
    with (store / "features.npy").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
        file.seek(-2, 2)
        file.write(b"\xc0")


def printed(store: Path) -> str:
    console = Console(file=io.StringIO(), width=200)
    print_store(examine_store(store), console)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_whole_store(store: Path) -> None:
    findings = examine_store(store)
    assert findings["path"] == str(store)
    assert store_problem(findings) is None
    assert printed(store).count("as it must be") == len(findings["checks"]) == 10
    assert "[red]store" in printed(store)


def test_damaged_store(store: Path) -> None:
    damage(store)
    findings = json.loads(json.dumps(examine_store(store)))
    assert store_problem(findings).startswith(f"{store}/features.npy: checksum ")
    assert store_problem(findings).endswith("(and 1 more, see doctor.json)")
    assert "feature 1 of vertex 39 is not finite" in printed(store)


def test_no_store(tmp_path: Path) -> None:
    problem = store_problem(examine_store(tmp_path / "none"))
    assert problem == f"{tmp_path}/none: not a graph store, it has no meta.json"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"calibrate": "abc"}, "calibrate"),
        ({"calibrate": None}, "calibrate=null"),
        ({"stor": "x"}, "did you mean 'store'"),
        ({"store": ""}, "store=: names no file or folder"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        typed(OmegaConf.create(options), DoctorConfig)


def test_command(store: Path, tmp_path: Path) -> None:
    """Findings in doctor.json; one line and status 1 for a damaged store."""

    def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gnnscale", "doctor", *arguments],
            cwd=tmp_path,
            env=os.environ | {"GNNSCALE_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
        )

    answer = doctor(f"store='{store}'")
    assert answer.returncode == 0, answer.stderr
    findings = json.loads(Path(answer.stdout.splitlines()[-1]).read_text())
    assert store_problem(findings["store"]) is None
    damage(store)
    answer = doctor(f"store='{store}'")
    assert answer.returncode == 1
    (line,) = answer.stderr.splitlines()
    assert line.startswith(f"{store}/features.npy: checksum ")
    findings = json.loads(Path(answer.stdout.splitlines()[-1]).read_text())
    assert len([check for check in findings["store"]["checks"] if check["problem"]]) == 2
