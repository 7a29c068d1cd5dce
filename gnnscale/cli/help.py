"""Text of ``gnnscale COMMAND --help``: every option with its value and meaning, by group.

``scripts/tools/make_docs.py`` writes meanings to ``meanings.json``: their classes import torch.
"""

import json
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from gnnscale.core.config.compose import compose, config_groups
from gnnscale.core.errors import ConfigError, brief, suggestion

#: Width of the column of names and values, and maximum width of a line.
_NAMES, _MAX_WIDTH = 38, 110


def help_text(command: str, config: str, overrides: Sequence[str], topics: Sequence[str]) -> str:
    """Return the help of a command: its options, with values from ``config`` and ``overrides``.

    ``topics`` are groups to show, with a description of each choice; all groups if empty.
    ConfigError if a topic is not a group of the command.
    """
    options, hydra = compose(config, list(overrides))
    meanings = json.loads((resources.files("gnnscale.cli") / "meanings.json").read_text())
    groups = config_groups()
    choices = hydra.hydra.runtime.choices
    chosen = {group: choices[group] for group in groups if group in choices}
    for topic in topics:
        if topic not in chosen:
            guess = suggestion(topic, chosen) or f"; there are {', '.join(sorted(chosen))}"
            raise ConfigError(f"{brief(topic)}: this command has no such group of options{guess}")
    lines: list[str] = []
    if not topics:
        lines += [hydra.hydra.help.header.rstrip(), ""]
        texts = meanings["commands"][command]
        names = [str(name) for name in options if name not in chosen]
        leaves = (leaf for name in names for leaf in _leaves(options, name))
        lines += ["Options", *_with_meanings(leaves, texts, 0), ""]
    for group in topics or sorted(chosen):
        lines.append(group if chosen[group] is None else f"{group}={chosen[group]}")
        texts = meanings["choices"][group] if topics else None
        lines += _choices(group, groups[group], texts)
        lines += [*_group_options(group, options, meanings), ""]
    if chosen and not topics:
        lines.append(f"gnnscale {command} --help GROUP shows one group, and what its choices are.")
    if not topics:
        lines.append(hydra.hydra.help.footer.rstrip())
    return "\n".join(lines).rstrip() + "\n"


def _choices(group: str, names: Sequence[str], texts: Mapping[str, str] | None) -> Iterator[str]:
    """Yield lines with the choices of a group, each with its meaning in ``texts``, if any."""
    if texts is None:
        text = f"choices: {', '.join(names)}"
        yield from textwrap.wrap(text, _width(), initial_indent="  ", subsequent_indent="    ")
        return
    for name in names:
        yield from _line(f"{group}={name}", texts.get(name, ""))
    yield ""


def _group_options(group: str, options: Any, meanings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of help about the options of a group, which are those of its chosen class."""
    node = options.get(group)
    target = node.get("_target_") if hasattr(node, "get") else None
    texts = meanings["classes"].get(target, {})
    if target is not None:
        yield from _with_meanings(_leaves(options, group), texts, len(group) + 1)


def _with_meanings(
    leaves: Iterable[tuple[str, Any]], texts: Mapping[str, str], skipped: int
) -> Iterator[str]:
    """Yield the lines of help about options, given by name and value, with meanings.

    ``texts`` has those by name without the first ``skipped`` characters.
    """
    explained = set()
    for option, value in leaves:
        name = option[skipped:]
        block = name.partition(".")[0]
        # A mapping's meaning stands at its first option.
        meaning = texts.get(name) or ("" if block in explained else texts.get(block, ""))
        explained.add(block)
        yield from _line(f"{option}={_written(value)}", meaning)


def _leaves(options: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each option below ``name``, ``required`` if the user must set it."""
    from omegaconf import DictConfig, OmegaConf

    if OmegaConf.is_missing(options, name):
        yield name, "required"
        return
    value = options[name]
    if not isinstance(value, DictConfig) or not value:
        plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        yield name, plain
        return
    for key in value:
        if key != "_target_":
            yield from ((f"{name}.{leaf}", plain) for leaf, plain in _leaves(value, str(key)))


def _line(option: str, meaning: str) -> Iterator[str]:
    """Yield the lines of an option and its meaning in two columns."""
    name = f"  {option}"
    lines = textwrap.wrap(meaning, max(_width() - _NAMES, 30)) or [""]
    if len(name) > _NAMES - 2:  # too long for its column
        yield name
        name = ""
    for line in lines:
        if name or line:
            yield f"{name:<{_NAMES}}{line}".rstrip()
        name = ""


def _written(value: Any) -> str:
    """Return a value as typed on the command line."""
    return brief(json.dumps(value, separators=(",", ":"), default=str).replace('"', ""))


def _width() -> int:
    return min(shutil.get_terminal_size((_MAX_WIDTH, 24)).columns, _MAX_WIDTH)
