"""Options from ``gnnscale/configs``, composed by Hydra: the one way, for command and program.

Hydra is imported when it composes: whoever names a group needs no Hydra.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from gnnscale.core import ConfigError, shown, usable_cores
from gnnscale.core.config import user_code

if TYPE_CHECKING:
    from omegaconf import DictConfig


CONFIGS = "gnnscale.configs"

#: Marks what this package keeps in Hydra's store.
_PROVIDER = "gnnscale"
#: Hydra's state belongs to the process: one thread composes at a time.
_COMPOSING = threading.RLock()


def register_resolvers() -> None:
    """Let options refer to ``${usable_cores:}``."""
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("usable_cores", usable_cores, replace=True)


@contextmanager
def separate_hydra() -> Iterator[None]:
    """Compose in a ``with`` block beside the program's own Hydra, which is restored at its end.

    A program that is a Hydra application has one ``GlobalHydra``, ``HydraConfig``, version base,
    ``ConfigStore`` and set of resolvers. The block begins without the first three, with a copy of
    the store that lacks the program's configurations, whose names may be those of options here,
    and with a copy of the resolvers. What is resolved is resolved in the block.
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
        separate = {cls: each for cls, each in instances.items() if cls not in replaced}
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
    kept: dict[str, Any] = {}
    for name, entry in repo.items():
        if isinstance(entry, dict):
            kept[name] = entry if name == "hydra" else _without_program(entry)
        elif entry.provider in ("hydra", _PROVIDER):
            kept[name] = entry
    return kept


def compose(
    name: str, overrides: Sequence[str] = (), *, directory: str | None = None
) -> tuple[DictConfig, DictConfig]:
    """Compose the options of a command, or of a configuration in Hydra's store.

    ``overrides`` are in Hydra's grammar; ``directory`` may refer to options. Returns the options,
    which take more names, and a mapping with Hydra's own under ``hydra``, its ``run.dir`` resolved.

    Raises:
        ConfigError: ``directory`` refers to an option that does not exist.
        Exception: what Hydra raises when it does not take the overrides.
    """
    import hydra
    from hydra.types import RunMode
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    register_resolvers()
    with hydra.initialize_config_module(CONFIGS, version_base="1.3"):
        node = hydra.compose(name, list(overrides), return_hydra_config=True)
    OmegaConf.set_struct(node, False)
    own = node.hydra
    own.mode = RunMode.RUN
    if directory is not None:
        own.run.dir = directory
    try:
        own.run.dir = str(own.run.dir or "")
    except OmegaConfBaseException as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"output={shown(directory)}: {shown(reason)}") from None
    own = OmegaConf.masked_copy(node, "hydra")
    del node["hydra"]
    return node, own


def store(name: str, values: Mapping[str, Any], **place: str) -> None:
    """Let Hydra find ``values``, here and in the processes of a launcher."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name, values, provider=_PROVIDER, **place)


def store_code(group: str, name: str) -> None:
    """Make a class of the user's, ``FILE.py:NAME`` or ``MODULE:NAME``, a choice of ``group``.

    The user has named it: it is imported, and options may name it from now on.

    Raises:
        ConfigError: it cannot be imported.
    """
    user_code.allow([name])
    values = user_code.default_options(name, group=group)
    # Hydra takes the name for a path.
    *folders, last = (each for each in name.split("/") if each)
    store(last, values, group="/".join([group, *folders]))


def resolved_now(folder: str) -> str | None:
    """Return the name of a folder with the time in it; None if it refers to options."""
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
    """Return the groups of options that ship, and the names in each."""
    folders = (each for each in resources.files(CONFIGS).iterdir() if each.is_dir())
    return {
        folder.name: sorted(
            file.name[: -len(".yaml")] for file in folder.iterdir() if file.name.endswith(".yaml")
        )
        for folder in folders
    }
