import json
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from tools import build_wheels

VERSION = ".".join(map(str, sys.version_info[:2]))


def program(folder: Path, name: str, text: str) -> Path:
    """Write a shell script, which stands for an interpreter, and return its path."""
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def interpreter(folder: Path, name: str, **differences: object) -> Path:
    """Write what describes itself as Python 3.10, but for ``differences``."""
    description = {
        "version": "3.10",
        "suffix": ".cpython-310-x86_64-linux-gnu.so",
        "headers": True,
        "free_threaded": False,
        "has_backend": False,
    }
    return program(folder, name, f"echo '{json.dumps(description | differences)}'")


@pytest.fixture(autouse=True)
def only_named_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))


def test_the_running_interpreter_is_found() -> None:
    found = build_wheels.find(VERSION)
    assert isinstance(found, build_wheels.Interpreter)
    assert found.path == Path(sys.executable)
    assert found.suffix == sysconfig.get_config_var("EXT_SUFFIX")


def test_a_named_interpreter_comes_before_that_of_the_path(tmp_path: Path) -> None:
    other = interpreter(tmp_path, "other", version="3.14")
    named = interpreter(tmp_path, "named")
    on_path = interpreter(tmp_path, "python3.10")
    for arguments, expected in (((other, named), named), ((other,), on_path)):
        found = build_wheels.find("3.10", arguments)
        assert isinstance(found, build_wheels.Interpreter)
        assert found.path == expected


def test_an_interpreter_of_pyenv_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "pyenv" / "versions" / "3.10.13" / "bin"
    folder.mkdir(parents=True)
    expected = interpreter(folder, "python3.10")
    # A shim, of a version that is not selected.
    program(tmp_path, "python3.10", "exit 127")
    found = build_wheels.find("3.10")
    assert isinstance(found, build_wheels.Interpreter)
    assert found.path == expected


@pytest.mark.parametrize(
    ("differences", "reason"),
    [
        ({"headers": False}, "has no headers (Python.h)"),
        ({"free_threaded": True}, "is a free-threaded Python"),
    ],
)
def test_an_interpreter_that_cannot_be_built_for_says_why(
    tmp_path: Path, differences: dict[str, object], reason: str
) -> None:
    path = interpreter(tmp_path, "python3.10", **differences)
    found = build_wheels.find("3.10")
    assert isinstance(found, str)
    assert found.startswith(f"{path} {reason}")


def test_a_version_without_an_interpreter_names_the_option(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_wheels, "find_spec", lambda name: True)
    missing = next(version for version in build_wheels.VERSIONS if version != VERSION)
    assert build_wheels.main(["--only", missing]) == 1
    said = "not built: no interpreter found; --python PATH names one"
    assert said in capsys.readouterr().out


def test_a_wheel_of_another_version_is_refused(tmp_path: Path) -> None:
    python = build_wheels.find(VERSION)
    assert isinstance(python, build_wheels.Interpreter)
    name = f"gnnscale/ops/_native{python.suffix}"
    wheel = tmp_path / "gnnscale-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("gnnscale/ops/_native.cpython-399.so", b"")
    with pytest.raises(build_wheels.BuildError, match="has no gnnscale/ops/_native"):
        build_wheels.check_loads(wheel, python)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(name, b"no library")
    with pytest.raises(build_wheels.BuildError, match="ImportError"):
        build_wheels.check_loads(wheel, python)


def test_the_versions_are_those_of_the_package() -> None:
    text = (build_wheels.ROOT / "pyproject.toml").read_text()
    first, last = build_wheels.VERSIONS[0], build_wheels.VERSIONS[-1]
    major, minor = last.split(".")
    assert f'requires-python = ">={first},<{major}.{int(minor) + 1}"' in text
    digits = ",".join(version.split(".")[1] for version in build_wheels.VERSIONS)
    assert f'build = "cp3{{{digits}}}-manylinux_x86_64"' in text
