"""Kernels by name: compilation by NVRTC, and launches on a GPU."""

import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch

from gnnscale.backend import jit
from gnnscale.backend.base import DeviceError
from gnnscale.core import ConfigError, home, usable_cores, write_atomically

#: Kernel argument: a tensor passes its address, a NumPy scalar its bytes.
Argument: TypeAlias = "torch.Tensor | np.generic[Any]"

NULL = np.uint64(0)  #: null pointer

#: Threads of a block in all kernels (``cuda/include/gnnscale_cuda/device.hpp``).
BLOCK = 256


class Kernels(Protocol):
    """Launcher of the kernels in ``cuda/kernels``, on a GPU or emulated on the host."""

    num_multiprocessors: int
    device: torch.device

    def launch(
        self,
        name: str,
        *arguments: Argument,
        grid: int | None = None,
        block: int = BLOCK,
        stream: Any | None = None,
    ) -> None:
        """Launch a kernel, which may run after this returns.

        Raises DeviceError if no kernel has this name or these arguments.

        Args:
            arguments: in the order of its parameters. Tensors must live until the kernel is done.
            grid: number of thread blocks. None: as many as all multiprocessors hold.
            block: threads of a thread block.
            stream: stream of the launch. None: the current stream.
        """


def sources() -> Path:
    """Return the folder of the kernel sources, of the checkout or of the installed package."""
    return jit.find_sources("cuda", Path("include/gnnscale_cuda/device.hpp"), "CUDA")


#: Native headers that kernels include, and that the installed package contains.
_NATIVE_HEADERS = ("random.hpp", "weighted_lists.hpp")


def native_headers(root: Path) -> Path:
    """Return the folder of the native headers that kernels include (``gnnscale/random.hpp``)."""
    installed = root / "native"
    return installed if installed.is_dir() else root.parent / "native" / "include"


def native_sources(root: Path) -> list[bytes]:
    """Return the contents of the native headers, which enter the hash of compiled kernels."""
    headers = native_headers(root) / "gnnscale"
    return [(headers / name).read_bytes() for name in _NATIVE_HEADERS]


def kernel_files(root: Path) -> tuple[Path, ...]:
    """Return the paths of the kernel files in ``root``; each is a separate compilation unit."""
    return tuple(sorted((root / "kernels").glob("*.cu")))


def or_null(tensor: torch.Tensor | None) -> Argument:
    """Return a tensor as a kernel argument, a null pointer for None."""
    return NULL if tensor is None else tensor


#: Resident blocks of 256 threads of a multiprocessor.
BLOCKS = 8

#: ``RowType`` of rows.hpp.
ROW_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.uint8: 3}

#: Columns that a thread processes at a time in aligned rows.
_COLUMNS = 4


def row_type(x: torch.Tensor) -> int:
    """Return the number (``RowType``) by which kernels know the type of ``x``."""
    return ROW_TYPES[x.dtype]


def row_bytes(x: torch.Tensor) -> int:
    """Return the stride in bytes of the rows of ``x`` ``[n, f]``."""
    assert x.stride(-1) == 1, "the columns of a row are contiguous"
    return x.stride(0) * x.element_size()


def columns_at_once(*matrices: torch.Tensor | None) -> int:
    """Return the columns that a thread can process at a time: 4 if all rows are aligned, or 1.

    Aligned rows have addresses, strides and widths of a multiple of 4 columns. None is ignored.
    """
    for matrix in matrices:
        if matrix is None:
            continue
        whole = _COLUMNS * matrix.element_size()
        if matrix.shape[1] % _COLUMNS or row_bytes(matrix) % whole or matrix.data_ptr() % whole:
            return 1
    return _COLUMNS


_STANDARD = "c++17"
_SUFFIXES = (".cu", ".hpp", "")


@dataclass(frozen=True)
class CompiledFile:
    """Machine code of a kernel file, and the assembler's log."""

    cubin: bytes  #: machine code of one architecture
    log: str  #: the assembler's report on each kernel: registers, spills, shared memory


class CompiledKernels:
    """Launcher of kernels on a GPU."""

    def __init__(self, index: int) -> None:
        """Load the kernels on GPU ``index``, compiled on first use."""
        self._core = load_core()
        # The primary context of the device, which torch uses, too.
        self._core.Device(index).set_current()
        self.device = torch.device("cuda", index)
        properties = torch.cuda.get_device_properties(index)
        self.num_multiprocessors = properties.multi_processor_count
        self._kernels: dict[str, Any] = {}
        architecture = f"sm_{properties.major}{properties.minor}"
        files = kernel_files(sources())
        with ThreadPoolExecutor(usable_cores()) as pool:
            cubins = pool.map(lambda file: cubin(file, architecture), files)
        self._modules = [self._core.ObjectCode.from_cubin(code) for code in cubins]
        self._configs: dict[tuple[int, int], Any] = {}

    def launch(
        self,
        name: str,
        *arguments: Argument,
        grid: int | None = None,
        block: int = BLOCK,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        """Queue kernel ``name`` on ``stream``, or for None on the current stream.

        ``grid`` is the number of thread blocks, of ``block`` threads each. None: as many as all
        multiprocessors hold.
        """
        kernel = self._kernels.get(name) or self._find(name)
        shape = (grid or BLOCKS * self.num_multiprocessors, block)
        config = self._configs.get(shape)
        if config is None:
            config = self._configs[shape] = self._core.LaunchConfig(grid=shape[0], block=block)
        queue = stream or torch.cuda.current_stream(self.device)
        cells = [
            argument.data_ptr() if isinstance(argument, torch.Tensor) else argument
            for argument in arguments
        ]
        self._core.launch(queue, config, kernel, *cells)

    def _find(self, name: str) -> Any:
        """Return the kernel ``name`` of any module, and keep it for later launches.

        DeviceError: no module has it, or the driver cannot load a module.
        """
        refused = ""
        for module in self._modules:
            try:
                self._kernels[name] = module.get_kernel(name)
            except Exception as error:  # types of the driver; NOT_FOUND is the expected one
                if "NOT_FOUND" not in str(error):
                    refused = " ".join(str(error).split())
            else:
                return self._kernels[name]
        if refused:
            raise DeviceError(
                f"{self.device}: the driver cannot load the kernels ({refused}); a newer driver "
                "does, or kernels compiled by an NVRTC that is not newer than the driver"
            )
        raise DeviceError(f"{self.device}: no kernel is called {name}")


@cache
def load_core() -> ModuleType:
    """Return the module ``cuda.core``; ConfigError: it or NVRTC is missing."""
    try:
        core = import_module("cuda.core")
        import_module("cuda.pathfinder").load_nvidia_dynamic_lib("nvrtc")
    except ImportError as error:
        raise ConfigError(
            f"device_plan: a cuda device needs cuda-core, which cannot be imported ({error}); "
            "`pip install '.[cuda]'` installs it, and device_plan=cpu needs none"
        ) from None
    except RuntimeError:
        raise ConfigError(
            "device_plan: a cuda device needs NVRTC (libnvrtc), which was not found; every torch "
            "with CUDA brings it, `pip install nvidia-cuda-nvrtc` too; device_plan=cpu needs none"
        ) from None
    return core


def cubin(file: Path, architecture: str) -> bytes:
    """Return a kernel file's machine code for ``architecture``, e.g. ``sm_90``, built on first use.

    It is stored in ``${GNNSCALE_HOME:-~/.cache/gnnscale}/cuda``. Raises ConfigError if NVRTC is
    missing, does not support the architecture or refuses the file; or other users can write the
    stored code.
    """
    name = f"{file.stem}-{architecture}-{_digest(file, architecture, load_core())}.cubin"
    path = home() / "cuda" / name

    def build() -> None:
        write_atomically(path, compile_file(file, architecture).cubin, shared=True)

    title = f"compiling CUDA kernels ({file.stem}, {architecture})"
    return jit.stored(path, title, build).read_bytes()


def compile_file(file: Path, architecture: str) -> CompiledFile:
    """Compile a kernel file by NVRTC, without a GPU; return its machine code and log.

    ConfigError: NVRTC refuses the code or the architecture.
    """
    core = load_core()
    root = sources()
    folders = (root / "include", root / "include" / "nvrtc", native_headers(root))
    options = core.ProgramOptions(
        name=str(file),
        arch=architecture,
        std=_STANDARD,
        include_path=[str(folder) for folder in folders],
        device_as_default_execution_space=True,
        device_int128=True,
        # Without fused multiply-add, rounding and results equal those of the host bit for bit.
        fma=False,
        ptxas_options=["-v"],
    )
    log = io.StringIO()
    try:
        result = core.Program(file.read_text(), "c++", options).compile("cubin", logs=log)
    except Exception as error:  # a type of NVRTC, with the compiler's output in its text
        raise ConfigError(_refused(file, architecture, f"{error}\n{log.getvalue()}")) from None
    return CompiledFile(cubin=result.code, log=log.getvalue())


def _refused(file: Path, architecture: str, printed: str) -> str:
    """Return a one-line message about code that NVRTC refuses.

    ``printed`` is NVRTC's output.
    """
    if "gpu-architecture" in printed:
        return (
            f"device_plan: this NVRTC does not know {architecture}, the GPU's architecture; that "
            "of a newer torch, or a newer nvidia-cuda-nvrtc, does"
        )
    return f"{file}: NVRTC refuses the kernels: {jit.first_error(printed, 1)}"


def _digest(file: Path, architecture: str, core: ModuleType) -> str:
    """Return a hash of the file, its headers, the architecture and the compiler's versions."""
    root = sources()
    native = native_sources(root)
    shared = jit.digest_of_files(root, ("include",), _SUFFIXES).encode()
    words = (architecture, _STANDARD, "fma=False", core.__version__, nvrtc_version())
    return jit.digest([file.read_bytes(), shared, *native, *(w.encode() for w in words)])


def nvrtc_version() -> str:
    """Return the version of NVRTC, e.g. ``13.0``."""
    nvrtc = import_module("cuda.bindings.nvrtc")
    error, major, minor = nvrtc.nvrtcVersion()
    assert not error
    return f"{major}.{minor}"
