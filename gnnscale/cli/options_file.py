"""Options in a user's file, ``config=FILE.yaml``, or in a run directory, ``config=RUN``.

A file is read and checked, and becomes an experiment in Hydra's ConfigStore. No text of it reaches
Hydra otherwise.
"""

import re
from collections.abc import Collection, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from gnnscale.cli import texts
from gnnscale.core import ConfigError, brief, suggestion
from gnnscale.core.config import (
    check_known,
    check_references,
    compose,
    current_path,
    escaped,
    option_names,
    read_yaml,
    user_code,
)
from gnnscale.core.config import run_directory as runs

_GROUP = re.compile(r"(?:override )?/?(\w+)", re.ASCII)
_NAME = re.compile(r"\w+", re.ASCII)
#: Entries beside ``config.yaml`` in a run directory.
_OF_RUN = (runs.COMPOSED, runs.METRICS_FILE, runs.SUMMARY_FILE, "checkpoints")


def packaged(name: str) -> Any:
    """Return the plain content of the packaged configuration ``configs/NAME.yaml``."""
    import yaml  # type: ignore[import-untyped]

    return yaml.safe_load((resources.files(compose.CONFIGS) / f"{name}.yaml").read_text())


@cache
def groups() -> frozenset[str]:
    """Return the names of the groups of ``train``."""
    entries = (entry for entry in packaged("train")["defaults"] if isinstance(entry, dict))
    keys = {name for entry in entries for name in entry if _NAME.fullmatch(name)}
    return frozenset(keys - {"experiment"})


@cache
def names() -> frozenset[str]:
    """Return the names of all top-level options of ``train``."""
    # ``algorithm`` only sets options of other groups.
    return frozenset({*groups(), *packaged("train")} - {"defaults", "hydra", "algorithm"})


def register(name: str, number: int, typed: Mapping[str, str]) -> str:
    """Return Hydra's name of the experiment ``name``: its own, or a new one for a user's file.

    A file, or the ``config.yaml`` of a run directory, is checked and registered; ``number`` makes
    the new name unique. ConfigError: it is not valid; or it is of a run, and names code that the
    options ``typed``, by dotted name, do not name.
    """
    experiments = compose.config_groups()["experiment"]
    if name in experiments:
        return name
    file = _file(name, experiments)
    try:
        values = read_yaml(file, raw=("defaults",), is_text=_is_text)
    except FileNotFoundError:
        raise ConfigError(f"config={brief(name)}: no such file") from None
    defaults = values.pop("defaults", None)
    _check_names(file, values)
    if file.name == runs.CONFIG_FILE and any((file.parent / name).exists() for name in _OF_RUN):
        # Imported here so that other commands start quickly.
        from gnnscale.run.config import check_stored_options

        check_stored_options(values, directory=file.parent, given=typed, code_alone=True)
        values = escaped(values)
    else:
        check_references(file, values, allowed=True)
    _allow_code(values)
    entries = [] if defaults is None else _defaults(file, defaults)
    staged = f"file{number}_" + re.sub(r"\W", "_", file.stem, flags=re.ASCII)[:40]
    entries += _register_groups(values, staged, entries)
    if entries:
        values = {"defaults": entries, **values}
    compose.store(staged, values, group="experiment", package="_global_")
    return staged


def _file(name: str, experiments: Collection[str]) -> Path:
    """Return the file that ``config=NAME`` means; ConfigError: it has no options."""
    file = Path(name)
    if file.is_dir():
        if (file / runs.CONFIG_FILE).is_file():
            return file / runs.CONFIG_FILE
        jobs = [job for job in file.glob(f"[0-9]*/{runs.CONFIG_FILE}") if job.is_file()]
        hint = f"; it holds a sweep, config={min(jobs).parent} is a job of it" if jobs else ""
        raise ConfigError(
            f"config={brief(name)}: expected FILE.yaml or a run directory, got a folder without "
            f"{runs.CONFIG_FILE}{hint}"
        )
    if file.suffix not in (".yaml", ".yml"):
        what = (
            "file or folder" if file.name != name else f"experiment{suggestion(name, experiments)}"
        )
        raise ConfigError(f"config={brief(name)}: no such {what}")
    return file


def _check_names(file: Path, values: dict[str, Any]) -> None:
    """Raise ConfigError, with the way to write it, for an unknown top-level key of ``values``.

    Also for a group that has anything but a mapping, such as a choice.
    """
    for key, value in values.items():
        setting = f"{key}: {brief(value)}"
        if (key in groups() or key == "experiment") and not isinstance(value, dict):
            hint = _choice_hint(value if key == "experiment" else f"{key}/{value}")
            raise ConfigError(f"{file}: {setting}: expected a mapping of options{hint}")
        meant = [] if key in names() else option_names.options_meant(key)
        written = [_nested(option, value) for option in meant if option != "experiment"]
        if written:
            raise ConfigError(
                f"{file}: {setting}: unknown option here; write {' or '.join(written)}"
            )
    check_known(file, values, names())


def _nested(option: str, value: Any) -> str:
    group, dot, name = option.partition(".")
    return f"{group}: {{{name}: {brief(value)}}}" if dot else f"{option}: {brief(value)}"


def _is_text(option: str) -> bool:
    """Whether an option of ``train`` is a text, or a list of texts."""
    return texts.kind_of(option, "", "train") in ("text", "word", "texts")


def _allow_code(values: Mapping[str, Any]) -> None:
    """Allow the classes of the user's that the groups in ``values`` name."""
    for group in user_code.GROUPS:
        options = values.get(group)
        target = options.get("_target_") if isinstance(options, dict) else None
        if user_code.is_name(target):
            user_code.allow([str(target)])


def _defaults(file: Path, entries: Any) -> list[Any]:
    """Check and return the defaults list in a user's file, and register user code that it chooses.

    A choice of a group always overrides the one of ``train``. ConfigError: an entry other than
    ``_self_``, an experiment, or a choice of a group.
    """
    allowed = f"'_self_', 'override /GROUP: NAME' with a group of {', '.join(sorted(groups()))}"
    if not isinstance(entries, list):
        hint = _choice_hint(entries) or f" of {allowed}"
        raise ConfigError(f"{file}: defaults={brief(entries)}: expected a list{hint}")
    checked: list[Any] = []
    for entry in entries:
        if isinstance(entry, str) and entry in ("_self_", *compose.config_groups()["experiment"]):
            checked.append(entry)
            continue
        pairs = [*entry.items()] if isinstance(entry, dict) and len(entry) == 1 else [("", "")]
        group, name = _GROUP.fullmatch(str(pairs[0][0])), pairs[0][1]
        is_code = group is not None and group[1] in user_code.GROUPS and user_code.is_name(name)
        named = is_code or (isinstance(name, str) and _NAME.fullmatch(name))
        if group is None or group[1] not in groups() or not named:
            hint = _choice_hint(entry) or f"; expected {allowed}"
            raise ConfigError(f"{file}: defaults: {brief(entry)}: not allowed{hint}")
        if is_code:
            compose.store_code(group[1], name)
        # Hydra has the algorithm behind it when it meets the file.
        prefix, suffix = ("", "@_global_") if group[1] == "algorithm" else ("override ", "")
        if any(f"{prefix}/{group[1]}{suffix}" in entry for entry in checked):
            raise ConfigError(f"{file}: defaults: {group[1]}: expected one choice, got several")
        checked.append({f"{prefix}/{group[1]}{suffix}": name})
    return checked


def _choice_hint(entry: Any) -> str:
    """Return the end of an error that says how ``entry``, a choice of a group, is written.

    Empty: no group has it.
    """
    group, _, name = str(entry).rpartition("/")
    if not group and name in compose.config_groups()["experiment"]:
        return f"; write defaults: [{name}]"
    having = [key for key in sorted(groups()) if name in compose.config_groups()[key]]
    written = [f"[override /{key}: {name}]" for key in having if group in ("", key)]
    return f"; write defaults: {' or '.join(written)}" if written else ""


def _register_groups(values: dict[str, Any], staged: str, chosen: list[Any]) -> list[Any]:
    """Register each group in ``values`` that has its class, and remove it there.

    Such options replace those of the default choice, or complete them if the class is the same; a
    typed choice replaces both. Returns the entries of a defaults list that choose them. Groups that
    the file's list, ``chosen``, overrides are left.
    """
    entries = []
    for group in [*values]:
        options = values[group]
        whole = isinstance(options, dict) and ("_target_" in options or group == "logger")
        is_chosen = any(f"override /{group}" in entry for entry in chosen)
        if group in groups() and whole and not is_chosen:
            default = _default_options(group)
            same = default.get("_target_") == current_path(str(options.get("_target_")))
            content = {**(default if same else {}), **values.pop(group)}
            compose.store(staged, content, group=group)
            entries.append({f"override /{group}": staged})
    return entries


def _default_options(group: str) -> dict[str, Any]:
    """Return the options of the choice of ``group`` that ``train`` has by default."""
    entries = (entry for entry in packaged("train")["defaults"] if isinstance(entry, dict))
    choice = next(entry[group] for entry in entries if group in entry)
    return dict(packaged(f"{group}/{choice}") or {})
