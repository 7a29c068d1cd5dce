"""Construction of a user's ``torch.nn.Module`` from its name, its arguments and the run's sizes."""

import copy
import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gnnscale.core import ConfigError, suggestion
from gnnscale.core.config.user_code import EDGE_WIDTH, load_named, user_code_error
from gnnscale.graph import GraphSchema

_LOG = logging.getLogger(__name__)

#: Names of a constructor's arguments that are filled from the run, by meaning.
_ARGUMENT_NAMES = {
    "num_features": ("in_channels", "in_feats", "num_features", "in_dim", "in_size"),
    "num_classes": ("out_channels", "out_feats", "num_classes", "n_classes", "out_dim", "out_size"),
    "hidden": ("hidden_channels", "hidden_feats", "hidden", "n_hidden", "hidden_dim", "hid_size"),
    "num_layers": ("num_layers", "n_layers"),
    "dropout": ("dropout",),
    "num_edge_features": EDGE_WIDTH,
    "metadata": ("metadata",),
    "node_types": ("node_types", "ntypes"),
    "edge_types": ("edge_types", "canonical_etypes"),
    "relations": ("rel_names", "etypes"),
}


def type_settings(schema: GraphSchema, widths: Sequence[int]) -> dict[str, Any]:
    """Return the values by meaning that constructors over a graph with types may have.

    ``widths`` are the features of each vertex type of ``schema``.
    """
    names = [vertices.name for vertices in schema.vertex_types]
    triples = [edge_type.triple for edge_type in schema.edge_types]
    return {
        "num_features": dict(zip(names, widths, strict=True)),
        "metadata": (names, triples),
        "node_types": names,
        "edge_types": triples,
        "relations": [relation for _, relation, _ in triples],
    }


def construct_module(
    code: Any, arguments: Mapping[str, Any], settings: Mapping[str, Any], module_name: str
) -> nn.Module:
    """Return the module that ``code`` (its name, a class, a function or a module) constructs.

    ``settings`` are the run's values by meaning, such as ``hidden``, which fill arguments that the
    constructor has for them; None: not set. ``code`` that is a module is copied. ConfigError:
    importing or constructing fails, or an argument is unknown or missing.
    """
    option = f"model.module={module_name}"
    if isinstance(code, str):
        code = load_named(code, option="model.module")
    if isinstance(code, nn.Module):
        if arguments:
            raise ConfigError(
                f"model.arguments={arguments}: expected none, as {option} is built already"
            )
        return copy.deepcopy(code)  # training must not change the caller's module
    arguments = {**_arguments_from_run(code, arguments, settings, option), **arguments}
    label = f"{option}: {module_name.rpartition(':')[2]}"
    _check_arguments(code, arguments, label, module_name)
    try:
        module = code(**arguments)
    except Exception as error:
        listed = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        raise user_code_error(f"{label}({listed})", error) from error
    if not isinstance(module, nn.Module):
        raise ConfigError(f"{option}: expected a torch.nn.Module, got a {type(module).__name__}")
    return module


def warn_unless_built_again(
    module: nn.Module, settings: Mapping[str, Any], module_name: str
) -> None:
    """Warn unless the class of ``module``, built from ``settings``, has weights of its shapes.

    Otherwise the user has to pass the module again to load it after the run.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            rebuilt = construct_module(type(module), {}, settings, module_name).state_dict()
    # The class of a module of torch.fx, such as one of PyG's to_hetero, builds an unusable object.
    except (ConfigError, AttributeError) as error:
        reason = str(error).removeprefix(f"model.module={module_name}: ")
    else:
        if _shapes(rebuilt) == _shapes(module.state_dict()):
            return
        reason = "without arguments it has other weights"
    _LOG.warning(
        f"model.module={module_name}: is built already, and its class does not build it again "
        f"({reason}); after the run pass such a module to gnnscale.load(run, module=...), or its "
        "constructor's model.arguments.NAME=VALUE to commands"
    )


def _shapes(state: Mapping[str, Tensor]) -> dict[str, torch.Size | None]:
    """Return the shape of each weight by name; None: it is not initialized, and has no shape."""
    return {name: None if is_lazy(values) else values.shape for name, values in state.items()}


def _parameters(code: Any) -> Mapping[str, inspect.Parameter] | None:
    """Return the parameters of ``code``; None: it has no signature, like some classes of C."""
    try:
        return inspect.signature(code).parameters
    except ValueError:
        return None


def _arguments_from_run(
    code: Any, arguments: Mapping[str, Any], settings: Mapping[str, Any], option: str
) -> dict[str, Any]:
    """Return arguments of the constructor ``code``, by name, that the run's ``settings`` fill.

    ``arguments`` are those that the user gives. ConfigError: a required argument has no value from
    either, or ``hidden`` or ``dropout`` is set and the constructor has no argument for it.
    """
    parameters = _parameters(code) or {}
    filled = {}
    for meaning, value in settings.items():
        name = next((name for name in _ARGUMENT_NAMES[meaning] if name in parameters), None)
        if name is not None and value is not None:
            filled[name] = value
        elif name is not None and name not in arguments and _is_required(parameters[name]):
            if meaning == "num_edge_features":
                raise ConfigError(
                    f"{option}: expected edge features for its argument {name}, got none"
                )
            raise ConfigError(f"model.{meaning}: required, {option} takes {name}")
        elif value is not None and meaning in ("hidden", "dropout"):
            raise ConfigError(
                f"model.{meaning}={value}: expected an argument of {option} named "
                f"{' or '.join(_ARGUMENT_NAMES[meaning])}, got none; model.{meaning}=null "
                "leaves it out"
            )
    return filled


def _check_arguments(code: Any, arguments: Mapping[str, Any], label: str, module_name: str) -> None:
    """Raise ConfigError if ``code`` takes no argument of a given name, or requires another one."""
    parameters = _parameters(code)
    if parameters is None:
        return
    kinds = {parameter.kind for parameter in parameters.values()}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for name in sorted(arguments.keys() - parameters.keys()):
            raise ConfigError(
                f"model.arguments.{name}: expected an argument of {module_name}, one of "
                f"{', '.join(parameters)}{suggestion(name, parameters)}"
            )
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for name, parameter in parameters.items():
        required = _is_required(parameter) and parameter.kind not in variadic
        if required and name not in arguments:
            raise ConfigError(f"{label}: {name} is required; set model.arguments.{name}=VALUE")


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty
