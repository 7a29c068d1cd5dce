"""Errors that the user can mend, each in one line."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterator
from typing import Any

from gnnscale.config import ConfigError, unknown_option
from gnnscale.graph import GraphError

__all__ = ["explain"]

#: What a full or protected disk answers.
_OS_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EFBIG)

#: Of gnnscale.runtime, which imports torch and is not to be imported for this.
_WORKER_ERRORS = ("WorkerError", "PeerLostError")


def explain(error: BaseException) -> str | None:
    """Return one line for an error that the user can mend, None for one of the program's."""
    from hydra.errors import HydraException, MissingConfigException, OverrideParseException
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

    cause = error.__cause__
    if isinstance(error, (ConfigError, GraphError)) or type(error).__name__ in _WORKER_ERRORS:
        return str(error)
    if isinstance(error, OSError) and error.errno in _OS_ERRORS:
        return f"{error.filename or 'output'}: {error.strerror}"
    if isinstance(error, MissingConfigException):
        return _explain_missing(error)
    if isinstance(error, OverrideParseException):
        return f"{error.override}: cannot be read as an option, write option=value"
    if isinstance(cause, (ConfigAttributeError, ConfigKeyError)):
        return unknown_option(str(cause.full_key), _options(cause))
    if isinstance(error, (HydraException, OmegaConfBaseException)):
        reason = str(cause or error).strip().splitlines()[0]
        key = getattr(cause or error, "full_key", None)
        return f"{key}: {reason}" if key and not reason.startswith(str(key)) else reason
    return None


def _explain_missing(error: Any) -> str:
    wanted = str(error.missing_cfg_file)
    group, _, name = wanted.rpartition("/")
    if not error.options:
        return f"{wanted}: no such configuration"
    options = sorted(error.options)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    guess = f", did you mean {close[0]!r}?" if close else f"; there are {', '.join(options)}"
    return f"{group}={name}: no such {group}{guess}"


def _options(error: Any) -> list[str]:
    """All dotted options of the configuration in which a key was not found."""
    node = error.parent_node
    while node is not None and node._get_parent() is not None:
        node = node._get_parent()
    if node is None:
        return []
    from omegaconf import OmegaConf

    plain: Any = OmegaConf.to_container(node, resolve=False)
    plain.pop("hydra", None)
    return list(_dotted(plain, ""))


def _dotted(node: Any, prefix: str) -> Iterator[str]:
    for key, value in node.items():
        if key != "_target_":
            yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{key}.")
