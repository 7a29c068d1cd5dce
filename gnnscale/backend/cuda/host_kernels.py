"""The kernels on the host: the same sources, compiled by g++, a CUDA thread a fiber.

It stands for a GPU, so that what runs there is tested everywhere. It is slow.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gnnscale.backend import jit as compiling
from gnnscale.backend.base import DeviceError
from gnnscale.backend.cuda import kernels
from gnnscale.core import ConfigError, home, track, usable_cores, write_atomically

#: What integers are filled with: no index, and no size.
_NO_NUMBER = -(1 << 6)

#: Operations that make tensors without writing them.
_ONLY_ROOM = frozenset(
    {
        *(torch.ops.aten.empty.memory_format, torch.ops.aten.empty_like.default),
        *(torch.ops.aten.empty_strided.default, torch.ops.aten.new_empty.default),
        *(torch.ops.aten.new_empty_strided.default,),
    }
)

_RECORDING: ContextVar[Recording | None] = ContextVar("recording", default=None)


class CaptureError(RuntimeError):
    """A step does what a CUDA graph cannot repeat."""


def note_launch(launch: Callable[[], None], arguments: tuple[object, ...]) -> None:
    """Add a kernel that was launched to what is being recorded in this thread, if anything is.

    Args:
        arguments: whose memory must live as long as the recording.
    """
    recording = _RECORDING.get()
    if recording is not None:
        recording.add(launch, arguments)


class Recording(TorchDispatchMode):
    """Operations and kernels in the order in which they were done."""

    def __init__(self) -> None:
        """Record nothing yet."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls: list[Callable[[], None]] = []
        self._own: list[torch.Tensor] = []
        self._held: list[object] = []

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record what is done in the ``with`` block, in this thread."""
        token = _RECORDING.set(self)
        try:
            with self:
                yield
        finally:
            _RECORDING.reset(token)

    def add(self, call: Callable[[], None], held: object) -> None:
        """Add what is repeated, and what must live for it."""
        self._calls.append(call)
        self._held.append(held)

    @torch.no_grad()
    def repeat(self) -> None:
        """Do all of it again."""
        for each in self._own:
            _spoil(each)
        for call in self._calls:
            call()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.lift_fresh.default:
            raise CaptureError("a step brings numbers of the host to the device")
        out = func(*args, **kwargs)
        given = {_memory(each) for each in _tensors((args, kwargs))}
        made = [each for each in _tensors(out) if _memory(each) not in given]
        self._own += made
        self._held.append((args, kwargs, out))
        if func in _ONLY_ROOM:
            return out
        if made:
            self._calls.append(lambda: _copy(func(*args, **kwargs), out, made))
        elif func._schema.is_mutable:
            self._calls.append(lambda: func(*args, **kwargs))
        return out


def _copy(again: Any, out: Any, made: list[torch.Tensor]) -> None:
    """Copy what an operation has given to the memory that it had given before."""
    places = {id(each) for each in made}
    for old, new in zip(_tensors(out), _tensors(again), strict=True):
        if id(old) in places:
            old.copy_(new)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(tree) if isinstance(each, torch.Tensor)]


def _memory(tensor: torch.Tensor) -> int:
    """Return what tensors over the same memory share."""
    return int(tensor.untyped_storage()._cdata)


def _spoil(tensor: torch.Tensor) -> None:
    if tensor.dtype.is_floating_point:
        tensor.fill_(float("nan"))
    elif tensor.dtype is not torch.bool:
        tensor.fill_(_NO_NUMBER if tensor.dtype.is_signed else 0)


_OPTIONS = ("-std=c++20", "-O2", "-fPIC", "-ffp-contract=off", "-pthread", "-fvisibility=hidden")
_HOST_SOURCES = ("fiber.cpp", "block.cpp", "launch.cpp", "library.cpp")
_FOLDERS = ("include", "kernels", "host")
_SUFFIXES = (".cu", ".hpp", ".cpp")
_ERROR_BYTES = 1024


class HostKernels:
    """Runs a kernel when it is launched, on tensors of the host.

    Attributes:
        num_multiprocessors: blocks that run at once, each on a thread of the host.
        device: the host.
    """

    def __init__(self, *, num_threads: int | None = None) -> None:
        """Load the kernels, which are compiled if they were not before.

        Args:
            num_threads: of the host; None for all cores.

        Raises:
            ConfigError: there is no compiler, or it refuses the sources.
        """
        self.num_multiprocessors = num_threads or usable_cores()
        self.device = torch.device("cpu")
        self._library = _load(library())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all kernels."""
        return tuple(self._library.gnnscale_cuda_kernels().decode().splitlines())

    def launch(
        self,
        name: str,
        *arguments: kernels.Argument,
        grid: int,
        block: int = kernels.BLOCK,
        stream: Any | None = None,
    ) -> None:
        """Run a kernel, and wait for it; see ``Kernels.launch``."""
        cells = [_cell(each) for each in arguments]
        self._run(name, cells, grid, block)
        note_launch(lambda: self._run(name, cells, grid, block), arguments)

    def _run(self, name: str, cells: list[np.ndarray[Any, Any]], grid: int, block: int) -> None:
        count = len(cells)
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        failed = self._library.gnnscale_cuda_launch(
            name.encode(),
            ctypes.c_uint(grid),
            ctypes.c_uint(block),
            (ctypes.c_void_p * count)(*[each.ctypes.data for each in cells]),
            (ctypes.c_uint * count)(*[each.nbytes for each in cells]),
            ctypes.c_uint(count),
            ctypes.c_uint(self.num_multiprocessors),
            error,
            ctypes.c_size_t(_ERROR_BYTES),
        )
        if failed:
            raise DeviceError(f"cuda on the host: {error.value.decode()}")


def _cell(argument: kernels.Argument) -> np.ndarray[Any, Any]:
    """Return memory that holds an argument."""
    if isinstance(argument, torch.Tensor):
        assert argument.device.type == "cpu", "a tensor of the host"
        return np.array([argument.data_ptr()], np.uint64)
    return np.array([argument])


@cache
def _load(path: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(path))
    loaded.gnnscale_cuda_kernels.restype = ctypes.c_char_p
    return loaded


def library() -> Path:
    """Return the library of all kernels, kept in ``${GNNSCALE_HOME:-~/.cache/gnnscale}/cuda``.

    Several processes may ask for it at once: none finds a file that is not whole.

    Raises:
        ConfigError: there is no compiler, or it refuses the sources; or others may have written
            what is kept.
    """
    root = kernels.sources()
    compiler = compiling.Compiler.find("running CUDA kernels on the host", "a GPU takes none")
    folder = home() / "cuda"
    found = folder / f"host-{_digest(root, compiler)}.so"
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    compiling.check_ours(folder)
    if not found.is_file():
        with track("compiling the CUDA kernels for the host"), _one_at_a_time(folder):
            if not found.is_file():
                _compile(root, compiler, found)
    compiling.check_ours(found)
    return found


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Let one process compile, while others wait for what it leaves."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks: each compiles
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _digest(root: Path, compiler: compiling.Compiler) -> str:
    """Return a hash of all that the library depends on."""
    native = kernels.native_sources(root)
    own = compiling.digest_of_files(root, _FOLDERS, _SUFFIXES).encode()
    words = (*compiler.command, compiler.version, *_OPTIONS)
    return compiling.digest([own, *native, *(each.encode(errors="replace") for each in words)])


def _compile(root: Path, compiler: compiling.Compiler, into: Path) -> None:
    """Compile each file, link them, and rename the library to ``into`` once it is whole."""
    files = [*kernels.kernel_files(root), *(root / "host" / name for name in _HOST_SOURCES)]
    folders = (f"-I{root / 'include'}", f"-I{root}", f"-I{kernels.native_headers(root)}")
    with tempfile.TemporaryDirectory(prefix=".host-", dir=into.parent) as work:
        objects = [str(Path(work) / f"{number}.o") for number in range(len(files))]
        commands = [
            [*compiler.command, *_OPTIONS, *folders, "-x", "c++", "-c", str(file), "-o", to]
            for file, to in zip(files, objects, strict=True)
        ]
        with ThreadPoolExecutor(usable_cores()) as pool:
            for ran in pool.map(lambda each: _run(each, into), commands):
                assert ran
        whole = str(Path(work) / "whole.so")
        _run([*compiler.command, "-shared", "-pthread", *objects, "-o", whole], into)
        os.chmod(whole, 0o755)
        os.replace(whole, into)


def _run(command: list[str], into: Path) -> bool:
    status, output = compiling.output(command)
    if status != 0:
        log = into.with_suffix(".log")
        write_atomically(log, f"{shlex.join(command)}\n{output}", shared=True)
        found = compiling.first_error(output, status)
        raise ConfigError(f"{found}; all that was printed is in {log}")
    return True
