"""Lazy exports: a package imports the module of an exported name on first use of the name."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, exports: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package that imports exported names on first use.

    Args:
        package: name of the package.
        exports: names, separated by spaces, by the module that defines them.
    """
    modules = {name: module for module, names in exports.items() for name in names.split()}

    def import_name(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return import_name
