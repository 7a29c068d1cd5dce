"""The extension with address and undefined-behaviour sanitizers, in a process made for it."""

import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
#: The tree of the native tests with the same sanitizers, which has most of it compiled.
_BUILD = _ROOT / "build" / "native-test" / "address"
_VARIABLE = "GNNSCALE_FUZZ_NATIVE"
_OPTIONS = {
    # CPython and torch keep memory until the end; a size that no machine has is an exception.
    "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:allocator_may_return_null=1:"
    "max_allocation_size_mb=4096:detect_stack_use_after_return=1:handle_abort=0",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}


def active() -> bool:
    return _VARIABLE in os.environ


def enter() -> None:
    """Make this a process whose gnnscale is the sanitized one, by starting it anew."""
    if not active():
        extension = build()
        libraries = [_library(name) for name in ("libasan.so", "libubsan.so")]
        own = {"LD_PRELOAD": ":".join(libraries), _VARIABLE: str(extension)}
        environment = {**os.environ, **_OPTIONS, **own, "PYTHONMALLOC": "malloc"}
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
    path = os.environ[_VARIABLE]
    loader = importlib.machinery.ExtensionFileLoader("gnnscale.ops._native", path)
    spec = importlib.util.spec_from_file_location("gnnscale.ops._native", path, loader=loader)
    module = sys.modules["gnnscale.ops._native"] = importlib.util.module_from_spec(spec)
    loader.exec_module(module)


def build() -> Path:
    """Build the extension with sanitizers, what changed of it, and return its file."""
    import pybind11

    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    configure = [
        *("cmake", "-S", str(_ROOT / "native"), "-B", str(_BUILD), *generator),
        *("-DCMAKE_BUILD_TYPE=Release", "-DGNNSCALE_SANITIZE=address,undefined"),
        "-DGNNSCALE_BUILD_EXTENSION=ON",
        *(f"-Dpybind11_DIR={pybind11.get_cmake_dir()}", f"-DPython_EXECUTABLE={sys.executable}"),
    ]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    build = ["cmake", "--build", str(_BUILD), "--target", "_native"]
    subprocess.run(build, check=True, stdout=sys.stderr)
    (extension,) = _BUILD.glob("_native*.so")
    return extension


def _library(name: str) -> str:
    command = ["gcc", f"-print-file-name={name}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
