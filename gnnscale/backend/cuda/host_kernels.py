"""CUDA kernels on the host: the same sources compiled by g++, with a fiber for each CUDA thread.

They emulate a GPU for tests on any machine, slowly.
"""

import ctypes
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gnnscale.backend import jit
from gnnscale.backend.base import DeviceError
from gnnscale.backend.cuda import kernels
from gnnscale.core import home, usable_cores

#: Fill value of integers, which is neither an index nor a size.
_NO_NUMBER = -(1 << 6)

#: Operations that allocate tensors without writing them.
_ALLOCATIONS = frozenset(
    {
        *(torch.ops.aten.empty.memory_format, torch.ops.aten.empty_like.default),
        *(torch.ops.aten.empty_strided.default, torch.ops.aten.new_empty.default),
        *(torch.ops.aten.new_empty_strided.default,),
    }
)

_RECORDING: "ContextVar[Recording | None]" = ContextVar("recording", default=None)


class CaptureError(RuntimeError):
    """Failure to record a step with an operation that a CUDA graph cannot repeat."""


def note_launch(launch: Callable[[], None], arguments: tuple[object, ...]) -> None:
    """Add ``launch`` to this thread's recording, if any, which keeps ``arguments`` alive."""
    recording = _RECORDING.get()
    if recording is not None:
        recording.add(launch, arguments)


class Recording(TorchDispatchMode):
    """Recorded operations and kernel launches, run again by ``repeat`` like a CUDA graph."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls: list[Callable[[], None]] = []
        self._intermediates: list[torch.Tensor] = []
        self._keep_alive: list[object] = []

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record all operations of the ``with`` block in this thread."""
        token = _RECORDING.set(self)
        try:
            with self:
                yield
        finally:
            _RECORDING.reset(token)

    def add(self, call: Callable[[], None], keep_alive: object) -> None:
        """Append ``call``, and keep the objects that it needs, ``keep_alive``, alive."""
        self._calls.append(call)
        self._keep_alive.append(keep_alive)

    @torch.no_grad()
    def repeat(self) -> None:
        """Overwrite all intermediate results with bad values, and run all calls again in order."""
        for tensor in self._intermediates:
            _spoil(tensor)
        for call in self._calls:
            call()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.lift_fresh.default:
            raise CaptureError("a step copies numbers of the host to the device")
        out = func(*args, **kwargs)
        inputs = {_memory(tensor) for tensor in _tensors((args, kwargs))}
        outputs = [tensor for tensor in _tensors(out) if _memory(tensor) not in inputs]
        self._intermediates += outputs
        self._keep_alive.append((args, kwargs, out))
        if func in _ALLOCATIONS:
            return out
        if outputs:
            self._calls.append(lambda: _copy(func(*args, **kwargs), out, outputs))
        elif func._schema.is_mutable:
            self._calls.append(lambda: func(*args, **kwargs))
        return out


def _copy(again: Any, out: Any, outputs: list[torch.Tensor]) -> None:
    """Copy results ``again`` of a repeated operation to its first results ``out``.

    Only tensors in ``outputs`` are written, those of ``out`` that share no memory with inputs.
    """
    new_outputs = {id(tensor) for tensor in outputs}
    for old, new in zip(_tensors(out), _tensors(again), strict=True):
        if id(old) in new_outputs:
            old.copy_(new)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _memory(tensor: torch.Tensor) -> int:
    """Return an id of the memory of a tensor, which its views share."""
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
    """Launcher that runs kernels at once, on host tensors; threads stand for multiprocessors."""

    def __init__(self, *, num_threads: int | None = None) -> None:
        """Load the kernels, compiled on first use; ``num_threads`` of None: all cores."""
        self.num_multiprocessors = num_threads or usable_cores()
        self.device = torch.device("cpu")
        self._library = _load(library())

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all kernels."""
        return tuple(self._library.gnnscale_cuda_kernels().decode().splitlines())

    def launch(
        self,
        name: str,
        *arguments: kernels.Argument,
        grid: int | None = None,
        block: int = kernels.BLOCK,
        stream: Any | None = None,
    ) -> None:
        """Run kernel ``name``, wait for it, and add it to this thread's recording, if any.

        ``grid`` is the number of thread blocks, of ``block`` threads each. None: as many as all
        multiprocessors hold. ``stream`` is unused.
        """
        cells = [_cell(argument) for argument in arguments]
        num_blocks = grid or kernels.BLOCKS * self.num_multiprocessors
        self._run(name, cells, num_blocks, block)
        note_launch(lambda: self._run(name, cells, num_blocks, block), arguments)

    def _run(self, name: str, cells: list[np.ndarray[Any, Any]], grid: int, block: int) -> None:
        count = len(cells)
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        failed = self._library.gnnscale_cuda_launch(
            name.encode(),
            ctypes.c_uint(grid),
            ctypes.c_uint(block),
            (ctypes.c_void_p * count)(*[cell.ctypes.data for cell in cells]),
            (ctypes.c_uint * count)(*[cell.nbytes for cell in cells]),
            ctypes.c_uint(count),
            ctypes.c_uint(self.num_multiprocessors),
            error,
            ctypes.c_size_t(_ERROR_BYTES),
        )
        if failed:
            raise DeviceError(f"cuda on the host: {error.value.decode()}")


def _cell(argument: kernels.Argument) -> np.ndarray[Any, Any]:
    """Return memory with an argument as its kernel gets it: a tensor's address, or a number."""
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
    """Return the library of all kernels, compiled on first use by one of concurrent processes.

    It is stored in ``${GNNSCALE_HOME:-~/.cache/gnnscale}/cuda``. Raises ConfigError if no compiler
    is installed, or it refuses the sources; or other users can write the stored library.
    """
    root = kernels.sources()
    compiler = jit.Compiler.find("running CUDA kernels on the host", "a GPU needs none")
    path = home() / "cuda" / f"host-{_digest(root, compiler)}.so"

    def build() -> None:
        with _one_at_a_time(path.parent):
            if not path.is_file():
                _compile(root, compiler, path)

    return jit.stored(path, "compiling the CUDA kernels for the host", build)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold the lock of ``folder`` during ``with``, so that one process compiles at a time."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # without file locks every process compiles
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _digest(root: Path, compiler: jit.Compiler) -> str:
    """Return a hash of the sources in ``root``, the compiler and its options."""
    native = kernels.native_sources(root)
    sources = jit.digest_of_files(root, _FOLDERS, _SUFFIXES).encode()
    words = (*compiler.command, compiler.version, *_OPTIONS)
    return jit.digest([sources, *native, *(word.encode(errors="replace") for word in words)])


def _compile(root: Path, compiler: jit.Compiler, into: Path) -> None:
    """Compile all kernels and their emulation, and rename the complete library to ``into``."""
    files = [*kernels.kernel_files(root), *(root / "host" / name for name in _HOST_SOURCES)]
    folders = (f"-I{root / 'include'}", f"-I{root}", f"-I{kernels.native_headers(root)}")
    with tempfile.TemporaryDirectory(prefix=".host-", dir=into.parent) as work:
        objects = [str(Path(work) / f"{number}.o") for number in range(len(files))]
        commands = [
            [*compiler.command, *_OPTIONS, *folders, "-x", "c++", "-c", str(file), "-o", to]
            for file, to in zip(files, objects, strict=True)
        ]
        run = partial(jit.compile_into, log=into.with_suffix(".log"))
        with ThreadPoolExecutor(usable_cores()) as pool:
            list(pool.map(run, commands))  # raises the first error
        whole = str(Path(work) / "whole.so")
        run([*compiler.command, "-shared", "-pthread", *objects, "-o", whole])
        os.chmod(whole, 0o755)
        os.replace(whole, into)
