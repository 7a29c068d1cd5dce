from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from gnnscale.cli.tasks import _repeated


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ([], "gnnscale train"),
        (["epochs=2", "seed=1"], "gnnscale train epochs=2 seed=1"),
        (["experiment=file0_my"], "gnnscale train config=my.yaml"),
        (["+experiment=musae_sage", "x=[a, b]"], "gnnscale train config=musae_sage 'x=[a, b]'"),
    ],
)
def test_the_line_that_repeats_a_run(monkeypatch, typed: list[str], line: str) -> None:
    hydra = OmegaConf.create({"overrides": {"task": typed}})
    monkeypatch.setattr(HydraConfig, "get", staticmethod(lambda: hydra))
    assert _repeated(None) == line
    assert _repeated(Path("run")) is None
