import subprocess
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from gnnscale.cli.commands.train import _repeat_command
from gnnscale.cli.texts import as_typed


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ([], "gnnscale train"),
        (["epochs=2", "seed=1"], "gnnscale train epochs=2 seed=1"),
        (["experiment=file0_my"], "gnnscale train config=my.yaml"),
        (["+experiment=musae_sage", "x=[a, b]"], "gnnscale train config=musae_sage 'x=[a, b]'"),
        (["dataset.store=a${seed}"], "gnnscale train 'dataset.store=a${seed}'"),
    ],
)
def test_the_line_that_repeats_a_run(monkeypatch, typed: list[str], line: str) -> None:
    hydra = OmegaConf.create({"overrides": {"task": typed}})
    monkeypatch.setattr(HydraConfig, "get", staticmethod(lambda: hydra))
    assert _repeat_command(None) == line
    assert _repeat_command(Path("run")) is None


@pytest.mark.parametrize(
    "text",
    ["$(touch acted)", "`touch acted`", "a;b", "it's", 'a"b', "a\\", "ü b", "a#b", "!a", "~a", "*"],
)
def test_a_shell_reads_the_line_as_what_was_typed(monkeypatch, text: str) -> None:
    typed = as_typed(f"dataset.label={text}", "train", sweep=False)
    hydra = OmegaConf.create({"overrides": {"task": [typed]}})
    monkeypatch.setattr(HydraConfig, "get", staticmethod(lambda: hydra))
    line = _repeat_command(None)
    assert line is not None
    shell = subprocess.run(
        ["bash", "-c", line.replace("gnnscale train", "printf %s", 1)],
        capture_output=True,
        text=True,
    )
    assert (shell.stdout, shell.stderr) == (typed, "")
