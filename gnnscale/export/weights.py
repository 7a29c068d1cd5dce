"""The best weights of a run in a safetensors file, under our names or those of another library."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch

from gnnscale.config import ConfigError, check_choice
from gnnscale.errors import shown
from gnnscale.export.for_dgl import DGL
from gnnscale.export.for_pyg import PYG
from gnnscale.files import write_atomically
from gnnscale.model import ModelConfig
from gnnscale.runtime.evaluation.evaluate import load_best, load_run

__all__ = ["FORMATS", "ExportConfig", "Exported", "export"]

_PEERS = {peer.name: peer for peer in (PYG, DGL)}
#: Names of weights: our own, those of PyTorch Geometric, those of DGL.
FORMATS = ("safetensors", *_PEERS)

_OWN = """\
from gnnscale.model import {name}
from safetensors.torch import load_file

model = {config}.build(num_features={width}, num_classes={num_classes})
model.load_state_dict(load_file({file}))
"""


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Weights to write.

    Attributes:
        run: directory of a finished or stopped run.
        format: one of ``FORMATS``, whose names the weights get.
        out: the file, ``.safetensors``; None for ``model.safetensors`` in the run directory, or
            ``model.pyg.safetensors``, ``model.dgl.safetensors``.
        force: overwrite it where it exists.
    """

    run: Path
    format: str = "safetensors"
    out: Path | None = None
    force: bool = False

    def __post_init__(self) -> None:
        check_choice("format", self.format, FORMATS)

    @property
    def file(self) -> Path:
        """The file that is written."""
        middle = "" if self.format == "safetensors" else f".{self.format}"
        return self.out or self.run / f"model{middle}.safetensors"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written.

    Attributes:
        file: the weights.
        snippet: a program that builds the model and loads them.
        note: what has no counterpart, in one line; empty for nothing.
    """

    file: Path
    snippet: str
    note: str


def export(config: ExportConfig) -> Exported:
    """Write the weights of a run's best epoch.

    Raises:
        ConfigError: the directory holds no run, the model has no counterpart in the library, or the
            file exists or has another kind of name.
        GraphError: the run's graph store is not usable.
        OSError: the file cannot be written.
    """
    file = config.file
    if file.suffix != ".safetensors":
        raise ConfigError(f"out={shown(file)}: the name must end in .safetensors")
    run = load_run(config.run)
    if file.exists() and not config.force:
        raise ConfigError(f"out={shown(file)}: exists, force=true overwrites it")
    if not file.parent.is_dir():
        raise ConfigError(f"out={shown(file)}: no such folder {file.parent}")
    _, model, _ = load_best(config.run, run)
    peer = _PEERS.get(config.format)
    weights = (
        {name: each.clone() for name, each in model.state_dict().items()}
        if peer is None
        else peer.weights(run.model, model)
    )
    snippet = (
        _own_snippet(run.model, model.widths, file)
        if peer is None
        else peer.snippet(run.model, model.widths, file)
    )
    write_atomically(file, safetensors.torch.save(weights, {"format": "pt"}))
    note = "" if peer is None else peer.note.get(run.model.name, "")
    return Exported(file=file, snippet=snippet, note=note)


def _own_snippet(config: ModelConfig, widths: tuple[int, ...], file: Path) -> str:
    return _OWN.format(
        name=config.name,
        config=config,
        width=widths[0],
        num_classes=widths[-1],
        file=json.dumps(str(file)),
    )
