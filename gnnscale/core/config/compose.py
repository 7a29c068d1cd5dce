"""Composition of options from ``gnnscale/configs`` by Hydra, which is imported only for it."""

import copy
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from gnnscale.core import ConfigError, brief, usable_cores
from gnnscale.core.config import user_code
from gnnscale.core.config.yaml_file import escaped

if TYPE_CHECKING:
    from omegaconf import DictConfig


CONFIGS = "gnnscale.configs"

#: Provider of this package's entries in Hydra's ConfigStore.
_PROVIDER = "gnnscale"
#: Hydra's state is process-wide, so one thread composes at a time.
_COMPOSING = threading.RLock()


def register_resolvers() -> None:
    """Register the resolver of ``${usable_cores:}``, which options may refer to."""
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("usable_cores", usable_cores, replace=True)


@contextmanager
def separate_hydra() -> Iterator[None]:
    """Give the ``with`` block a Hydra state of its own, and restore the program's state at its end.

    The program may be a Hydra application. The block starts without its ``GlobalHydra``,
    ``HydraConfig`` and version base, with copies of its resolvers and ``ConfigStore``, the latter
    without the program's configurations, whose names could collide with options. References must be
    resolved within the block. Other threads wait for its end.
    """
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.core.singleton import Singleton
    from hydra.version import VersionBase
    from omegaconf.basecontainer import BaseContainer

    with _COMPOSING:
        instances, resolvers = Singleton._instances, BaseContainer._resolvers
        replaced: tuple[type, ...] = (GlobalHydra, HydraConfig, VersionBase)
        separate = {cls: object for cls, object in instances.items() if cls not in replaced}
        if ConfigStore in separate:
            program: Any = separate[ConfigStore]
            separate[ConfigStore] = store = copy.copy(program)
            store.repo = copy.deepcopy(_without_program(program.repo))
        Singleton._instances, BaseContainer._resolvers = separate, dict(resolvers)
        try:
            yield
        finally:
            Singleton._instances, BaseContainer._resolvers = instances, resolvers


def _without_program(repo: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a ``ConfigStore`` that Hydra, its plugins or this package stored."""
    entries: dict[str, Any] = {}
    for name, entry in repo.items():
        if isinstance(entry, dict):
            entries[name] = entry if name == "hydra" else _without_program(entry)
        elif entry.provider in ("hydra", _PROVIDER):
            entries[name] = entry
    return entries


def compose(
    name: str, overrides: Sequence[str] = (), *, directory: str | None = None
) -> "tuple[DictConfig, DictConfig]":
    """Compose the options of a command, or of a configuration in Hydra's store, called ``name``.

    Returns the options, and a mapping with Hydra's settings under ``hydra``. The run ``directory``
    may refer to options, and is resolved; None: Hydra's default. ConfigError if it refers to an
    unknown option; any exception if Hydra refuses the overrides.
    """
    import hydra
    from hydra.types import RunMode
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    register_resolvers()
    with hydra.initialize_config_module(CONFIGS, version_base="1.3"):
        node = hydra.compose(name, list(overrides), return_hydra_config=True)
    OmegaConf.set_struct(node, False)
    settings = node.hydra
    settings.mode = RunMode.RUN
    if directory is not None:
        settings.run.dir = directory
    try:
        settings.run.dir = escaped(str(settings.run.dir or ""))
    except OmegaConfBaseException as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"output={brief(directory)}: {brief(reason)}") from None
    hydra_node = OmegaConf.masked_copy(node, "hydra")
    del node["hydra"]
    return node, hydra_node


def store(name: str, values: Mapping[str, Any], **location: str) -> None:
    """Register ``values`` as configuration ``name`` of a ``group`` or ``package`` of Hydra.

    A launcher's processes get it, too.
    """
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name, values, provider=_PROVIDER, **location)


def store_code(group: str, name: str) -> None:
    """Import a user's class, ``FILE.py:NAME`` or ``MODULE:NAME``, and make it a choice."""
    user_code.allow([name])
    values = user_code.default_options(name, group=group)
    # Hydra treats the name as a path.
    *folders, last = (part for part in name.split("/") if part)
    store(last, values, group="/".join([group, *folders]))


def resolved_now(folder: str) -> str | None:
    """Return ``folder`` with ``${now:}`` replaced by the time; None: it refers to options."""
    from hydra.core.utils import setup_globals
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    setup_globals()
    try:
        return str(OmegaConf.create({"folder": folder}).folder)
    except OmegaConfBaseException:
        return None


@cache
def config_groups() -> dict[str, list[str]]:
    """Return the names of the packaged configurations by group."""
    folders = (folder for folder in resources.files(CONFIGS).iterdir() if folder.is_dir())
    return {
        folder.name: sorted(
            file.name[: -len(".yaml")] for file in folder.iterdir() if file.name.endswith(".yaml")
        )
        for folder in folders
    }
