import ast
import re
from graphlib import TopologicalSorter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import gnnscale

PACKAGE = Path(gnnscale.__file__).parent

#: Modules that see all options of a run: they compose its parts, or read and write its options.
#: Every other module gets a section of the options, or plain values.
SEE_RUN_CONFIG = {
    *("run/config.py", "cli/commands/train.py", "api/loaded_run.py", "api/trained_run.py"),
    *("inference/load_run.py", "inference/trained_model.py"),
    *("training/make_artifacts.py", "training/setup.py", "training/open_device.py"),
    *("training/launcher/launch.py", "training/launcher/serialization.py"),
}


def modules_with(pattern: str) -> set[str]:
    """Return the modules with a line that matches."""
    files = (path for path in PACKAGE.rglob("*.py") if re.search(pattern, path.read_text(), re.M))
    return {path.relative_to(PACKAGE).as_posix() for path in files}


def test_only_ops_imports_the_native_extension() -> None:
    users = modules_with(r"^\s*(from gnnscale\.ops import .*_native|.*gnnscale\.ops\._native)")
    assert {user.split("/")[0] for user in users} == {"ops"}


@pytest.mark.long
def test_imports_resolve() -> None:
    """In functions as well: packages that look names up hide a wrong one from type checkers."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gnnscale"):
                package = import_module(node.module)
                if node.module == "gnnscale.ops._native":
                    continue  # its stub also has types
                for each in node.names:
                    inner = f"{node.module}.{each.name}"
                    found = each.name == "*" or hasattr(package, each.name) or find_spec(inner)
                    assert found, f"{path}: {inner}"


@pytest.mark.long
def test_imports_have_no_circle() -> None:
    """Those in functions, and those for types alone, count as well.

    The package itself names what it exports, and imports that when it is first used.
    """
    files = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
        for path in PACKAGE.rglob("*.py")
    }
    modules = {name.removesuffix(".__init__"): path for name, path in files.items()}
    imported: dict[str, set[str]] = {}
    for name, path in modules.items():
        found = imported.setdefault(name, set())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module in modules:
                inner = {f"{node.module}.{each.name}" for each in node.names}
                found |= (inner & modules.keys()) or {node.module}
    del imported["gnnscale"]
    # Raises CycleError, which names the modules of a circle.
    TopologicalSorter(imported).prepare()


def test_few_modules_see_all_options() -> None:
    assert modules_with(r"\bRunConfig\b") == SEE_RUN_CONFIG
