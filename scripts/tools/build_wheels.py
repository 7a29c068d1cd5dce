"""Build a repaired wheel for each supported version of Python that this machine has.

    python scripts/tools/build_wheels.py                            # into dist/
    python scripts/tools/build_wheels.py --only 3.11
    python scripts/tools/build_wheels.py --python ~/python3.14/bin/python3.14
    python scripts/tools/build_wheels.py --packages FOLDER          # without a network

Interpreters are looked for at ``--python``, on PATH, in pyenv's folder and in that of manylinux
images. An interpreter that has scikit-build-core and pybind11 builds with those. For others pip
gets them from the package index, or from ``--packages``, which this fills:

    pip download -d FOLDER --python-version 3.10 --only-binary=:all: scikit-build-core pybind11

auditwheel and patchelf repair a wheel; the wheel's name then has the oldest glibc that it runs on.
Every version compiles its bindings, and those that pip gets the tools for share the kernels.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")

_DESCRIBE = """
import importlib.util as u, json, os, sys, sysconfig as s
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2],
    "suffix": s.get_config_var("EXT_SUFFIX"),
    "headers": os.path.isfile(os.path.join(s.get_path("include"), "Python.h")),
    "free_threaded": bool(s.get_config_var("Py_GIL_DISABLED")),
    "has_backend": all(u.find_spec(name) for name in ("scikit_build_core", "pybind11")),
}))
"""
_LOAD = """
import importlib.util as u, sys
spec = u.spec_from_file_location("_native", sys.argv[1])
spec.loader.exec_module(u.module_from_spec(spec))
"""


class BuildError(RuntimeError):
    """Error of a build. The message ends with what the failing tool printed."""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """Python that a wheel can be built for: it has headers, and a global interpreter lock."""

    path: Path
    version: str  #: "3.11"
    suffix: str  #: of extension modules
    has_backend: bool  #: whether it has scikit-build-core and pybind11


def examine(path: Path) -> Interpreter | str:
    """Return the interpreter at a path, or why no wheel can be built for it."""
    try:
        answer = subprocess.run([path, "-c", _DESCRIBE], capture_output=True, text=True, timeout=60)
        found = json.loads(answer.stdout)
        has_headers, is_free_threaded = found.pop("headers"), found.pop("free_threaded")
        interpreter = Interpreter(path=path, **found)
    except (OSError, ValueError, LookupError, TypeError, subprocess.TimeoutExpired):
        return f"{path} does not start as a Python interpreter"
    if is_free_threaded:
        return f"{path} is a free-threaded Python, which the extension does not support"
    if not has_headers:
        return f"{path} has no headers (Python.h): install its development package"
    return interpreter


def _candidates(version: str, named: Sequence[Path]) -> Iterator[Path]:
    """Yield the places of a version of Python, the preferred ones first; some may not exist."""
    yield from named
    yield Path(sys.executable)
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))
    digits = version.replace(".", "")
    yield Path(f"/opt/python/cp{digits}-cp{digits}/bin/python")


def find(version: str, named: Sequence[Path] = ()) -> Interpreter | str:
    """Return the interpreter of a version ("3.11"), or why there is none.

    Args:
        version: of the language, without the last number.
        named: interpreters, of any version, that come first.
    """
    reason = "no interpreter found; --python PATH names one"
    for path in _candidates(version, named):
        if path.exists():
            found = examine(path)
            if isinstance(found, str):
                reason = found if version in path.name else reason
            elif found.version == version:
                return found
    return reason


def _run(*command: object, **options: object) -> str:
    words = [str(word) for word in command]
    answer = subprocess.run(words, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if answer.returncode != 0:
        last = "\n".join((answer.stdout + answer.stderr).strip().splitlines()[-30:])
        raise BuildError(f"{' '.join(words)}\n{last}")
    return str(answer.stdout)


def build(python: Interpreter, folder: Path, *, packages: Path | None = None) -> Path:
    """Build the wheel of an interpreter into ``folder``; return its path. BuildError if it fails.

    Args:
        python: for which.
        folder: where; a new one.
        packages: folder of wheels of the build's tools; None: the package index.
    """
    if python.has_backend:
        # In the folder of an installation for development, if there is one: it compiled the same.
        settings = ["--no-build-isolation"]
    else:
        # One folder for all versions: only bindings depend on the version.
        settings = [f"--config-settings=build-dir={ROOT / 'build' / 'wheels'}"]
        settings += [] if packages is None else ["--no-index", "--find-links", str(packages)]
    pip = (sys.executable, "-m", "pip", "--python", python.path)
    _run(*pip, "wheel", ROOT, "--no-deps", "--quiet", "--wheel-dir", folder, *settings)
    (wheel,) = folder.glob("gnnscale-*.whl")
    return wheel


def repair(wheel: Path, out: Path) -> Path:
    """Write the repaired wheel, with a manylinux tag, into ``out``; return its path."""
    # auditwheel looks for patchelf on PATH.
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        repairs = (sys.executable, "-m", "auditwheel", "repair", wheel, "--wheel-dir", folder)
        _run(*repairs, env={**os.environ, "PATH": path})
        (repaired,) = Path(folder).glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(repaired, out / repaired.name))


def check_loads(wheel: Path, python: Interpreter) -> None:
    """Load the extension of a wheel in its interpreter; BuildError if that fails."""
    name = f"gnnscale/ops/_native{python.suffix}"
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        if name not in archive.namelist():
            raise BuildError(f"{wheel.name} has no {name}")
        _run(python.path, "-I", "-c", _LOAD, archive.extract(name, folder))


def make(python: Interpreter, out: Path, *, packages: Path | None = None) -> Path:
    """Build, repair and load the wheel of an interpreter; return its path in ``out``."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = repair(build(python, Path(folder), packages=packages), out)
    check_loads(wheel, python)
    return wheel


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the wheels")
    parser.add_argument("--only", choices=VERSIONS, help="this version, which must be there")
    parser.add_argument("--python", type=Path, action="append", default=[], help="an interpreter")
    parser.add_argument("--packages", type=Path, help="folder of wheels that builds need")
    options = parser.parse_args(arguments)
    if not find_spec("auditwheel"):
        parser.error(f"auditwheel is not installed: {sys.executable} -m pip install '.[dev]'")
    for path in options.python:
        if isinstance(examine(path), str):
            parser.error(f"--python: {examine(path)}")
    failed = False
    for version in (options.only,) if options.only else VERSIONS:
        python = find(version, options.python)
        if isinstance(python, str):
            print(f"{version:5} not built: {python}", flush=True)
            failed |= options.only is not None
            continue
        try:
            wheel = make(python, options.out, packages=options.packages)
        except BuildError as error:
            print(f"{version:5} failed: {error}", flush=True)
            failed = True
        else:
            print(f"{version:5} {wheel.stat().st_size / 1e6:5.1f} MB  {wheel}", flush=True)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
