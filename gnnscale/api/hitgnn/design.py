"""The design phase: partition, model and platform (HitGNN, Listing 1), and options of a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gnnscale.core import ConfigError, check_choice, shown
from gnnscale.core.config.compose import compose, config_groups, separate_hydra, store_code
from gnnscale.core.config.typed import typed
from gnnscale.core.config.untrusted import written
from gnnscale.core.config.user_code import GROUPS, importable_name, is_name
from gnnscale.features import FeatureStoreConfig, HostFeaturesConfig
from gnnscale.graph import Graph
from gnnscale.nn import ModelConfig
from gnnscale.nn.options import CustomModel, LayeredModel
from gnnscale.nn.scatter_gather import Custom, ScatterGatherUpdate
from gnnscale.partition import PartitionerConfig
from gnnscale.planner import DevicePlanConfig

T = TypeVar("T", covariant=True)

#: Which function gives a group of options.
_GIVEN_BY = {
    "dataset": "load_input_graph",
    "model": "gnn_model",
    "device_plan": "platform_metadata",
    "partitioner": "graph_partition",
    "features": "feature_storing",
}


@dataclass(frozen=True, kw_only=True)
class OptionGroup(Generic[T]):
    """Options of a run that belong together, checked.

    Attributes:
        group: the configuration group.
        config: the options.
        values: the same as plain values, as the run's ``config.yaml`` shows them.
    """

    group: str
    config: T
    values: dict[str, Any]


def check_made(argument: str, value: object, group: str) -> None:
    """Raise a ConfigError unless ``value`` is what the function for ``group`` returns."""
    if not isinstance(value, OptionGroup) or value.group != group:
        raise ConfigError(f"{argument}={shown(value)}: must be what {_GIVEN_BY[group]} returns")


def choose(group: str, name: str, base: type[Any], options: Mapping[str, Any]) -> OptionGroup[Any]:
    """Take a group's file, change ``options`` in it, and check the result.

    Args:
        group: the group.
        name: its file, or, for a partitioner, that of an algorithm which has one.
        base: the class wanted.
        options: by their names in the group.

    Raises:
        ConfigError: there is no such file or option, or a value is not allowed.
    """
    known = config_groups()[group]
    algorithms = config_groups()["algorithm"] if group == "partitioner" else []
    check_choice(group, name, sorted({*known, *algorithms}))
    with separate_hydra():
        node = compose("train", [f"{group if name in known else 'algorithm'}={name}"])[0][group]
        for option, value in options.items():
            _set(node, option, value)
        config = typed(node, base, group=group)
        values: Any = OmegaConf.to_container(node, resolve=True)
    return OptionGroup(group=group, config=config, values=values)


def compose_run(
    chosen: Sequence[OptionGroup[Any]], asked: Mapping[str, Any]
) -> tuple[DictConfig, DictConfig]:
    """Return the options of a run, and Hydra's own, which name a new run directory."""
    given = {each.group for each in chosen}
    for option in asked:
        group = option.partition(".")[0]
        if group in given:
            raise ConfigError(f"options: {shown(option)}: is given by {_GIVEN_BY[group]}")
    groups, asked = config_groups(), {name: _plain(value) for name, value in asked.items()}
    selected = {name: _several(name, value) for name, value in asked.items() if name in groups}
    for group, names in selected.items():
        for name in names:
            if group in GROUPS and is_name(name):
                store_code(group, name)
            else:
                check_choice(group, name, groups[group])
    picked = [f"{group}={_written(group, names)}" for group, names in selected.items()]
    node, own = compose("train", picked)
    for option, value in asked.items():
        if option not in selected:
            _set(node, option, value)
            own.hydra.overrides.task.append(f"{option}={written(value)}")
    for each in chosen:
        if each.group != "features":
            node[each.group] = each.values
        if isinstance(each.config, Custom):
            # A class of the user's, which options cannot name; it is put in its place afterwards.
            node[each.group]["_target_"] = "gnnscale.nn.options.GraphSAGE"
    return node, own.hydra


def _several(group: str, value: Any) -> list[Any]:
    """Return the choices that a group is given, of which only loggers are several."""
    return list(value) if group == "logger" and isinstance(value, list | tuple) else [value]


def _written(group: str, names: Sequence[str]) -> str:
    return f"[{','.join(names)}]" if group == "logger" else names[0]


def name_of(found: type[Any]) -> str:
    """Return the dotted name of a class, as ``_target_`` gives it."""
    return f"{found.__module__}.{found.__qualname__}"


def _plain(value: Any) -> Any:
    """Return an option with scalars of NumPy, and texts of an enumeration, as Python's own."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


def _set(node: DictConfig, option: str, value: Any) -> None:
    """Set a dotted option; whether there is one of this name is for ``typed`` to say."""
    try:
        OmegaConf.update(node, option, _plain(value), merge=False, force_add=True)
    except OmegaConfBaseException as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{shown(option)}={shown(value)}: {reason}") from None


#: Architectures by the names of the paper and of their classes, and their files in ``configs``.
_ARCHITECTURES = {"GCN": "gcn", "GraphSAGE": "sage", "GAT": "gat", "GIN": "gin"}


@dataclass(frozen=True, kw_only=True)
class ModelParameters:
    """What ``gnn_parameters`` returns: options of a model, whatever its architecture."""

    options: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Computation:
    """What ``gnn_computation`` returns: an architecture, or a user's layer."""

    architecture: str
    layer: type[ScatterGatherUpdate] | None = None


@dataclass(frozen=True, kw_only=True)
class OwnerFunction:
    """What ``graph_partition`` returns for a function of the user's."""

    function: Callable[[Graph, int], Any]


def graph_partition(
    partitioner: str | Callable[[Graph, int], Any], **options: Any
) -> OptionGroup[PartitionerConfig] | OwnerFunction:
    """Say which device has which vertices and edges (``Graph_Partition``).

    Args:
        partitioner: a partitioner, as ``partitioner=`` on the command line, or a published system
            that uses one, as ``algorithm=``; or a function of the graph and the number of devices
            that returns the device ``[num_vertices]`` of every vertex.
        **options: of the partitioner.

    Raises:
        ConfigError: there is no such partitioner or option.
    """
    if callable(partitioner):
        return OwnerFunction(function=partitioner)
    return choose("partitioner", partitioner, PartitionerConfig, options)


def feature_storing(storing: str | FeatureStoreConfig = "host") -> OptionGroup[FeatureStoreConfig]:
    """Say where devices read features from (``Feature_Storing``).

    Args:
        storing: ``host`` for host memory; or a store of one's own. A partition along the feature
            dimension (``p3``) brings its own storing: each device has its columns.

    Raises:
        ConfigError: nothing is called so.
    """
    if isinstance(storing, FeatureStoreConfig):
        values = {field.name: getattr(storing, field.name) for field in fields(storing)}
        values = {"_target_": name_of(type(storing)), **values}
        return OptionGroup(group="features", config=storing, values=values)
    check_choice("feature_storing", storing, ("host",))
    return OptionGroup(group="features", config=HostFeaturesConfig(), values={})


def gnn_parameters(L: int, hidden: int | Sequence[int], **options: Any) -> ModelParameters:
    """Give the number of layers and the widths between them (``GNN_Parameters``).

    Args:
        L: number of layers.
        hidden: features of the L - 1 hidden layers, all of one width.
        **options: other options of a model, such as ``dropout``.

    Raises:
        ConfigError: L is no number of layers, or the widths are not L - 1, or differ.
    """
    L, hidden = _plain(L), _plain(hidden)
    if not _is_count(L):
        raise ConfigError(f"L={shown(L)}: must be a number of layers, at least 1")
    widths = [hidden] * (L - 1) if _is_count(hidden) else hidden
    if not isinstance(widths, Sequence) or not all(map(_is_count, widths)) or len(widths) != L - 1:
        raise ConfigError(
            f"hidden={shown(hidden)}: must be one width for each of {L - 1} hidden layers"
        )
    if len(set(widths)) > 1:
        raise ConfigError(f"hidden={shown(widths)}: hidden layers must have one width")
    width = {"hidden": widths[0]} if widths else {}
    return ModelParameters(options={"num_layers": L, **width, **options})


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def gnn_computation(
    architecture: str, layer: type[ScatterGatherUpdate] | None = None
) -> Computation:
    """Choose what layers compute (``GNN_Computation``).

    Args:
        architecture: ``GCN``, ``GraphSAGE``, ``GAT``, ``GIN`` or ``customize``.
        layer: with ``customize``, a class of layers, whose ``scatter``, ``gather`` and ``update``
            are the user's. Workers import it by name.

    Raises:
        ConfigError: there is no such architecture, or a layer is missing or too many.
    """
    check_choice("gnn_computation", architecture, (*_ARCHITECTURES, "customize"))
    if (layer is not None) != (architecture == "customize"):
        needed = "a layer must be given" if layer is None else "allowed with customize alone"
        raise ConfigError(f"gnn_computation={architecture}, layer={shown(layer)}: {needed}")
    return Computation(architecture=architecture, layer=layer)


def gnn_model(computation: Computation, parameters: ModelParameters) -> OptionGroup[ModelConfig]:
    """Build a model of a computation and its parameters (``GNN_Model``).

    Args:
        computation: of ``gnn_computation``.
        parameters: of ``gnn_parameters``.

    Raises:
        ConfigError: an option is not one of the architecture, or the layer lacks a function.
    """
    if not isinstance(computation, Computation):
        raise ConfigError(f"computation={shown(computation)}: must be what gnn_computation returns")
    if not isinstance(parameters, ModelParameters):
        raise ConfigError(f"parameters={shown(parameters)}: must be what gnn_parameters returns")
    architecture = _ARCHITECTURES.get(computation.architecture, "sage")
    known: OptionGroup[ModelConfig] = choose("model", architecture, ModelConfig, parameters.options)
    layer = computation.layer
    if layer is None:
        return known
    shared = {field.name: getattr(known.config, field.name) for field in fields(LayeredModel)}
    custom = Custom(functions=layer, **shared)
    values = {name: known.values[name] for name in shared}
    return replace(known, config=custom, values={"_target_": name_of(layer), **values})


def device_metadata(
    devices: str | Sequence[str | Mapping[str, Any]], **options: Any
) -> OptionGroup[DevicePlanConfig]:
    """Name the devices that train; see ``platform_metadata``.

    Args:
        devices: a device plan that ships, as ``device_plan=`` on the command line; or for each
            device its kind, or a mapping of ``kind`` and that kind's options: its rates, and the
            bandwidth of its memory and of its link.
        **options: ``split``, the seeds of each device in a mini-batch.

    Raises:
        ConfigError: a device is neither a kind nor a mapping, or an option is not allowed.
    """
    if isinstance(devices, str):
        return choose("device_plan", devices, DevicePlanConfig, options)
    if not isinstance(devices, Sequence) or not all(
        isinstance(each, (str, Mapping)) for each in devices
    ):
        raise ConfigError(
            f"platform_metadata={shown(devices)}: must be a device plan, or a kind or mapping for "
            "each device"
        )
    listed = [each if isinstance(each, str) else dict(each) for each in devices]
    return choose("device_plan", "cpu", DevicePlanConfig, {"devices": listed, **options})


def own_module(
    module: type[Any] | torch.nn.Module, arguments: Mapping[str, Any], options: Mapping[str, Any]
) -> OptionGroup[ModelConfig]:
    """Choose ``module`` as ``model=custom model.module=...`` does on the command line.

    Args:
        module: a class of ``torch.nn.Module``, or a module that is built.
        arguments: of the class's constructor, by name.
        options: others of ``model=custom``, by their dotted names.

    Raises:
        ConfigError: there is no such option, a value is not allowed, or a function defines the
            class.
    """
    own = {name.removeprefix("model."): value for name, value in options.items()}
    own |= {"module": importable_name(module), "arguments": dict(arguments)}
    chosen = choose("model", "custom", ModelConfig, own)
    config = chosen.config
    assert isinstance(config, CustomModel)
    return replace(chosen, config=replace(config, module=module))
