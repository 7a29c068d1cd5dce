import os
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gnnscale.data
from gnnscale.core.config.repeat import repeat_command, with_absolute_paths
from gnnscale.run.config import RunConfig

TABLES = {"_target_": "gnnscale.data.readers.tables.Tables", "label": "a/b", "name": "t"}
CUSTOM = {"_target_": "gnnscale.nn.options.CustomModel", "module": "mine.py:Net"}


def test_paths_are_absolute_and_nothing_else_is(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    device = {"kind": "fpga", "bitstream": "x.xclbin", "kernels": 1}
    values = {
        "dataset": {**TABLES, "raw": "data/mine", "store": None},
        "partitioner": {"_target_": "gnnscale.partition.simple.FromFile", "owners": "~/o.npy"},
        "cache_planner": {"_target_": "gnnscale.cache.policies.NoCache", "nvlink": "nvml"},
        "device_plan": {"devices": ["cpu", device]},
        "model": {**CUSTOM, "arguments": {"table": "a/b"}},
        "logger": {"mlflow": True},
        "metrics": ["mine.py:f"],
        "cache_plan": None,
        "seed": 3,
    }
    changed = with_absolute_paths(values, RunConfig)
    assert changed["dataset"] == {**values["dataset"], "raw": f"{tmp_path}/data/mine"}  # type: ignore[dict-item]
    assert changed["partitioner"]["owners"] == os.path.expanduser("~/o.npy")
    assert changed["device_plan"]["devices"] == [
        "cpu",
        device | {"bitstream": f"{tmp_path}/x.xclbin"},
    ]
    for name in ("cache_planner", "model", "logger", "metrics", "cache_plan", "seed"):
        assert changed[name] == values[name]
    assert with_absolute_paths(changed, RunConfig) == changed
    remote = {"dataset": {**TABLES, "raw": "s3://bucket/folder"}}
    assert with_absolute_paths(remote, RunConfig) == remote
    # A class that only a program has.
    own = {"model": {"_target_": "own_layers.MaxPooling"}, "cache_plan": "plan"}
    assert with_absolute_paths(own, RunConfig) == own


@given(st.text(st.characters(blacklist_categories=("Cc", "Cs")), min_size=1))
def test_any_path_is_the_one_that_was_meant(text: str) -> None:
    values = {"dataset": {"_target_": "gnnscale.data.base.ExistingStore", "store": text}}
    changed = with_absolute_paths(values, RunConfig)["dataset"]["store"]
    if text.startswith("~") or "://" in text or "::" in text:
        return
    assert os.path.isabs(changed)
    assert changed == os.path.abspath(text)


def command(values: dict[str, Any]) -> list[str] | None:
    line = repeat_command(Path("/runs/it's 1"), values, RunConfig)
    return None if line is None else shlex.split(line)


def test_the_line_names_the_options_of_the_run_and_its_code(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    begin = ["gnnscale", "train", "config=/runs/it's 1/config.yaml"]
    assert command({"dataset": {**TABLES, "raw": "/data"}}) == begin
    code = {
        "model": CUSTOM,
        "metrics": ["accuracy", "pkg.mod:f"],
        "sampler": {"_target_": "s.py:S"},
    }
    named = f"model.module={tmp_path}/mine.py:Net"
    sampler = f"sampler._target_={tmp_path}/s.py:S"
    line = command(code)
    assert line is not None
    assert line[:3] == begin
    assert sorted(line[3:]) == sorted([named, sampler, "metrics=[accuracy,pkg.mod:f]"])
    # A module of the working directory is no module elsewhere.
    module = ModuleType("mine")
    module.__file__ = str(tmp_path / "mine.py")
    monkeypatch.setitem(sys.modules, "mine", module)
    assert command({"model": CUSTOM | {"module": "mine:Net"}}) == [*begin, named]
    assert command({"model": CUSTOM | {"module": "__main__:Net"}}) is None
    assert command({"model": {"_target_": "own_layers.MaxPooling"}}) is None


@pytest.fixture(autouse=True)
def classes() -> None:
    """Classes are known by their modules, which the run has imported."""
    assert gnnscale.data
