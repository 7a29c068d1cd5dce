"""A user's own ``torch.nn.Module`` as a model that the runtime trains."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import nn

from gnnscale.core import ConfigError, nearest
from gnnscale.core.config.user_code import EDGE_WIDTH, failed, load_named
from gnnscale.features import FeatureStore
from gnnscale.nn import base as trainable
from gnnscale.nn import module_probe as trial
from gnnscale.nn.conv.linear import Degrees, GraphLayer
from gnnscale.nn.device_block import Activation
from gnnscale.sampling import Block, MiniBatch

_LOG = logging.getLogger(__name__)

#: Names of a constructor's arguments that are filled, by what they mean.
_ARGUMENTS = {
    "num_features": ("in_channels", "in_feats", "num_features", "in_dim", "in_size"),
    "num_classes": ("out_channels", "out_feats", "num_classes", "n_classes", "out_dim", "out_size"),
    "hidden": ("hidden_channels", "hidden_feats", "hidden", "n_hidden", "hidden_dim", "hid_size"),
    "num_layers": ("num_layers", "n_layers"),
    "dropout": ("dropout",),
    "num_edge_features": EDGE_WIDTH,
}
#: In torch's message of a batch normalization that is to train with one row.
_ONE_ROW = "Expected more than 1 value per channel when training"
#: How far inference layer by layer may be from the forward pass, in parts of the largest logit.
_TOLERANCE = 1e-3


class UserLayer(GraphLayer):
    """One layer of a module for exact inference, by its ``inference_per_layer``."""

    def __init__(self, model: UserModel, index: int) -> None:
        """Infer layer ``index`` of ``model``."""
        super().__init__()
        # In a tuple: a module that is an attribute would be a part of this one.
        self._of = (model, index)
        self.uses_edge_features = model.uses_edge_features

    def prepare(
        self, h: torch.Tensor, block: Block, degrees: Degrees, act: Activation | None
    ) -> torch.Tensor:
        """Return ``h`` as it is: the module activates rows itself."""
        return h

    def update(self, x: torch.Tensor, block: Block, degrees: Degrees = None) -> torch.Tensor:
        """Return the rows ``[num_dst, f']`` that the next layer reads."""
        model, index = self._of
        found = trial.CALLS[model.form].infer(model.module, index, block, x)
        return model.checked(found, block.num_dst, None, f"inference_per_layer({index}, ...)")


class UserModel(trainable.TrainableModel):
    """A module that reads gathered rows, in one of ``CALLS``. It makes its own layers and dropout.

    torch's random numbers of a step depend on the run's seed, the step, and the slice's first seed:
    a run that is resumed draws those of one never stopped, if its slices are the same.
    """

    def __init__(
        self,
        module: nn.Module,
        form: str,
        widths: tuple[int, int],
        said: str,
        *,
        edge_width: int = 0,
    ) -> None:
        """Wrap ``module``, which reads ``edge_width`` features of each edge."""
        super().__init__()
        self.uses_edge_features = edge_width > 0
        self.uses_edge_weights = trial.CALLS[form].weighs_edges
        self.module = module  #: the user's
        self.form = form  #: how it is called
        self._num_classes = widths[1]
        self._said = said
        #: In a tuple, so that weights are there once.
        self.layers: Sequence[nn.Module] = ()

    @property
    def infers_by_layer(self) -> bool:
        """Whether the module has ``inference_per_layer``."""
        return len(self.layers) > 0

    @property
    def shared_parameters(self) -> list[nn.Parameter]:
        """The parameters that are trained."""
        return [each for each in self.parameters() if each.requires_grad]

    def layer(self, index: int) -> GraphLayer:
        """Return layer ``index`` for inference."""
        layer = self.layers[index]
        assert isinstance(layer, GraphLayer)
        return layer

    def load(
        self,
        store: FeatureStore,
        batch: MiniBatch,
        degrees: Degrees,
        *,
        aggregates: bool,
        dtype: torch.dtype,
        num_threads: int,
    ) -> trainable.Inputs:
        """Gather the input rows; a module aggregates them itself.

        Raises:
            ConfigError: the edges carry their importance, for which the module's form has no place.
        """
        if batch.blocks[0].importance is not None and not trial.CALLS[self.form].weighs_edges:
            raise ConfigError(
                f"sampler: the edges of layer-wise sampling carry weights, for which "
                f"model.form={self.form} has no place; neighbour sampling has none"
            )
        return super().load(
            store, batch, degrees, aggregates=aggregates, dtype=dtype, num_threads=num_threads
        )

    def forward(self, batch: MiniBatch, inputs: trainable.Inputs) -> torch.Tensor:
        """Return the seeds' logits ``[num_seeds, num_classes]`` float32.

        Raises:
            ConfigError: the module returns something else.
        """
        if not batch.num_seeds:
            # Modules need not know of mini-batches with nothing in them.
            return torch.zeros(0, self._num_classes, requires_grad=True)
        if self.training:
            stream = _stream(batch.seed, batch.step, batch.first_seed)
            on_host = inputs.x.device.type == "cpu"
            # Other devices have their generators; torch's own function seeds all of them.
            (torch.default_generator.manual_seed if on_host else torch.manual_seed)(stream)
        return self.logits(inputs.with_edges(batch), inputs.x)

    def logits(self, batch: MiniBatch, x: torch.Tensor) -> torch.Tensor:
        """Call the module, and return the seeds' rows ``[num_seeds, num_classes]`` float32."""
        form = trial.CALLS[self.form]
        try:
            out = form.call(self.module, batch, x)
        except ValueError as error:
            # torch's message of a batch normalization in training.
            if _ONE_ROW not in str(error):
                raise
            raise ConfigError(
                f"{self._said}: batch normalization in training needs more than one row, and a "
                f"slice of {batch.num_seeds} seeds has one; drop_last=true leaves out an "
                "incomplete mini-batch, another batch_size has no slice of one seed, and "
                "PyG's BatchNorm(allow_single_element=True) takes one row"
            ) from error
        if form.drops_rows and isinstance(out, torch.Tensor) and len(out) > batch.num_seeds:
            out = out[: batch.num_seeds]
        return self.checked(out, batch.num_seeds, self._num_classes, "forward")

    def checked(self, out: Any, num_rows: int, width: int | None, what: str) -> torch.Tensor:
        """Return ``out`` as float32.

        Raises:
            ConfigError: it is no tensor of ``num_rows`` rows of ``width`` features, None for any.
        """
        if not isinstance(out, torch.Tensor):
            raise ConfigError(
                f"{self._said}: {what} returns a {type(out).__name__}, must be a tensor"
            )
        if out.dim() != 2 or len(out) != num_rows or out.shape[1] != (width or out.shape[1]):
            wanted = f"[{num_rows}, {width or 'features'}]"
            raise ConfigError(
                f"{self._said}: {what} returns {list(out.shape)} for {num_rows} vertices, must be "
                f"{wanted}"
            )
        return out.float()


def build_user_model(
    code: Any, arguments: Mapping[str, Any], known: Mapping[str, Any], *, form: str, named: str
) -> UserModel:
    """Import, build and try a user's module.

    Args:
        code: a class, a function or a module, or the name of one.
        arguments: of the constructor, by name.
        known: what a run says of the model: ``num_features``, ``num_classes`` and ``num_layers``;
            ``hidden`` and ``dropout``, None if they are not given; ``num_edge_features``, None if
            the module reads none.
        form: one of ``FORMS``.
        named: ``code`` as text.

    Raises:
        ConfigError: it cannot be imported, built or called, or what it returns is no logits.
    """
    said = f"model.module={named}"
    module = _built(code, arguments, known, named)
    training = module.training
    module.eval()
    num_layers, widths = known["num_layers"], (known["num_features"], known["num_classes"])
    edge_width = known.get("num_edge_features") or 0
    batch = trial.tiny_batch(num_layers, edge_width=edge_width)
    x = trial.tiny_rows(batch, widths[0])
    model = _find_form(module, form, batch, x, widths, said)
    if edge_width and not _without_unread_edges(model, batch, x).uses_edge_features:
        edge_width = 0
        batch = trial.tiny_batch(num_layers)
    _check_parameters(model, batch, x, said)
    model.counted = trial.count_cost(
        module,
        model.logits,
        num_layers=num_layers,
        num_features=widths[0],
        num_classes=widths[1],
        edge_width=edge_width,
    )
    if _has_inference(model):
        _add_layers(model, num_layers, batch, x, said)
    model.train(training)
    _LOG.info(f"{said}: taken as model.form={model.form}")
    return model


def _built(
    code: Any, arguments: Mapping[str, Any], known: Mapping[str, Any], named: str
) -> nn.Module:
    """Return the module, built by its constructor if it is not built yet."""
    said = f"model.module={named}"
    if isinstance(code, str):
        code = load_named(code, option="model.module")
    if isinstance(code, nn.Module):
        if arguments:
            raise ConfigError(f"model.arguments={arguments}: {said} is built already")
        # Whoever gave it keeps its own.
        return copy.deepcopy(code)
    arguments = _arguments(code, arguments, known, said)
    label = f"{said}: {named.rpartition(':')[2]}"
    _check_arguments(code, arguments, label)
    try:
        module = code(**arguments)
    except Exception as error:
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        raise failed(f"{label}({given})", error) from error
    if not isinstance(module, nn.Module):
        raise ConfigError(f"{said}: makes a {type(module).__name__}, must be a torch.nn.Module")
    return module


@cache
def _say(message: str) -> None:
    """Warn once in a process."""
    _LOG.warning(message)


def warn_unless_built_again(module: nn.Module, known: Mapping[str, Any], named: str) -> None:
    """Warn if the name of the module's class does not give the module back after the run.

    Training says so at its start; arguments as for ``build_user_model``.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            again = _built(named, {}, known, named).state_dict()
    except ConfigError as error:
        reason = str(error).removeprefix(f"model.module={named}: ")
    else:
        shapes = {name: each.shape for name, each in module.state_dict().items()}
        if {name: each.shape for name, each in again.items()} == shapes:
            return
        reason = "without arguments it has other weights"
    _LOG.warning(
        f"model.module={named}: is built already, and its name does not build it again ({reason}); "
        "after the run give gnnscale.load(run, module=...) such a module, or commands its "
        "constructor's model.arguments.NAME=VALUE"
    )


def _arguments(
    code: Any, given: Mapping[str, Any], known: Mapping[str, Any], said: str
) -> dict[str, Any]:
    """Return the constructor's arguments: those that are given, and those that a run knows."""
    try:
        taken = inspect.signature(code).parameters
    except ValueError:  # of a class without one, such as some of C
        taken = {}  # type: ignore[assignment]
    filled = {}
    for what, value in known.items():
        name = next((each for each in _ARGUMENTS[what] if each in taken), None)
        if name is not None and value is not None:
            filled[name] = value
        elif name is not None and name not in given and _is_required(taken[name]):
            if what == "num_edge_features":
                raise ConfigError(
                    f"{said}: takes {name}, and there are no features of edges that it could read"
                )
            raise ConfigError(f"model.{what}: is needed, {said} takes {name}")
        elif value is not None and what in ("hidden", "dropout"):
            raise ConfigError(
                f"model.{what}={value}: {said} takes no argument of such a name "
                f"({', '.join(_ARGUMENTS[what])}); model.{what}=null leaves it"
            )
    return {**filled, **given}


def _check_arguments(code: Any, arguments: Mapping[str, Any], label: str) -> None:
    """Refuse arguments that a constructor does not take, and one that it needs and is not given."""
    try:
        taken = inspect.signature(code).parameters
    except ValueError:  # of a class without one, such as some of C
        return
    kinds = {each.kind for each in taken.values()}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for name in sorted(arguments.keys() - taken.keys()):
            raise ConfigError(
                f"model.arguments.{name}: {label} takes {', '.join(taken)}{nearest(name, taken)}"
            )
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for name, each in taken.items():
        if name not in arguments and _is_required(each) and each.kind not in several:
            raise ConfigError(f"{label} needs {name}; give model.arguments.{name}=VALUE")


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _find_form(
    module: nn.Module,
    form: str,
    batch: MiniBatch,
    x: torch.Tensor,
    widths: tuple[int, int],
    said: str,
) -> UserModel:
    """Return the module in the form that is asked for, or the first that it takes."""
    if type(module).forward in (nn.Module.forward, nn.Sequential.forward):
        raise ConfigError(f"{said}: has no forward that takes a graph")
    failures = []
    attr = batch.blocks[0].edge_attr
    edge_width = 0 if attr is None else attr.shape[1]
    for name in trial.likely_forms(module) if form == "auto" else [form]:
        model = UserModel(module, name, widths, said, edge_width=edge_width)
        try:
            with torch.no_grad():
                out = model.logits(batch, x)
        except ConfigError as error:
            failures.append(error)
        except Exception as error:
            failures.append(failed(f"{said}: model.form={name}: forward", error))
        else:
            if not torch.isfinite(out).all():
                raise ConfigError(
                    f"{said}: forward returns NaN or infinity for rows of normal numbers and "
                    "vertices without neighbours among them"
                )
            return model
    if len(failures) == 1:
        raise failures[0]
    likely = str(failures[0]).removeprefix(f"{said}: ")
    raise ConfigError(f"{said}: forward takes none of the forms of model.form; {likely}")


def _check_parameters(model: UserModel, batch: MiniBatch, x: torch.Tensor, said: str) -> None:
    """Refuse a module that nothing could train."""
    parameters = model.shared_parameters
    if not parameters:
        raise ConfigError(f"{said}: has no parameters to train")
    for name, each in model.module.named_parameters():
        if each.dtype != torch.float32:
            raise ConfigError(f"{said}: parameter {name} is {each.dtype}, must be torch.float32")
        if each.device.type != "cpu":
            raise ConfigError(f"{said}: parameter {name} is on {each.device}, must be on the CPU")
    out = model.logits(batch, x)
    if not out.requires_grad:
        raise ConfigError(f"{said}: forward returns logits without a gradient")


def _without_unread_edges(model: UserModel, batch: MiniBatch, x: torch.Tensor) -> UserModel:
    """Return the model without features of edges if these do not change its logits, with a warning.

    One that cannot be called without is given them all the same.
    """
    others, bare = (
        tuple(
            replace(
                each, edge_attr=-each.edge_attr if turns and each.edge_attr is not None else None
            )
            for each in batch.blocks
        )
        for turns in (True, False)
    )
    with torch.no_grad():
        logits = model.logits(batch, x)
        if not torch.equal(logits, model.logits(replace(batch, blocks=others), x)):
            return model
        try:
            model.logits(replace(batch, blocks=bare), x)
        except Exception:
            _say(f"{model._said}: is given features of edges, and its logits do not depend on them")
            return model
    _say(f"{model._said}: its logits do not depend on features of edges, which are not loaded")
    model.uses_edge_features = False
    return model


def _has_inference(model: UserModel) -> bool:
    """Whether it defines how a layer is computed, of edges with features if it reads these.

    PyG's model that joins all layers (jk) does not.
    """
    infer = getattr(model.module, "inference_per_layer", None)
    if not callable(infer) or getattr(model.module, "jk_mode", None) is not None:
        return False
    in_blocks = model.form in ("dgl", "blocks")
    return in_blocks or not model.uses_edge_features or trial.edge_argument(infer) is not None


def _add_layers(
    model: UserModel, num_layers: int, batch: MiniBatch, x: torch.Tensor, said: str
) -> None:
    """Let ``model`` be evaluated layer by layer."""
    layers = [UserLayer(model, index) for index in range(num_layers)]
    h, widths = x, [x.shape[1]]
    with torch.no_grad():
        try:
            for layer, block in zip(layers, batch.blocks, strict=True):
                h = layer.update(h, block)
                widths.append(h.shape[1])
        except ConfigError:
            raise
        except Exception as error:
            raise failed(f"{said}: inference_per_layer", error) from error
        expected = model.logits(batch, x)
    scale = float(expected.abs().max())
    if h.shape != expected.shape or float((h - expected).abs().max()) > _TOLERANCE * scale:
        raise ConfigError(
            f"{said}: the layers of inference_per_layer, one after the other, do not give what "
            "forward gives in evaluation mode over the same neighbours"
        )
    model.layers, model.widths = tuple(layers), tuple(widths)


def _stream(*numbers: int) -> int:
    """Return the seed of a stream of torch's numbers, a hash of ``numbers`` (SplitMix64)."""
    mask, state = (1 << 64) - 1, 0x7F04EBEE  # a tag of this purpose
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return state >> 1
