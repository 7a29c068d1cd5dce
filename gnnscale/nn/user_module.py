"""A user's own ``torch.nn.Module`` as a ``TrainableModel``."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gnnscale.core import ConfigError
from gnnscale.core.config.user_code import user_code_error
from gnnscale.features import FeatureStore
from gnnscale.nn import module_probe
from gnnscale.nn.base import Inputs, TrainableModel
from gnnscale.nn.conv.linear import Degrees, GraphLayer
from gnnscale.nn.device_block import Activation
from gnnscale.nn.user_constructor import construct_module
from gnnscale.sampling import Block, MiniBatch

_LOG = logging.getLogger(__name__)

#: Part of torch's message when batch normalization trains on one row.
_ONE_ROW = "Expected more than 1 value per channel when training"
#: Largest difference between layer-wise inference and the forward pass, relative to the largest
#: logit.
_TOLERANCE = 1e-3


class UserLayer(GraphLayer):
    """Layer of a user's module in exact inference, computed by its ``inference_per_layer``."""

    def __init__(self, model: "UserModel", index: int) -> None:
        """Compute layer ``index`` of ``model``."""
        super().__init__()
        # A tuple: nn.Module would register the model as a submodule.
        self._model_and_index = (model, index)
        self.uses_edge_features = model.uses_edge_features

    def prepare(self, h: Tensor, block: Block, degrees: Degrees, act: Activation | None) -> Tensor:
        """Return ``h`` unchanged: the module applies its own activation."""
        return h

    def update(self, x: Tensor, block: Block, degrees: Degrees = None) -> Tensor:
        """Return ``inference_per_layer`` of ``x``: ``[num_dst, f']`` rows for the next layer."""
        model, index = self._model_and_index
        out = module_probe.CALLS[model.form].infer(model.module, index, block, x)
        return model.checked(out, block.num_dst, None, f"inference_per_layer({index}, ...)")


class UserModel(TrainableModel):
    """Model that gathers input rows and calls a user's module, in one of ``CALLS``.

    The module defines its layers and dropout. Each step seeds torch's random numbers from the run's
    seed, the step and the slice's first seed vertex: a resumed run with the same slices draws the
    numbers of an uninterrupted run.
    """

    def __init__(
        self,
        module: nn.Module,
        form: str,
        widths: tuple[int, int],
        option: str,
        *,
        edge_width: int = 0,
    ) -> None:
        """Wrap ``module``, called by the convention ``form``, one of ``FORMS``.

        ``widths`` are features of an input row and number of classes; ``option`` is
        ``model.module=NAME``, with which error messages begin; ``edge_width``: features of an edge
        that the module reads.
        """
        super().__init__()
        self.uses_edge_features = edge_width > 0
        self.uses_edge_weights = form in module_probe.WEIGHING_FORMS
        self.module = module  #: the user's module
        self.form = form  #: call convention, one of ``FORMS``
        self.option = option  #: ``model.module=NAME``
        self.num_classes = widths[1]  #: features of an output row
        # A tuple: nn.Module would register the layers, and with them the weights a second time.
        self.layers: Sequence[nn.Module] = ()

    @property
    def infers_by_layer(self) -> bool:
        """Whether the module has an ``inference_per_layer`` that suits the model."""
        return len(self.layers) > 0

    def load(
        self,
        store: FeatureStore,
        batch: MiniBatch,
        degrees: Degrees,
        *,
        aggregates: bool,
        dtype: torch.dtype,
        num_threads: int,
    ) -> Inputs:
        """Gather input rows; ConfigError: ``form`` cannot pass layer-wise sampling's weights."""
        weighted = getattr(batch.blocks[0], "importance", None) is not None
        if weighted and not self.uses_edge_weights:
            raise ConfigError(
                f"sampler: expected neighbor sampling with model.form={self.form}, got layer-wise "
                "sampling, whose edges carry weights that this form cannot pass to the module"
            )
        return super().load(
            store, batch, degrees, aggregates=aggregates, dtype=dtype, num_threads=num_threads
        )

    def forward(self, batch: MiniBatch, inputs: Inputs) -> Tensor:
        """Return the seeds' logits ``[num_seeds, num_classes]`` float32; ConfigError: other output.

        In training, torch's generator is seeded first, from run seed, step and first seed vertex.
        """
        if not batch.num_seeds:
            # A user's module need not support empty mini-batches.
            return torch.zeros(0, self.num_classes, requires_grad=True)
        if self.training:
            stream = _stream_seed(batch.seed, batch.step, batch.first_seed)
            on_host = inputs.x.device.type == "cpu"
            # torch.manual_seed seeds the generators of all devices as well.
            (torch.default_generator.manual_seed if on_host else torch.manual_seed)(stream)
        return self.logits(inputs.with_edges(batch), self.input_rows(inputs))

    def input_rows(self, inputs: Inputs) -> Any:
        """Return the rows for ``forward`` of the module: here ``[num_input_vertices, f]``."""
        return inputs.x

    def call(self, batch: MiniBatch, x: Any) -> Any:
        """Return the result of the module's ``forward``."""
        return module_probe.CALLS[self.form].call(self.module, batch, x)

    def seed_rows(self, batch: MiniBatch, out: Any) -> Tensor:
        """Return the seeds' rows of ``out``, the result of ``call``; ConfigError: other rows."""
        drops_rows = module_probe.CALLS[self.form].drops_rows
        if drops_rows and isinstance(out, Tensor) and len(out) > batch.num_seeds:
            out = out[: batch.num_seeds]
        return self.checked(out, batch.num_seeds, self.num_classes, "forward")

    def logits(self, batch: MiniBatch, x: Any) -> Tensor:
        """Call the module, and return the seeds' rows ``[num_seeds, num_classes]`` float32."""
        try:
            out = self.call(batch, x)
        except ValueError as error:
            if _ONE_ROW not in str(error):
                raise
            raise ConfigError(
                f"{self.option}: batch normalization in training expected more than one row, got a "
                f"slice of {batch.num_seeds} seeds with one; drop_last=true leaves out an "
                "incomplete mini-batch, another batch_size avoids slices of one seed, and "
                "PyG's BatchNorm(allow_single_element=True) accepts one row"
            ) from error
        return self.seed_rows(batch, out)

    def checked(
        self, out: Any, num_rows: int, width: int | None, call: str, of: str = ""
    ) -> Tensor:
        """Return ``out`` as float32; ConfigError, naming ``call``: it is not ``[num_rows, width]``.

        ``width`` None: any number of columns. ``of`` follows the vertices in the message.
        """
        expected = f"[{num_rows}, {width or 'features'}]"
        if not isinstance(out, Tensor):
            raise ConfigError(
                f"{self.option}: {call} returned a {type(out).__name__}, expected a tensor "
                f"{expected}"
            )
        if out.dim() != 2 or len(out) != num_rows or out.shape[1] != (width or out.shape[1]):
            raise ConfigError(
                f"{self.option}: {call} returned {list(out.shape)} for {num_rows} vertices{of}, "
                f"expected {expected}"
            )
        return out.float()


def build_user_model(
    code: Any,
    arguments: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    form: str,
    module_name: str,
) -> UserModel:
    """Build a user's module; find how to call it, and count its cost, on tiny mini-batches.

    ``code`` is a class, a function or a module, or the name of one; ``settings`` are values of the
    run for its constructor; ``form`` is a convention to call it, or ``auto``.

    Raises:
        ConfigError: the module cannot be imported, built or called, or does not return logits.
    """
    option = f"model.module={module_name}"
    module = construct_module(code, arguments, settings, module_name)
    training = module.training
    module.eval()
    num_layers, widths = settings["num_layers"], (settings["num_features"], settings["num_classes"])
    edge_width = settings.get("num_edge_features") or 0

    def batches(**added: Any) -> tuple[MiniBatch, Tensor]:
        batch = module_probe.tiny_batch(num_layers, **added, edge_width=edge_width)
        return batch, module_probe.tiny_rows(batch, widths[0])

    batch, x = batches()
    forms = module_probe.likely_forms(module) if form == "auto" else [form]
    model = find_form(
        [UserModel(module, name, widths, option, edge_width=edge_width) for name in forms], batch, x
    )
    if edge_width and not _without_unread_edges(model, batch, x).uses_edge_features:
        edge_width = 0
        batch = module_probe.tiny_batch(num_layers)
    check_parameters(model, batch, x)
    model.counted = module_probe.count_cost(module, model.logits, batches, widths)
    if _has_inference(model):
        _add_layers(model, num_layers, batch, x)
    model.train(training)
    _LOG.info(f"{option}: called as model.form={model.form}")
    return model


@cache
def _warn_once(message: str) -> None:
    """Log ``message`` as a warning, once in a process."""
    _LOG.warning(message)


_Model = TypeVar("_Model", bound=UserModel)


def find_form(models: Sequence[_Model], batch: MiniBatch, x: Any) -> _Model:
    """Return the first of ``models``, of a module in several forms, that works.

    ConfigError: none works on ``batch`` with input rows ``x``.
    """
    module, option = models[0].module, models[0].option
    if type(module).forward in (nn.Module.forward, nn.Sequential.forward):
        raise ConfigError(f"{option}: expected a forward that takes a graph")
    failures = []
    for model in models:
        try:
            with torch.no_grad():
                out = model.logits(batch, x)
        except ConfigError as error:
            failures.append(error)
        except Exception as error:
            call = f"{option}: model.form={model.form}: forward"
            failures.append(user_code_error(call, error))
        else:
            if not torch.isfinite(out).all():
                raise ConfigError(
                    f"{option}: forward returned NaN or infinity, expected finite logits for "
                    "normally distributed rows; some vertices have no neighbors"
                )
            return model
    if len(failures) == 1:
        raise failures[0]
    likely = str(failures[0]).removeprefix(f"{option}: ")
    raise ConfigError(f"{option}: forward takes none of the forms of model.form; {likely}")


def check_parameters(model: UserModel, batch: MiniBatch, x: Any) -> None:
    """Raise ConfigError unless the module has float32 host parameters, and logits a gradient."""
    if not model.shared_parameters:
        raise ConfigError(f"{model.option}: expected parameters to train, got none")
    for name, parameter in model.module.named_parameters():
        label = f"{model.option}: parameter {name}"
        if is_lazy(parameter):
            raise ConfigError(f"{label}: expected forward to initialize it, which it does not use")
        if parameter.dtype != torch.float32:
            raise ConfigError(f"{label}: expected torch.float32, got {parameter.dtype}")
        if parameter.device.type != "cpu":
            raise ConfigError(f"{label}: expected it on the CPU, got {parameter.device}")
    if not model.logits(batch, x).requires_grad:
        raise ConfigError(f"{model.option}: forward returned logits without a gradient")


def _without_unread_edges(model: UserModel, batch: MiniBatch, x: Tensor) -> UserModel:
    """Warn if logits ignore edge features; set ``model`` to load none if it runs without them.

    Return ``model``.
    """
    negated = tuple(
        replace(block, edge_attr=None if block.edge_attr is None else -block.edge_attr)
        for block in batch.blocks
    )
    without = tuple(replace(block, edge_attr=None) for block in batch.blocks)
    with torch.no_grad():
        logits = model.logits(batch, x)
        if not torch.equal(logits, model.logits(replace(batch, blocks=negated), x)):
            return model
        try:
            model.logits(replace(batch, blocks=without), x)
        except Exception:
            _warn_once(f"{model.option}: takes edge features, and its logits do not depend on them")
            return model
    _warn_once(f"{model.option}: its logits do not depend on edge features, which are not loaded")
    model.uses_edge_features = False
    return model


def _has_inference(model: UserModel) -> bool:
    """Whether ``inference_per_layer`` exists and can compute the model's logits.

    It cannot with jumping knowledge, or if the model reads edge features and it takes none.
    """
    infer = getattr(model.module, "inference_per_layer", None)
    if not callable(infer) or getattr(model.module, "jk_mode", None) is not None:
        return False
    in_blocks = model.form in ("dgl", "blocks")
    return in_blocks or not model.uses_edge_features or bool(module_probe.edge_argument(infer))


def _add_layers(model: UserModel, num_layers: int, batch: MiniBatch, x: Tensor) -> None:
    """Give ``model`` the layers and widths for inference by ``inference_per_layer``.

    ConfigError: on ``batch`` it fails, or its logits differ from those of ``forward``.
    """
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
            raise user_code_error(f"{model.option}: inference_per_layer", error) from error
        expected = model.logits(batch, x)
    scale = float(expected.abs().max())
    if h.shape != expected.shape or float((h - expected).abs().max()) > _TOLERANCE * scale:
        raise ConfigError(
            f"{model.option}: inference_per_layer, layer after layer, expected the result of "
            "forward in evaluation mode over the same neighbors, got another"
        )
    model.layers, model.widths = tuple(layers), tuple(widths)


def _stream_seed(*numbers: int) -> int:
    """Return the seed of a stream of torch's random numbers, a hash of ``numbers`` (SplitMix64)."""
    mask, state = (1 << 64) - 1, 0x7F04EBEE  # the tag of this stream
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return state >> 1
