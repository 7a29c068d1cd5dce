"""Export of a run's best weights to safetensors, named as in gnnscale, PyG or DGL."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
from torch import Tensor

from gnnscale.core import ConfigError, brief, check_choice, write_atomically
from gnnscale.graph import InputTypes
from gnnscale.inference.export.dgl_modules import DGL
from gnnscale.inference.export.module_export import Program, literal, reads_weights
from gnnscale.inference.export.pyg_modules import PYG
from gnnscale.inference.export.typed_modules import TypedProgram
from gnnscale.inference.load_run import load_run
from gnnscale.inference.trained_model import TrainedModel, load_trained
from gnnscale.nn import GNN, ModelConfig, TrainableModel, TypedGNN, TypedModel, user_module
from gnnscale.nn import link_decoder as links
from gnnscale.run.commands import SavedRunOptions
from gnnscale.sampling import SamplerConfig

_PEERS = {peer.name: peer for peer in (PYG, DGL)}
#: Naming schemes of weights: of gnnscale, of PyTorch Geometric, of DGL.
FORMATS = ("safetensors", *_PEERS)

#: Prefix of the names of learned rows, which are inputs and not exported.
_LEARNED = "vertex_rows."
_ROWS_NOTE = (
    "learned rows of vertices are not among the weights: gnnscale.load(DIR).graph.features has them"
)

#: Beginning of the line of a program that loads the weights.
_LOAD = "model.load_state_dict("
_MODEL = """\
from gnnscale.nn import {name}
from safetensors.torch import load_file

model = {config}.build(num_features={width}, num_classes={num_classes}{edges})
model.load_state_dict(load_file({file}))
"""

_USER_MODULE = """\
from safetensors.torch import load_file

module.load_state_dict(load_file({file}))  # a module as you built it for training
"""


@dataclass(frozen=True, kw_only=True)
class ExportConfig(SavedRunOptions):
    """Options of ``gnnscale export``, which writes the weights of a run.

    Attributes:
        format: naming scheme of the weights, one of ``FORMATS``.
        out: file to write, ``.safetensors``; None: ``model.safetensors`` in the run directory, or
            ``model.pyg.safetensors``, ``model.dgl.safetensors``.
        force: overwrite ``out``.
    """

    format: str = "safetensors"
    out: Path | None = None
    force: bool = False

    def __post_init__(self) -> None:
        check_choice("format", self.format, FORMATS)

    @property
    def file(self) -> Path:
        """File to write: ``out``, or by default a file in the run directory."""
        middle = "" if self.format == "safetensors" else f".{self.format}"
        return self.out or self.run / f"model{middle}.safetensors"


@dataclass(frozen=True, kw_only=True)
class ExportedWeights:
    """File of exported weights, a program that loads it, and a note on parts that differ."""

    file: Path  #: the weights
    snippet: str  #: program that builds the model and loads the weights
    note: str  #: parts without a counterpart, in one line; empty if all have one


def export(config: ExportConfig) -> ExportedWeights:
    """Write the weights of a run's best epoch, with the names of gnnscale, PyG or DGL.

    The result has the file, a program that loads it, and a note on parts left out or different.

    Raises:
        ConfigError: the directory has no run or best checkpoint; the model has no counterpart in
            PyG or DGL; or the file exists without ``force``, has another suffix than
            ``.safetensors``, or lacks its folder.
        GraphError: the run's graph store is missing or damaged.
        OSError: the file cannot be written.
    """
    _check_file(config)
    run = load_run(config.run, config.overrides)
    trained = load_trained(config.run, run)
    weighted = trained.is_weighted(run, config.run)
    return export_trained(config, trained, run.model, run.sampler, weighted=weighted)


def export_trained(
    config: ExportConfig,
    trained: TrainedModel,
    options: ModelConfig,
    sampler: SamplerConfig,
    *,
    weighted: bool,
) -> ExportedWeights:
    """Write the weights of a trained model; errors are those of ``export``.

    ``options`` are those of the model, ``sampler`` is that of training, and ``weighted`` says
    whether edges of the graph have weights.
    """
    edge_fanouts: Mapping[str, list[int]] = getattr(sampler, "edge_fanouts", None) or {}
    left_out = [name for name, fanouts in edge_fanouts.items() if 0 in fanouts]
    if left_out and config.format != "safetensors":
        raise ConfigError(
            f"format={config.format}: expected a run that reads all edge types at each hop, "
            f"sampler.edge_fanouts leaves out {brief(left_out[0])}; format=safetensors writes the "
            "weights"
        )
    return export_model(
        *(config, options, trained.model),
        weighted=weighted,
        types=trained.signature.types,
        targets={of: labels.num_classes for of, labels in trained.signature.targets.items()},
        timed_types=trained.signature.timed_types,
    )


def export_model(
    config: ExportConfig,
    options: ModelConfig,
    model: TrainableModel,
    *,
    weighted: bool,
    types: InputTypes | None = None,
    targets: Mapping[str, int] | None = None,
    timed_types: Sequence[bool] = (),
) -> ExportedWeights:
    """Write the weights of a model in memory; return the file, a program that loads it, and a note.

    ``weighted`` says whether edges of the graph have weights, ``types`` are its types (None: it has
    none), ``targets`` numbers of outputs of several trained types, ``timed_types`` which types have
    times that the model reads. ConfigError: the model has no counterpart in PyG or DGL, or the file
    has a wrong suffix, no folder, or exists without ``force``.
    """
    _check_file(config)
    file = config.file
    if model.uses_ages and config.format != "safetensors":
        raise ConfigError(
            f"format={config.format}: expected model.time_encoding=none, as relative time has no "
            "counterpart there; format=safetensors writes the weights"
        )
    if isinstance(model, TypedGNN):
        assert types is not None
        assert isinstance(options, TypedModel)
        program = TypedProgram(
            config=options, model=model, types=types, file=file, targets=targets or {}
        )
        weights, snippet, note = _convert_typed(config, program, weighted=weighted)
    else:
        weights, snippet, note = _convert(config, options, model, weighted)
    if model.uses_ages:
        encoders = f"{options}.add_time_encoders(model, {tuple(timed_types)})"
        snippet = snippet.replace(_LOAD, f"{encoders}\n{_LOAD}")
    weights = {
        name: tensor.clone() for name, tensor in weights.items() if not name.startswith(_LEARNED)
    }
    if model.vertex_rows is not None:
        note = "; ".join(filter(None, (note, _ROWS_NOTE)))
    write_atomically(file, safetensors.torch.save(weights, {"format": "pt"}))
    return ExportedWeights(file=file, snippet=snippet, note=note)


def _check_file(config: ExportConfig) -> None:
    """Raise ConfigError for a wrong suffix, a file that exists without ``force``, or no folder."""
    file = config.file
    if file.suffix != ".safetensors":
        raise ConfigError(f"out={brief(file)}: expected a name that ends in .safetensors")
    # force=true replaces a link, not its target.
    if os.path.lexists(file) and not config.force:
        raise ConfigError(f"out={brief(file)}: exists, force=true overwrites it")
    if not file.parent.is_dir():
        raise ConfigError(f"out={brief(file)}: no such folder {file.parent}")


def _convert(
    config: ExportConfig, options: ModelConfig, model: TrainableModel, weighted: bool
) -> tuple[Mapping[str, Tensor], str, str]:
    """Return weights by exported name, a program that loads them, and a note on differences.

    ConfigError: the model has no counterpart in PyG or DGL.
    """
    peer, file = _PEERS.get(config.format), config.file
    if peer is not None:
        if not isinstance(model, GNN):
            raise ConfigError(
                f"format={config.format}: {options.name} is a module of your own, whose weights "
                "have its own names; format=safetensors writes these"
            )
        program = Program(
            config=options,
            widths=model.widths,
            file=file,
            edge_width=_edge_width(model),
            weighted=weighted and reads_weights(options),
        )
        weights = peer.weights(options, model, weighted=program.weighted)
        notes = [peer.weights_note if program.weighted else "", peer.note(program)]
        if isinstance(model, links.EdgeModel):
            notes += ["the network over both ends' rows is left out; format=safetensors has it"]
        if options.drops_inputs:
            notes.append(
                f"input dropout, which only training needs: functional.dropout(x, "
                f"{model.input_dropout}, model.training) before the model"
            )
        return weights, peer.snippet(program), "; ".join(filter(None, notes))
    if isinstance(model, user_module.UserModel):
        return model.module.state_dict(), _USER_MODULE.format(file=literal(file)), ""
    if not isinstance(model, GNN) or isinstance(model, links.PairModel):
        return model.state_dict(), "", "they load into the model of your program"
    edge_width = _edge_width(model)
    snippet = _MODEL.format(
        name=options.name,
        config=options,
        width=model.widths[0],
        num_classes=model.widths[-1],
        edges=f", num_edge_features={edge_width}" if edge_width else "",
        file=literal(file),
    )
    return model.state_dict(), snippet, ""


def _convert_typed(
    config: ExportConfig, program: TypedProgram, *, weighted: bool
) -> tuple[Mapping[str, Tensor], str, str]:
    """Return what ``_convert`` returns, of a model over a graph with types."""
    if config.format == "dgl":
        raise ConfigError(
            f"format=dgl: layers of {program.config.name} have no counterpart there; format=pyg "
            "and format=safetensors write them"
        )
    return (
        program.pyg_weights(weighted=weighted)
        if config.format == "pyg"
        else program.gnnscale_weights()
    )


def _edge_width(model: TrainableModel) -> int:
    """Return the number of edge features that layers read; 0 for none."""
    return max(getattr(layer, "edge_dim", 0) for layer in model.layers)
