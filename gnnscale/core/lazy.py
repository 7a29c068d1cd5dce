"""Imports on first use: exported names of a package, and optional packages."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


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
        raise ImportError("DGL is not installed; pip install 'gnnscale[dgl]'") from None
    return dgl
