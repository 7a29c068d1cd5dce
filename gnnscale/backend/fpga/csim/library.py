"""Kernels compiled for the host's processor: the bitstream of a simulated board."""

import ctypes
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gnnscale.core import ConfigError
from gnnscale.core.config.yaml_file import read_regular

#: Trailer appended by ``native/CMakeLists.txt``, ignored by loaders of shared libraries.
_MARK = b"\ngnnscale csim sha256 "

_DIGITS = 64


def seal(content: bytes) -> bytes:
    """Return the content of a library followed by its checksum."""
    return content + _mark_of(content)


def is_sealed(content: bytes) -> bool:
    """Return whether ``content`` ends in the checksum of the bytes before it."""
    size = len(content) - len(_MARK) - _DIGITS - 1
    return size >= 0 and content[size:] == _mark_of(content[:size])


def _mark_of(content: bytes) -> bytes:
    return _MARK + hashlib.sha256(content).hexdigest().encode() + b"\n"


#: Version of the interface between a library and this module.
FORMAT = 1

_KINDS = ("buffer", "int")

#: Maximum size of a library; the largest design has a few MB.
_MAX_BYTES = 64 << 20

_COUNTS = ("compute_units", "bank_bytes", "clock_hz")

_SYMBOLS = (
    "gnnscale_csim_design",
    "gnnscale_csim_regions",
    "gnnscale_csim_error",
    "gnnscale_csim_counters",
    "gnnscale_csim_counter_names",
)


class _Region(ctypes.Structure):
    """``struct Region`` of a library: a memory range that a kernel may access."""

    _fields_ = (
        ("begin", ctypes.c_void_p),
        ("num_bytes", ctypes.c_int64),
        ("name", ctypes.c_char_p),
    )


@dataclass(frozen=True)
class Argument:
    """Parameter of a kernel: its name, and whether it is a buffer or a signed 32-bit integer."""

    name: str  #: name in the kernel's source
    is_buffer: bool  #: whether it is a pointer to device memory, or a signed 32-bit integer


@dataclass(frozen=True)
class Buffer:
    """Device memory as a kernel argument."""

    address: int  #: address of its first byte in this process
    num_bytes: int  #: bytes that the kernel may access


@dataclass(frozen=True)
class Outcome:
    """Error text, counters and duration of one call of a simulated kernel."""

    error: str  #: error of the kernel; empty for success
    counters: Mapping[str, int]  #: counters of the call, by name
    seconds: float  #: duration of the simulation


class Library:
    """Shared library that simulates one kernel on the host, with a description of its design.

    Libraries at different paths share no symbols. ``bank_bytes`` is the device memory of each
    compute unit, ``clock_hz`` its clock in hertz.
    """

    def __init__(self, path: str | Path) -> None:
        """Load the library. RuntimeError of one line: the file is missing or invalid."""
        self.path = Path(path).absolute()
        _check_file(self.path)
        try:
            self._library = ctypes.CDLL(str(self.path))
            for symbol in _SYMBOLS:
                getattr(self._library, symbol)
        except (OSError, AttributeError) as error:
            raise RuntimeError(_refused(self.path, f"it cannot be loaded ({error})")) from None
        self._library.gnnscale_csim_regions.restype = None
        self._library.gnnscale_csim_counters.restype = None
        self.design: Mapping[str, Any] = MappingProxyType(self._read_design())
        self.kernel: str = self.design["kernel"]
        self.arguments = tuple(
            Argument(argument["name"], argument["kind"] == "buffer")
            for argument in self.design["arguments"]
        )
        self.compute_units, self.bank_bytes, self.clock_hz = (self.design[key] for key in _COUNTS)
        self._function = self._find_kernel()
        names = self._text("gnnscale_csim_counter_names")
        self._counters = tuple(name.strip() for name in names.split(",") if name.strip())

    def call(self, values: Sequence[Buffer | int]) -> Outcome:
        """Call the kernel with ``values``, wait, and return its outcome.

        Other Python threads may run meanwhile.
        """
        named = zip(self.arguments, values, strict=True)
        buffers = [(name.name, value) for name, value in named if isinstance(value, Buffer)]
        regions = (_Region * len(buffers))(
            *(_Region(buffer.address, buffer.num_bytes, name.encode()) for name, buffer in buffers)
        )
        self._library.gnnscale_csim_regions(regions, ctypes.c_int32(len(buffers)))
        start = time.perf_counter()
        self._function(*(value.address if isinstance(value, Buffer) else value for value in values))
        seconds = time.perf_counter() - start
        counts = (ctypes.c_int64 * len(self._counters))()
        self._library.gnnscale_csim_counters(counts, ctypes.c_int32(len(self._counters)))
        counters = dict(zip(self._counters, counts, strict=True))
        return Outcome(self._text("gnnscale_csim_error"), counters, seconds)

    def _text(self, function: str) -> str:
        """Call the library's ``function`` without arguments, and return its text as one line."""
        symbol = getattr(self._library, function)
        symbol.restype = ctypes.c_char_p
        return " ".join((symbol() or b"").decode(errors="replace").split())

    def _read_design(self) -> dict[str, Any]:
        try:
            design = json.loads(self._text("gnnscale_csim_design"))
        except ValueError:
            raise RuntimeError(_refused(self.path, "its design is not JSON")) from None
        wrong = _wrong_with(design)
        if wrong:
            raise RuntimeError(_refused(self.path, wrong))
        checked: dict[str, Any] = design
        return checked

    def _find_kernel(self) -> Any:
        try:
            function = getattr(self._library, self.kernel)
        except AttributeError:
            raise RuntimeError(_refused(self.path, f"it has no {self.kernel}")) from None
        function.restype = None
        function.argtypes = [
            ctypes.c_void_p if argument.is_buffer else ctypes.c_int32 for argument in self.arguments
        ]
        return function


def _wrong_with(design: Any) -> str | None:
    """Return the first error in a library's description of itself. None: it is valid."""
    if not isinstance(design, dict) or design.get("format") != FORMAT:
        actual = design.get("format") if isinstance(design, dict) else None
        return f"expected format={FORMAT}, got {actual!r}"
    arguments = design.get("arguments")
    if not isinstance(design.get("kernel"), str) or not isinstance(arguments, list):
        return "its design names no kernel with arguments"
    for argument in arguments:
        is_argument = isinstance(argument, dict) and isinstance(argument.get("name"), str)
        if not is_argument or argument.get("kind") not in _KINDS:
            return f"an argument of its kernel is {argument!r}, with a kind none of {_KINDS}"
    for key in _COUNTS:
        if type(design.get(key)) is not int or design[key] < 1:
            return f"its design says {key}={design.get(key)!r}"
    return None


def _check_file(path: Path) -> None:
    """Raise RuntimeError if a file is not a valid library, before any of its code runs."""
    try:
        content = read_regular(path, limit=_MAX_BYTES)
    except OSError as error:
        raise RuntimeError(f"{path}: {error.strerror}") from None
    except ConfigError as error:
        raise RuntimeError(str(error)) from None
    if content[:7] == b"xclbin2":
        raise RuntimeError(
            f"{path}: a bitstream of a real board, which pyxrt drives; a simulated board "
            "takes a library that was compiled from the kernels"
        )
    if content[:4] != b"\x7fELF":
        raise RuntimeError(_refused(path, "it is no shared library" if content else "it is empty"))
    missing = [name for name in _SYMBOLS if content.find(name.encode()) < 0]
    if missing:
        raise RuntimeError(_refused(path, f"it has no {missing[0]}"))
    if not is_sealed(content):
        raise RuntimeError(
            _refused(path, "its checksum is wrong; remove the file, and it is compiled again")
        )


def _refused(path: Path, why: str) -> str:
    reason = " ".join(why.split())
    return f"{path}: not the bitstream of a simulated board: {reason}"
