"""Every command of README.md runs without optional packages."""

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
import tomllib
from readme_commands import commands, failures, run_all

ROOT = Path(__file__).parents[1]

#: Hides packages from a process, and from those that it starts: as if they were not installed.
HIDING = """
import importlib.abc
import importlib.metadata
import sys

MODULES = {modules!r}
DISTRIBUTIONS = {distributions!r}


class Hiding(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MODULES:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


def from_name(name):
    if name.lower().replace("_", "-") in DISTRIBUTIONS:
        raise importlib.metadata.PackageNotFoundError(name)
    return found(name)


found = importlib.metadata.Distribution.from_name
importlib.metadata.Distribution.from_name = staticmethod(from_name)
sys.meta_path.insert(0, Hiding())
"""


def requirement_name(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def required_by(names: set[str]) -> set[str]:
    """Return ``names`` and all that they require, directly or not, without extras."""
    seen: set[str] = set()
    left = set(names)
    while left:
        name = left.pop()
        seen.add(name)
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        plain = (each for each in requirements if "extra ==" not in each)
        left |= {requirement_name(each) for each in plain} - seen
    return seen


def optional_packages() -> tuple[set[str], set[str]]:
    """Return the distributions that extras alone bring, and their modules."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plain = required_by({requirement_name(each) for each in project["dependencies"]})
    extras = project["optional-dependencies"].values()
    optional = {requirement_name(each) for extra in extras for each in extra} - plain
    optional -= {"gnnscale"}
    modules = {
        module
        for module, owners in metadata.packages_distributions().items()
        if all(requirement_name(owner) in optional for owner in owners)
    }
    # A namespace of several packages.
    return optional, modules | {"cuda"}


def test_commands_are_found() -> None:
    found = list(commands())
    assert ["gnnscale", "train"] in found
    assert {words[1] for words in found if words[0] == "gnnscale"} >= {
        *("train", "doctor", "simulate", "generate", "partition", "plan-cache"),
        *("predict", "export"),
    }
    assert any(words[0] == "torchrun" for words in found)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python before 3.11 has no tomllib")
def test_optional_packages_are_those_of_extras() -> None:
    distributions, modules = optional_packages()
    assert {"dgl", "torch-geometric", "cuda-core", "pymetis", "wandb"} <= distributions
    assert not {"torch", "numpy", "pyarrow", "networkx"} & distributions
    assert not {"torch", "numpy", "pyarrow", "networkx", "yaml"} & modules


@pytest.mark.integration
@pytest.mark.timeout(1800)
def test_every_command_runs_without_optional_packages(tmp_path: Path, test_data: Path) -> None:
    distributions, modules = optional_packages()
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    text = HIDING.format(modules=sorted(modules), distributions=sorted(distributions))
    (hidden / "sitecustomize.py").write_text(text)
    work = tmp_path / "work"
    work.mkdir()
    ended = run_all(
        work,
        bin_folder=Path(sys.executable).parent,
        data=test_data,
        environment={"PYTHONPATH": str(hidden)},
    )
    wrong = failures(ended, absent=sorted(modules))
    assert not wrong, "\n".join(f"{command}\n{text}" for command, text in wrong.items())
