"""Imports on first use: exported names of a package, and optional packages."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any


def lazy_names(package: str, exports: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for ``package`` that imports an exported name on first use.

    ``exports`` has the names of each module, separated by spaces.
    """
    modules = {name: module for module, names in exports.items() for name in names.split()}

    def import_name(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return import_name


def import_dgl() -> Any:
    """Return the module ``dgl``; ImportError, with a hint to install it, if it is missing."""
    try:
        import dgl
    except ImportError:
        raise ImportError("DGL is not installed; pip install '.[dgl]'") from None
    return dgl


class _Package(ModuleType):
    """Stand-in for a package; it imports the package when a name of it is first used."""

    def __getattr__(self, name: str) -> Any:
        package = import_module(self.__name__)
        if not hasattr(package, name):
            import_module(f"{self.__name__}.{name}")
        return getattr(package, name)


#: It takes a while to import, and a run whose store exists needs none.
if TYPE_CHECKING:
    import pyarrow
else:
    pyarrow = _Package("pyarrow")
