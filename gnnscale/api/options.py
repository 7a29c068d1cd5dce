"""Options of a run, chosen group by group; their defaults are those of ``gnnscale/configs``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gnnscale.core import ConfigError, check_choice, shown
from gnnscale.model.custom import Custom
from gnnscale.options.compose import compose, config_groups
from gnnscale.options.config import typed

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
class Choice(Generic[T]):
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
    if not isinstance(value, Choice) or value.group != group:
        raise ConfigError(f"{argument}={shown(value)}: must be what {_GIVEN_BY[group]} returns")


def choose(group: str, name: str, base: type[Any], options: Mapping[str, Any]) -> Choice[Any]:
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
    node = compose("train", [f"{group if name in known else 'algorithm'}={name}"])[0][group]
    for option, value in options.items():
        _set(node, option, value)
    config = typed(node, base, group=group)
    values: Any = OmegaConf.to_container(node, resolve=True)
    return Choice(group=group, config=config, values=values)


def compose_run(
    chosen: Sequence[Choice[Any]], asked: Mapping[str, Any]
) -> tuple[DictConfig, DictConfig]:
    """Return the options of a run, and Hydra's own, which name a new run directory."""
    given = {each.group for each in chosen}
    for option in asked:
        group = option.partition(".")[0]
        if group in given:
            raise ConfigError(f"options: {shown(option)}: is given by {_GIVEN_BY[group]}")
    groups = config_groups()
    selected = {name: _several(name, value) for name, value in asked.items() if name in groups}
    for group, names in selected.items():
        for name in names:
            check_choice(group, name, groups[group])
    picked = [f"{group}={_written(group, names)}" for group, names in selected.items()]
    node, own = compose("train", picked)
    for option, value in asked.items():
        if option not in selected:
            _set(node, option, value)
            own.hydra.overrides.task.append(f"{option}={value}")
    for each in chosen:
        if each.group != "features":
            node[each.group] = each.values
        if isinstance(each.config, Custom):
            # A class of the user's, which options cannot name; it is put in its place afterwards.
            node[each.group]["_target_"] = "gnnscale.model.options.GraphSAGE"
    return node, own.hydra


def _several(group: str, value: Any) -> list[Any]:
    """Return the choices that a group is given, of which only loggers are several."""
    return list(value) if group == "logger" and isinstance(value, list | tuple) else [value]


def _written(group: str, names: Sequence[str]) -> str:
    return f"[{','.join(names)}]" if group == "logger" else names[0]


def name_of(found: type[Any]) -> str:
    """Return the dotted name of a class, as ``_target_`` gives it."""
    return f"{found.__module__}.{found.__qualname__}"


def _set(node: DictConfig, option: str, value: Any) -> None:
    """Set a dotted option; whether there is one of this name is for ``typed`` to say."""
    try:
        OmegaConf.update(node, option, value, merge=False, force_add=True)
    except OmegaConfBaseException as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{shown(option)}={shown(value)}: {reason}") from None
