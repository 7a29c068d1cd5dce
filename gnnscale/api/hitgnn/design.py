"""Design phase: partition, model and platform (HitGNN, Listing 1), and the options of a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gnnscale.cache import CachePlannerConfig
from gnnscale.core import ConfigError, brief, check_choice
from gnnscale.core.config import (
    GROUPS,
    allow,
    escaped,
    flat_options,
    format_option_value,
    is_name,
    name_of_code,
    pass_code,
    short_name,
)
from gnnscale.core.config.compose import compose, config_groups, separate_hydra, store_code
from gnnscale.core.config.typed import typed
from gnnscale.features import FeatureStoreConfig, HostFeaturesConfig
from gnnscale.graph import Graph
from gnnscale.nn import Custom, ModelConfig, ScatterGatherUpdate
from gnnscale.nn.options import CustomModel, LayeredModel
from gnnscale.partition import PartitionerConfig
from gnnscale.planner import DevicePlanConfig
from gnnscale.sampling import SamplerConfig

T = TypeVar("T", covariant=True)

#: Base class of each group in ``GROUPS``.
_BASES: dict[str, type[Any]] = {
    "partitioner": PartitionerConfig,
    "cache_planner": CachePlannerConfig,
    "sampler": SamplerConfig,
    "features": FeatureStoreConfig,
}

#: Function of the interface that returns each option group.
_SOURCE = {
    "dataset": "load_input_graph",
    "model": "gnn_model",
    "device_plan": "platform_metadata",
    "partitioner": "graph_partition",
    "features": "feature_storing",
}


@dataclass(frozen=True, kw_only=True)
class OptionGroup(Generic[T]):
    """Options of one configuration group, validated and as plain values."""

    group: str  #: name of the group
    config: T  #: the options
    values: dict[str, Any]  #: plain values of the options, for the run's ``config.yaml``


def check_option_group(argument: str, value: object, group: str) -> None:
    """Raise ConfigError unless ``value`` is an ``OptionGroup`` of the group named ``group``.

    ``argument`` is the name of the value in the message.
    """
    if not isinstance(value, OptionGroup) or value.group != group:
        raise ConfigError(f"{argument}={brief(value)}: expected the result of {_SOURCE[group]}")


def choose(group: str, name: str, base: type[Any], options: Mapping[str, Any]) -> OptionGroup[Any]:
    """Load the file ``name`` of a group, set ``options``, and return the result as a ``base``.

    ``options`` are values by dotted name. For group ``partitioner``, ``name`` may also be an
    algorithm: the partitioner that it uses is loaded. ConfigError if there is no such file or
    option, or a value is invalid.
    """
    names = config_groups()[group]
    algorithms = config_groups()["algorithm"] if group == "partitioner" else []
    check_choice(group, name, sorted({*names, *algorithms}))
    with separate_hydra():
        node = compose("train", [f"{group if name in names else 'algorithm'}={name}"])[0][group]
        for option, value in options.items():
            _set(node, option, value)
        config = typed(node, base, group=group)
        values: Any = OmegaConf.to_container(node, resolve=True)
    return OptionGroup(group=group, config=config, values=values)


def compose_run(
    groups: Sequence[OptionGroup[Any]], options: Mapping[str, Any]
) -> tuple[DictConfig, DictConfig]:
    """Return a run's options, and Hydra's settings with the path of a new run directory.

    The run's options are those of ``groups``, except a feature store and a user's layer, which the
    caller adds, and further ``options``, named as on the command line and listed as overrides in
    Hydra's settings; those of a group may be in a mapping. ConfigError for an unknown choice, or an
    option of one of ``groups``.
    """
    options = flat_options(options)
    for option in options:
        group = option.partition(".")[0]
        if group in {chosen.group for chosen in groups}:
            raise ConfigError(f"options: {brief(option)}: expected in {_SOURCE[group]}")
    files, options = config_groups(), {name: _plain(value) for name, value in options.items()}
    if is_name(options.get("loss")):  # a function
        options = {**options, "loss": "custom", "loss.function": options["loss"]}
    selected = {name: value for name, value in options.items() if name in files}
    choices = []
    for group, value in selected.items():
        # Only ``logger`` accepts several names.
        names = list(value) if group == "logger" and isinstance(value, list | tuple) else [value]
        for name in names:
            if group in GROUPS and is_name(name):
                store_code(group, name)
            else:
                check_choice(group, name, files[group])
        written = f"[{','.join(names)}]" if group == "logger" else value
        choices.append(f"{group}={written}")
    node, hydra = compose("train", choices)
    for option, value in options.items():
        if option not in selected:
            _set(node, option, value)
            hydra.hydra.overrides.task.append(f"{option}={format_option_value(value)}")
    for chosen in groups:
        if chosen.group != "features":
            node[chosen.group] = escaped(chosen.values)
        if isinstance(chosen.config, Custom):
            # Options cannot name a user's class, which replaces this one after validation.
            node[chosen.group]["_target_"] = "gnnscale.nn.options.GraphSAGE"
    return node, hydra.hydra


def name_code(options: Mapping[str, Any]) -> tuple[dict[str, Any], list[OptionGroup[Any]]]:
    """Return ``options`` with the names of classes and functions in place of these, and groups.

    A function as ``loss`` chooses ``loss=custom``. Objects of the user's classes of ``GROUPS``
    become the returned option groups. ConfigError: two different functions have one name.
    """
    named, groups = dict(options), []
    if callable(options.get("loss")):
        named |= {"loss": "custom", "loss.function": options["loss"]}
    passed = dict[str, Any]()
    for option, value in named.items():
        if option in GROUPS and is_dataclass(value) and not isinstance(value, type):
            groups.append(_object_group(option, value))
        elif isinstance(value, list | tuple):
            named[option] = [_pass(element, passed) for element in value]
        else:
            named[option] = _pass(value, passed)
    for group in groups:
        del named[group.group]
    return named, groups


def _pass(value: Any, passed: dict[str, Any]) -> Any:
    """Return the name of a class or function, noted in ``passed``; any other value unchanged."""
    if not callable(value):
        return value
    name = pass_code(value)
    if passed.setdefault(name, value) is not value:
        raise ConfigError(f"{brief(short_name(name))}: expected one function of this name, got two")
    return name


def _object_group(group: str, value: Any) -> OptionGroup[Any]:
    """Return ``value``, an object with the options of ``group``, as this group.

    ConfigError: its class is no class of options of the group.
    """
    cls, base = type(value), _BASES[group]
    if not isinstance(value, base):
        raise ConfigError(
            f"{group}={brief(value)}: expected an object of a subclass of {class_path(base)}"
        )
    values = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if cls.__module__.partition(".")[0] == "gnnscale":
        target = class_path(cls)
    else:
        target = pass_code(cls)
        allow([target])
    return OptionGroup(group=group, config=value, values={"_target_": target, **values})


def class_path(cls: type[Any]) -> str:
    """Return the importable path of a class, as in ``_target_``."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _plain(value: Any) -> Any:
    """Return ``value`` as plain Python values: arrays as lists, and paths as text."""
    if isinstance(value, (np.generic, np.ndarray, torch.Tensor)):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _set(node: DictConfig, option: str, value: Any) -> None:
    """Set the option with the dotted name ``option`` in ``node`` to ``value`` in plain values.

    Adds an unknown name, which ``typed`` refuses later. ConfigError: OmegaConf refuses the value.
    """
    try:
        OmegaConf.update(node, option, _plain(value), merge=False, force_add=True)
    except (OmegaConfBaseException, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{brief(option)}={brief(value)}: {reason}") from None


#: Files in ``configs`` of the paper's architectures.
_ARCHITECTURES = {"GCN": "gcn", "GraphSAGE": "sage", "GAT": "gat", "GIN": "gin"}


@dataclass(frozen=True, kw_only=True)
class ModelParameters:
    """Result of ``gnn_parameters``: number of layers, widths and further model options, by name.

    ``gnn_computation`` chooses the architecture that they are for.
    """

    options: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Computation:
    """Result of ``gnn_computation``: an architecture, or a user's layer."""

    architecture: str
    layer: type[ScatterGatherUpdate] | None = None


@dataclass(frozen=True, kw_only=True)
class OwnerFunction:
    """User's function that assigns vertices to devices, and that ``start_training`` calls."""

    function: Callable[[Graph, int], Any]


def graph_partition(
    partitioner: str | Callable[[Graph, int], Any], **options: Any
) -> OptionGroup[PartitionerConfig] | OwnerFunction:
    """Choose the assignment of vertices and edges to devices (``Graph_Partition``).

    Args:
        partitioner: a partitioner, as ``partitioner=`` on the command line; a published system that
            uses one, as ``algorithm=``; or a function of the graph and the number of devices that
            returns each vertex's device, ``[num_vertices]``.
        **options: options of the partitioner.

    Raises:
        ConfigError: there is no such partitioner or option.
    """
    if callable(partitioner):
        return OwnerFunction(function=partitioner)
    return choose("partitioner", partitioner, PartitionerConfig, options)


def feature_storing(storing: str | FeatureStoreConfig = "host") -> OptionGroup[FeatureStoreConfig]:
    """Choose where devices read features from (``Feature_Storing``).

    Args:
        storing: ``host`` for host memory, or options of a feature store. The partitioner ``p3``,
            along the feature dimension, implies its own storing: each device stores its columns.

    Raises:
        ConfigError: the name is unknown.
    """
    if isinstance(storing, FeatureStoreConfig):
        return _object_group("features", storing)
    check_choice("feature_storing", storing, ("host",))
    return OptionGroup(group="features", config=HostFeaturesConfig(), values={})


def gnn_parameters(L: int, hidden: int | Sequence[int], **options: Any) -> ModelParameters:
    """Choose the number of layers and their widths (``GNN_Parameters``).

    Args:
        L: number of layers.
        hidden: width of the L - 1 hidden layers, or a list of L - 1 equal widths.
        **options: further options of a model, such as ``dropout``.

    Raises:
        ConfigError: L is not positive, or the widths are not L - 1 equal numbers.
    """
    L, hidden = _plain(L), _plain(hidden)
    if not _is_count(L):
        raise ConfigError(f"L={brief(L)}: expected a number of layers from 1 on")
    widths = [hidden] * (L - 1) if _is_count(hidden) else hidden
    if not isinstance(widths, Sequence) or not all(map(_is_count, widths)) or len(widths) != L - 1:
        raise ConfigError(
            f"hidden={brief(hidden)}: expected a width for each of {L - 1} hidden layers"
        )
    if len(set(widths)) > 1:
        raise ConfigError(f"hidden={brief(widths)}: expected equal widths")
    width = {"hidden": widths[0]} if widths else {}
    return ModelParameters(options={"num_layers": L, **width, **options})


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def gnn_computation(
    architecture: str, layer: type[ScatterGatherUpdate] | None = None
) -> Computation:
    """Choose the computation of the layers (``GNN_Computation``).

    Args:
        architecture: ``GCN``, ``GraphSAGE``, ``GAT``, ``GIN`` or ``customize``.
        layer: with ``customize``, an importable class of layers with ``scatter``, ``gather`` and
            ``update``.

    Raises:
        ConfigError: there is no such architecture, or ``layer`` is missing or superfluous.
    """
    check_choice("gnn_computation", architecture, (*_ARCHITECTURES, "customize"))
    if (layer is not None) != (architecture == "customize"):
        expected = "a class" if layer is None else "None without customize"
        raise ConfigError(
            f"layer={brief(layer)}: expected {expected}, with gnn_computation={architecture}"
        )
    return Computation(architecture=architecture, layer=layer)


def gnn_model(computation: Computation, parameters: ModelParameters) -> OptionGroup[ModelConfig]:
    """Combine a computation and its parameters to a model (``GNN_Model``).

    Args:
        computation: result of ``gnn_computation``.
        parameters: result of ``gnn_parameters``.

    Raises:
        ConfigError: the architecture has no such option, or the layer's class lacks a function.
    """
    if not isinstance(computation, Computation):
        raise ConfigError(
            f"computation={brief(computation)}: expected the result of gnn_computation"
        )
    if not isinstance(parameters, ModelParameters):
        raise ConfigError(f"parameters={brief(parameters)}: expected the result of gnn_parameters")
    architecture = _ARCHITECTURES.get(computation.architecture, "sage")
    options = parameters.options
    builtin: OptionGroup[ModelConfig] = choose("model", architecture, ModelConfig, options)
    layer = computation.layer
    if layer is None:
        return builtin
    shared = {field.name: getattr(builtin.config, field.name) for field in fields(LayeredModel)}
    custom = Custom(functions=layer, **shared)
    values = {name: builtin.values[name] for name in shared}
    return replace(builtin, config=custom, values={"_target_": class_path(layer), **values})


def device_metadata(
    devices: str | Sequence[str | Mapping[str, Any]], **options: Any
) -> OptionGroup[DevicePlanConfig]:
    """Choose the devices that train: a shipped device plan, or a kind or options for each device.

    ``options`` are further options of the plan, such as ``split``. ConfigError: one is invalid.
    """
    if isinstance(devices, str):
        return choose("device_plan", devices, DevicePlanConfig, options)
    if not isinstance(devices, Sequence) or not all(
        isinstance(device, (str, Mapping)) for device in devices
    ):
        raise ConfigError(
            f"platform_metadata={brief(devices)}: expected a device plan, or a kind or mapping for "
            "each device"
        )
    listed = [device if isinstance(device, str) else dict(device) for device in devices]
    return choose("device_plan", "cpu", DevicePlanConfig, {"devices": listed, **options})


def choose_module(
    module: Callable[..., Any], arguments: Mapping[str, Any], options: Mapping[str, Any]
) -> OptionGroup[ModelConfig]:
    """Choose a user's module, as ``model=custom model.module=...`` on the command line.

    ``module`` is a class, a function that returns a module, or a module that is already built.
    ``arguments`` are arguments of the class's constructor by name, ``options`` further options of
    ``model=custom`` by dotted name. ConfigError if an option is invalid.
    """
    values = {name.removeprefix("model."): value for name, value in options.items()}
    values |= {"module": name_of_code(module), "arguments": dict(arguments)}
    group = choose("model", "custom", ModelConfig, values)
    assert isinstance(group.config, CustomModel)
    return replace(group, config=replace(group.config, module=module))
