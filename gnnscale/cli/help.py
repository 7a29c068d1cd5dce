"""``gnnscale COMMAND --help``: every option with its value and meaning, by groups.

The meanings are those of the docstrings of the options' classes. Importing these would import
torch, so ``scripts/tools/make_docs.py`` writes them to ``meanings.json``.
"""

import json
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from gnnscale.core.config.compose import compose, config_groups
from gnnscale.core.errors import ConfigError, nearest, shown

#: Width of the column of names and values, and that of a line at most.
_NAMES, _MAX_WIDTH = 38, 110


def help_text(command: str, config: str, overrides: Sequence[str], topics: Sequence[str]) -> str:
    """Return the help of a command.

    Args:
        config: name of its configuration.
        overrides: options as typed; those that they choose are shown.
        topics: groups to show alone, with what each choice is; all groups if empty.

    Raises:
        ConfigError: a topic is no group of the command.
        Exception: what Hydra raises when it does not take the overrides.
    """
    options, hydra = compose(config, list(overrides))
    meanings = json.loads((resources.files("gnnscale.cli") / "meanings.json").read_text())
    known = config_groups()
    chosen = {
        group: hydra.hydra.runtime.choices[group]
        for group in known
        if group in hydra.hydra.runtime.choices
    }
    for topic in topics:
        if topic not in chosen:
            guess = nearest(topic, chosen) or f"; there are {', '.join(sorted(chosen))}"
            raise ConfigError(f"{shown(topic)}: this command has no such group of options{guess}")
    lines: list[str] = []
    if not topics:
        lines += [hydra.hydra.help.header.rstrip(), ""]
        lines += [*_own_options(command, options, chosen, meanings), ""]
    for group in topics or sorted(chosen):
        lines += _group(group, chosen[group], options, meanings, known[group], alone=bool(topics))
        lines.append("")
    if chosen and not topics:
        lines.append(f"gnnscale {command} --help GROUP shows one group, and what its choices are.")
    if not topics:
        lines.append(hydra.hydra.help.footer.rstrip())
    return "\n".join(lines).rstrip() + "\n"


def _own_options(
    command: str, options: Any, chosen: Mapping[str, str], meanings: Mapping[str, Any]
) -> Iterator[str]:
    """Options of the command itself; those that belong together have one meaning."""
    texts = meanings["commands"][command]
    yield "Options"
    for name in options:
        if name in chosen:
            continue
        yield from _with_meanings(_leaves(options, name), texts, 0)


def _group(
    group: str,
    choice: str,
    options: Any,
    meanings: Mapping[str, Any],
    names: Sequence[str],
    *,
    alone: bool,
) -> Iterator[str]:
    """The choices of a group, and the options of the one that is chosen."""
    yield f"{group}={choice}" if choice is not None else group
    if alone:
        for name in names:
            yield from _line(f"{group}={name}", meanings["choices"][group].get(name, ""))
        yield ""
    else:
        others = f"choices: {', '.join(names)}"
        yield from textwrap.wrap(others, _width(), initial_indent="  ", subsequent_indent="    ")
    node = options.get(group)
    target = node.get("_target_") if hasattr(node, "get") else None
    texts = meanings["classes"].get(target, {})
    if target is not None:
        yield from _with_meanings(_leaves(options, group), texts, len(group) + 1)


def _with_meanings(
    found: Iterable[tuple[str, Any]], texts: Mapping[str, str], skipped: int
) -> Iterator[str]:
    """Options with their meanings; those of one mapping may have one, at the first of them.

    Args:
        skipped: characters of the name of an option that ``texts`` leaves out.
    """
    explained = set()
    for option, value in found:
        name = option[skipped:]
        block = name.partition(".")[0]
        meaning = texts.get(name) or ("" if block in explained else texts.get(block, ""))
        explained.add(block)
        yield from _line(f"{option}={_written(value)}", meaning)


def _leaves(options: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Options below ``name`` and their values; lists and what they hold stay in one piece."""
    from omegaconf import DictConfig, OmegaConf

    if OmegaConf.is_missing(options, name):
        yield name, "needed"
        return
    value = options[name]
    if not isinstance(value, DictConfig) or not value:
        plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        yield name, plain
        return
    for each in value:
        if each != "_target_":
            yield from ((f"{name}.{rest}", found) for rest, found in _leaves(value, str(each)))


def _line(left: str, meaning: str) -> Iterator[str]:
    """An option or a choice, and beside it what it means; below if there is no room beside."""
    left = f"  {left}"
    beside = textwrap.wrap(meaning, max(_width() - _NAMES, 30)) or [""]
    if len(left) > _NAMES - 2:
        yield left
        left = ""
    for line in beside:
        if left or line:
            yield f"{left:<{_NAMES}}{line}".rstrip()
        left = ""


def _written(value: Any) -> str:
    """A value as it is typed."""
    text = json.dumps(value, separators=(",", ":"), default=str)
    return shown(text.replace('"', ""))


def _width() -> int:
    return min(shutil.get_terminal_size((_MAX_WIDTH, 24)).columns, _MAX_WIDTH)
