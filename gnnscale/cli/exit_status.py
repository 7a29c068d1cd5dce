"""One-line messages for errors of Hydra, and for SIGBUS on mapped files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from gnnscale.cli.arguments import explain_missing_plugin
from gnnscale.core import address_space_reason, brief, explain, suggestion
from gnnscale.core.config.typed import unknown_option


def name_lost_files() -> None:
    """Install a SIGBUS handler that names the file if a mapped file became shorter.

    Its module imports NumPy. Under a limit on address space OpenBLAS gets one thread, since the
    stacks of more threads may not fit; torch computes the products anyway.
    """
    name = "OPENBLAS_NUM_THREADS"
    user_value = os.environ.get(name)
    if address_space_reason():
        os.environ.setdefault(name, "1")
    from gnnscale.ops import end_on_bus_error

    if user_value is None:
        os.environ.pop(name, None)

    reason = b": a mapped file became shorter, or its disk fails or is full\n"
    end_on_bus_error(descriptor=2, after=reason, status=1)


def explain_hydra(error: Exception) -> str:
    """Return the message for any exception of Hydra during composition."""
    from hydra.errors import MissingConfigException
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

    message = explain(error)
    if message is not None:
        return message
    if isinstance(error, MissingConfigException):
        return _explain_missing(error)
    if isinstance(error, RecursionError):
        return "the options refer to each other in a circle, or are nested too deeply"
    cause = error.__cause__ or error
    if isinstance(cause, OSError):
        return explain(cause) or str(cause)
    if isinstance(cause, (ConfigAttributeError, ConfigKeyError)):
        return unknown_option(brief(cause.full_key), _options(cause))
    if isinstance(cause, OmegaConfBaseException):
        # Later lines only repeat the key and its type.
        lines = str(cause).strip().splitlines()[:1]
    else:
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    reason = " ".join(lines) or type(cause).__name__
    if isinstance(cause, LookupError):
        reason = f"{type(cause).__name__}: {reason}"
    if missing := re.match(r"Could not override '([^']*)'\. No match in the defaults", reason):
        return f"{brief(missing[1])}: this command has no such group of options"
    if several := re.match(r"Ambiguous value for argument '(([^'=]*)=([^']*))'", reason):
        return (
            f"{brief(several[1])}: add -m to run a sweep over these values, or write "
            f"{brief(several[2])}=[{brief(several[3])}] for a list"
        )
    key = getattr(cause, "full_key", None)
    return f"{key}: {reason}" if key and not reason.startswith(str(key)) else reason


def _explain_missing(error: Any) -> str:
    config = str(error.missing_cfg_file)
    group, _, name = config.rpartition("/")
    if (missing := explain_missing_plugin(group, name)) is not None:
        return missing
    if not error.options:
        return f"{config}: no such configuration"
    options = sorted(error.options)
    guess = suggestion(name, options) or f"; there are {', '.join(options)}"
    return f"{group}={name}: no such {group}{guess}"


def _options(error: Any) -> list[str]:
    """Return all dotted options of the configuration that lacks a key."""
    node = error.parent_node
    while node is not None and node._get_parent() is not None:
        node = node._get_parent()
    if node is None:
        return []
    from omegaconf import OmegaConf

    plain: Any = OmegaConf.to_container(node, resolve=False)
    if not isinstance(plain, dict):
        return []
    plain.pop("hydra", None)
    return list(_dotted(plain, ""))


def _dotted(node: Any, prefix: str) -> Iterator[str]:
    for key, value in node.items():
        if key != "_target_":
            yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{key}.")
