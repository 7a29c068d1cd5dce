from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("own_graph", "scipy"),
        ("dgl_module", "dgl"),
        ("pyg_module", "torch_geometric"),
        ("pyg_loop", "torch_geometric"),
    ],
)
def test_an_example_reaches_the_accuracy_it_shows(
    name: str,
    needs: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip(needs, reason=f"{needs} is not installed")
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path_factory.getbasetemp() / "examples"))
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert example.main() > 0.75
    assert "test accuracy" in capsys.readouterr().out
