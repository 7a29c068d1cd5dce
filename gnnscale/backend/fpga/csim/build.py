"""Simulation library of a design, installed or compiled on demand, and the driver modules."""

import os
import shlex
import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import gnnscale
from gnnscale.backend import jit
from gnnscale.backend.fpga.csim.library import Library, seal
from gnnscale.core import ConfigError, check_range, home
from gnnscale.planner.device_spec import ROW_WORDS

_MAX_UNITS = 16
_MAX_CLOCK_HZ = 1_000_000_000
_PREBUILT = Path("csim") / "gnnscale_step_n2_m256.so"
#: Only compilation unit; it includes all other sources.
_SOURCE = Path("csim") / "library.cpp"
_FOLDERS = ("csim", "include", "kernels")
_SUFFIXES = (".cpp", ".hpp")
_OPTIONS = ("-std=c++20", "-O3", "-fPIC", "-shared", "-ffp-contract=off", "-pthread")
#: Characters that no ``#include`` can hold.
_NOT_IN_HEADER = ('"', "\\", "\n")


@dataclass(frozen=True, kw_only=True)
class SimulatedDesign:
    """Design to simulate: sizes, number and clock of compute units, and a user's layers in C++."""

    n: int = 2  #: scatter-gather processing elements of a compute unit: 1, 2, 4, 8 or 16
    m: int = 256  #: multiply-accumulate units of a compute unit: a power of two from 16 to 2048
    row_words: int = 98304  #: words of the memory of rows: one of ``ROW_WORDS``
    compute_units: int = 4  #: compute units of the board, with a memory bank each
    clock_hz: int = 300_000_000  #: clock of the kernel in hertz
    #: C++ header with custom scatter, gather and update. None: that of the project. Changes of
    #: headers that it includes are not noticed.
    header: Path | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for sizes, a number of compute units or a clock that no design has."""
        for name, value, powers in (("n", self.n, range(5)), ("m", self.m, range(4, 12))):
            allowed = [2**power for power in powers]
            if value not in allowed:
                sizes = ", ".join(map(str, allowed))
                raise ConfigError(f"{name}={value}: expected one of {sizes}")
        if self.row_words not in ROW_WORDS:
            sizes = ", ".join(map(str, ROW_WORDS))
            raise ConfigError(f"row_words={self.row_words}: expected one of {sizes}")
        check_range("compute_units", self.compute_units, 1, _MAX_UNITS)
        check_range("clock_hz", self.clock_hz, 1, _MAX_CLOCK_HZ)

    def matches(self, built: Library) -> bool:
        """Return whether library ``built`` has this design's values; False if this has a header."""
        names = ("n", "m", "row_words", "compute_units", "clock_hz")
        expected = {name: getattr(self, name) for name in names}
        actual = {name: built.design.get(name) for name in expected}
        return self.header is None and actual == expected

    def definitions(self) -> tuple[str, ...]:
        """Return the compiler options of the design; ConfigError: its header cannot be included."""
        sizes = (
            f"-DGNNSCALE_N={self.n}",
            f"-DGNNSCALE_M={self.m}",
            f"-DGNNSCALE_ROW_WORDS={self.row_words}",
            f"-DGNNSCALE_COMPUTE_UNITS={self.compute_units}",
            f"-DGNNSCALE_CLOCK_HZ={self.clock_hz}",
        )
        if self.header is None:
            return sizes
        header = str(self.header.absolute())
        if not self.header.is_file():
            raise ConfigError(f"header={self.header}: no such file")
        if any(word in header for word in _NOT_IN_HEADER):
            raise ConfigError(f"header={self.header}: C++ cannot include a path with such a name")
        return (*sizes, f'-DGNNSCALE_LAYER_HEADER="{header}"')


def sources() -> Path:
    """Return the folder of the kernel sources, of the checkout or of the installed package."""
    return jit.find_sources("fpga", _SOURCE, "FPGA")


def library(design: SimulatedDesign) -> Path:
    """Return the library of a design, installed or compiled on first use, for ``csim.xrt``.

    Compiled libraries are stored in ``${GNNSCALE_HOME:-~/.cache/gnnscale}/csim``, safely for
    concurrent processes. ConfigError: no compiler is installed, or it refuses the sources or the
    header; or other users can write the stored library.
    """
    installed = prebuilt(design)
    if installed is not None:
        return installed
    compiler = _compiler()
    path = home() / "csim" / f"{_digest(design, compiler)}.so"
    title = "compiling the FPGA kernels for simulation"
    return jit.stored(path, title, lambda: _compile(design, compiler, path))


def prebuilt(design: SimulatedDesign) -> Path | None:
    """Return the installed library if it has this design and the current kernel sources.

    None: it is missing, or has another design or other sources.
    """
    folders = (Path(folder) / _PREBUILT for folder in gnnscale.__path__)
    return next((folder for folder in folders if _fits(design, folder)), None)


def compiler() -> str:
    """Return the command of the C++ compiler for simulation libraries; ConfigError: none found."""
    return shlex.join(_compiler().command)


def _compiler() -> jit.Compiler:
    return jit.Compiler.find(
        "simulating this FPGA design",
        "the wheel has the library of the default design, which needs none",
    )


def _options(compiler: jit.Compiler) -> tuple[str, ...]:
    # GCC would let all designs of a process share the static variables of inline functions.
    return _OPTIONS if compiler.is_clang else (*_OPTIONS, "-fno-gnu-unique")


def _fits(design: SimulatedDesign, prebuilt: Path) -> bool:
    try:
        if not prebuilt.is_file():
            return False
        built = Library(prebuilt)
        return design.matches(built) and built.design.get("sources") == digest_of_sources()
    except RuntimeError:
        # Another version, or another machine: the library is compiled instead.
        return False


def digest_of_sources() -> str:
    """Return a hash of the kernel sources, equal to that of ``native/CMakeLists.txt``."""
    return jit.digest_of_files(sources(), _FOLDERS, _SUFFIXES)


def _digest(design: SimulatedDesign, compiler: jit.Compiler) -> str:
    """Return a hash of the design, its header, the kernel sources, the compiler and its options."""
    parts = [digest_of_sources().encode()]
    if design.header is not None and design.header.is_file():
        parts.append(design.header.read_bytes())
    words = (*compiler.command, compiler.version, *_options(compiler), *design.definitions())
    return jit.digest([*parts, *(word.encode(errors="surrogateescape") for word in words)])


def _compile(design: SimulatedDesign, compiler: jit.Compiler, into: Path) -> None:
    """Compile the library of ``design``, and rename it to ``into`` once it is complete."""
    root = sources()
    handle, unfinished = tempfile.mkstemp(prefix=f".{into.stem}.", suffix=".so", dir=into.parent)
    os.close(handle)
    options = (*_options(compiler), f"-I{root / 'include'}", f"-I{root}", *design.definitions())
    command = [*compiler.command, *options, str(root / _SOURCE), "-o", unfinished]
    try:
        jit.compile_into(command, into.with_suffix(".log"))
        Path(unfinished).write_bytes(seal(Path(unfinished).read_bytes()))
        os.chmod(unfinished, 0o755)
        os.replace(unfinished, into)
    finally:
        Path(unfinished).unlink(missing_ok=True)


def load_pyxrt() -> Any:
    """Return ``pyxrt``, the interface of the Xilinx Runtime; ConfigError: not installed."""
    try:
        return import_module("pyxrt")
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"a bitstream needs the Xilinx Runtime, and pyxrt cannot be imported ({error}): "
            "install XRT with its Python bindings from AMD's page of the Alveo card, and "
            "`source /opt/xilinx/xrt/setup.sh`; `bitstream: null` simulates instead"
        ) from None


def load_csim() -> Any:
    """Return the module with pyxrt's interface over simulated cards."""
    from gnnscale.backend.fpga.csim import xrt

    return xrt
