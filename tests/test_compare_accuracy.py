from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from gnnscale.core.errors import ConfigError

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    file = SCRIPTS / "compare_accuracy.py"
    spec = importlib.util.spec_from_file_location("compare_accuracy", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "compare_accuracy", module)
    spec.loader.exec_module(module)
    return module


def test_differences_and_their_limits(script: ModuleType) -> None:
    figures = {
        "gnnscale": [80.0, 82.0],
        "gnnscale-bf16": [80.0, 80.0],
        "dgl": [81.0, 81.4],
        "published": [82.5],
    }
    published, dgl, bf16 = script.differences("graph", figures)
    assert published.points == pytest.approx(-1.5)
    assert published.standard_error == pytest.approx(1.0)  # of two runs one point off their mean
    assert not published.allowed
    assert dgl.points == pytest.approx(-0.2)
    assert dgl.allowed
    assert (bf16.system, bf16.reference, bf16.points) == ("gnnscale-bf16", "gnnscale", -1.0)
    assert not bf16.allowed
    assert replace(published, points=5.0).allowed
    assert not replace(dgl, points=0.6).allowed


def test_a_missing_system_is_not_compared(script: ModuleType) -> None:
    assert script.differences("graph", {"gnnscale": [80.0]}) == []


def test_every_row_names_a_shipped_experiment(script: ModuleType) -> None:
    for row in script.ROWS.values():
        config = script.experiment(row.experiment, ["seed=3"])
        assert config.seed == 3
        assert set(row.systems) <= set(script.SYSTEMS)


@pytest.mark.parametrize(
    "override",
    ["model=gcn", "model.norm=batch", "optimizer.schedule=cosine", "sampler.replace=true"],
)
def test_dgl_refuses_what_it_would_not_follow(script: ModuleType, override: str) -> None:
    config = script.experiment("tolokers_sage", [override])
    with pytest.raises(ConfigError, match=override.partition("=")[0].partition(".")[0]):
        script.check_dgl_does_the_same(config)


def test_both_sides_learn_the_same(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("dgl", reason="dgl is not installed")
    config = script.experiment(
        "musae_sage",
        [
            "dataset=planted_partition",
            "dataset.num_vertices=2000",
            "dataset.num_edges=20000",
            "dataset.num_classes=4",
            f"dataset.store={tmp_path / 'store'}",
            "epochs=20",
            "optimizer.lr=0.01",
            "batch_size=100",
            "num_threads=1",
            "runtime.checkpoint=false",
        ],
    )
    epochs: list[int] = []
    ours = script.train_gnnscale(config, lambda epoch, valid: epochs.append(epoch))
    theirs = script.train_dgl(config, lambda epoch, valid: epochs.append(epoch))
    assert epochs == [*range(1, 21), *range(1, 21)]
    assert ours > 0.8
    assert ours == pytest.approx(theirs, abs=0.03)
