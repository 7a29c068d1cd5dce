"""Names and places that options of datasets give: checked and expanded."""

import re
from pathlib import Path

from gnnscale.core import ConfigError, GraphError, brief
from gnnscale.core.artifact.files import check_store_directory
from gnnscale.core.files import expanded
from gnnscale.data.storage import remote

#: Names of datasets become folder names and parts of URLs.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


def check_places(name: str, *, raw: str | None, store: str | None) -> None:
    """Raise ConfigError unless the name of a dataset, ``raw`` and ``store`` are valid."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise ConfigError(
            f"dataset.name={brief(name)}: expected a name, not a path: up to 100 letters "
            "from a to z, digits and the signs . _ + -, a letter or digit first"
        )
    for option, value in (("raw", raw), ("store", store)):
        if value is not None and (not value or "\0" in value):
            raise ConfigError(f"dataset.{option}={brief(value)}: not a path")
    if raw is not None and remote.is_remote(raw):
        remote.check_address(raw)
    if store is not None:
        check_store_directory(store)


def existing_path(name: str, option: str) -> Path:
    """Return the path that an ``option`` names; GraphError: it does not exist."""
    path = expand(name, option)
    try:
        path.stat()
    except FileNotFoundError:
        raise GraphError(f"{option}={name}: no such file or folder") from None
    except OSError as error:
        raise GraphError(f"{option}={name}: {error.strerror}") from None
    return path


def expand(name: str, option: str) -> Path:
    """Return the path that an ``option`` names, ~ expanded; ConfigError: an unknown ~user."""
    try:
        return expanded(name)
    except RuntimeError as error:
        raise ConfigError(f"{option}={name}: {error}") from None
