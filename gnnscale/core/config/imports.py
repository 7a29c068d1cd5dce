"""Whether other processes can import a module, and refusal of runs that an import starts."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec
from types import ModuleType

from gnnscale.core import ConfigError


def is_importable(module: ModuleType) -> bool:
    """Whether another process with this process's search path imports ``module`` by its name."""
    name = module.__name__
    if name == "__main__":
        return False
    spec, file = _find_spec(name), str(getattr(module, "__file__", None))
    if not file.endswith(".py"):  # an extension module or its part, if Python has the package
        return (spec or _find_spec(name.partition(".")[0])) is not None
    if spec is None or not spec.has_location:  # built into Python, whatever file it names
        return spec is not None
    return os.path.realpath(spec.origin or file) == os.path.realpath(file)


def _find_spec(name: str) -> ModuleSpec | None:
    """Return where Python finds module ``name``, as if it were not imported yet; None: nowhere."""
    package = name.rpartition(".")[0]
    path = getattr(sys.modules.get(package), "__path__", None) if package else None
    if package and path is None:
        return None
    for finder in sys.meta_path:
        with suppress(ImportError, AttributeError):  # an old finder
            if (spec := finder.find_spec(name, path)) is not None:
                return spec
    return None


class _Importing(threading.local):
    depth = 0  # number of imports of user code in progress


_IMPORTING = _Importing()


@contextmanager
def importing_user_code() -> Iterator[None]:
    """Let ``refuse_while_importing`` raise in this thread, within the ``with`` block."""
    _IMPORTING.depth += 1
    try:
        yield
    finally:
        _IMPORTING.depth -= 1


def refuse_while_importing() -> None:
    """Raise ConfigError if user code that is being imported starts a run, which would not end."""
    if _IMPORTING.depth:
        raise ConfigError(
            "starts a run whenever it is imported; start the run below "
            'if __name__ == "__main__":, or move the class to a file of its own'
        )
