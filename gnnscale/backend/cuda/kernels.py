"""Kernels by their names, wherever they run: on a GPU, or on the host in place of one."""

from __future__ import annotations

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

from gnnscale.backend import jit as compiling
from gnnscale.backend.base import DeviceError
from gnnscale.core import ConfigError, home, track, usable_cores, write_atomically

#: A tensor stands for its address; a scalar of NumPy has the size that the kernel takes.
Argument: TypeAlias = "torch.Tensor | np.generic[Any]"

NULL = np.uint64(0)  #: the address of nothing

#: Threads of a block, of every kernel (``cuda/include/gnnscale_cuda/device.hpp``).
BLOCK = 256


class Kernels(Protocol):
    """What launches the kernels of ``cuda/kernels``."""

    #: of the GPU, or threads of the host; grids are multiples of it
    num_multiprocessors: int
    #: on which tensors lie
    device: torch.device

    def launch(
        self,
        name: str,
        *arguments: Argument,
        grid: int,
        block: int = BLOCK,
        stream: Any | None = None,
    ) -> None:
        """Launch a kernel, which may run after this returns.

        Args:
            name: of the kernel.
            arguments: in the order of its parameters. Tensors must live until it is done.
            grid: blocks.
            block: threads of a block.
            stream: that queues it; None for the current one.

        Raises:
            DeviceError: there is no such kernel, or it takes other arguments.
        """
        ...


def sources() -> Path:
    """Return the folder of the kernels' sources: the checkout's, or as installed.

    Raises:
        ConfigError: it is missing.
    """
    return compiling.find_sources("cuda", Path("include/gnnscale_cuda/device.hpp"), "CUDA")


#: Native headers that kernels include; the installed package has these alone.
_NATIVE_HEADERS = ("random.hpp", "weighted_lists.hpp")


def native_headers(root: Path) -> Path:
    """Return the folder of the native headers that kernels include (``gnnscale/random.hpp``)."""
    installed = root / "native"
    return installed if installed.is_dir() else root.parent / "native" / "include"


def native_sources(root: Path) -> list[bytes]:
    """Return the content of these headers, by which compiled kernels are recognised."""
    headers = native_headers(root) / "gnnscale"
    return [(headers / name).read_bytes() for name in _NATIVE_HEADERS]


def kernel_files(root: Path) -> tuple[Path, ...]:
    """Return the files of kernels, each of which is compiled by itself."""
    return tuple(sorted((root / "kernels").glob("*.cu")))


def or_null(tensor: torch.Tensor | None) -> Argument:
    """Return a tensor as an argument of a kernel, a null pointer for None."""
    return NULL if tensor is None else tensor


#: Blocks of 256 threads that a multiprocessor holds at a time.
BLOCKS = 8

#: ``RowType`` of rows.hpp.
ROW_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.uint8: 3}

#: Columns that a thread takes at once, if rows allow it.
_COLUMNS = 4


def row_type(x: torch.Tensor) -> int:
    """Return the number of the type of ``x``."""
    return ROW_TYPES[x.dtype]


def row_bytes(x: torch.Tensor) -> int:
    """Return the bytes from a row of ``x`` ``[n, f]`` to the next one."""
    assert x.stride(-1) == 1, "the columns of a row lie beside each other"
    return x.stride(0) * x.element_size()


def columns_at_once(*matrices: torch.Tensor | None) -> int:
    """Return 4 if each row of all matrices begins at a multiple of four columns, 1 otherwise."""
    for each in matrices:
        if each is None:
            continue
        whole = _COLUMNS * each.element_size()
        if each.shape[1] % _COLUMNS or row_bytes(each) % whole or each.data_ptr() % whole:
            return 1
    return _COLUMNS


def grid(kernels: Kernels) -> int:
    """Return the blocks of a launch in which every multiprocessor takes part."""
    return BLOCKS * kernels.num_multiprocessors


_STANDARD = "c++17"
_SUFFIXES = (".cu", ".hpp", "")


@dataclass(frozen=True)
class CompiledFile:
    """What NVRTC has made of a file of kernels."""

    cubin: bytes  #: machine code of one architecture
    log: str  #: what the assembler reports of each kernel: registers, spills, shared memory


class CompiledKernels:
    """Launches kernels on a GPU.

    Attributes:
        num_multiprocessors: of the GPU.
        device: the GPU.
    """

    def __init__(self, index: int) -> None:
        """Load the kernels on GPU ``index``, which are compiled if they were not before.

        Raises:
            ConfigError: there is no cuda-core or NVRTC, or one of them is too old for the GPU.
        """
        self._core = load_core()
        # The device's primary context, which is torch's too.
        self._core.Device(index).set_current()
        self.device = torch.device("cuda", index)
        properties = torch.cuda.get_device_properties(index)
        self.num_multiprocessors = properties.multi_processor_count
        self._kernels: dict[str, Any] = {}
        architecture = f"sm_{properties.major}{properties.minor}"
        files = kernel_files(sources())
        with ThreadPoolExecutor(usable_cores()) as pool:
            made = pool.map(lambda file: cubin(file, architecture), files)
        self._modules = [self._core.ObjectCode.from_cubin(each) for each in made]
        self._configs: dict[tuple[int, int], Any] = {}

    def launch(
        self,
        name: str,
        *arguments: Argument,
        grid: int,
        block: int = BLOCK,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        """Queue a kernel; see ``Kernels.launch``."""
        kernel = self._kernels.get(name) or self._find(name)
        shape = (grid, block)
        config = self._configs.get(shape)
        if config is None:
            config = self._configs[shape] = self._core.LaunchConfig(grid=grid, block=block)
        queue = stream or torch.cuda.current_stream(self.device)
        cells = [each.data_ptr() if isinstance(each, torch.Tensor) else each for each in arguments]
        self._core.launch(queue, config, kernel, *cells)

    def _find(self, name: str) -> Any:
        """Return a kernel of any module.

        Raises:
            DeviceError: no module has it, or the driver cannot load one.
        """
        refused = ""
        for module in self._modules:
            try:
                self._kernels[name] = module.get_kernel(name)
            except Exception as error:  # the driver's own, of which NOT_FOUND is the usual one
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
    """Return ``cuda.core``; nothing of CUDA is initialised.

    Raises:
        ConfigError: it, or NVRTC, is not installed.
    """
    try:
        core = import_module("cuda.core")
        import_module("cuda.pathfinder").load_nvidia_dynamic_lib("nvrtc")
    except ImportError as error:
        raise ConfigError(
            f"device_plan: a cuda device needs cuda-core, which cannot be imported ({error}); "
            "`pip install 'gnnscale[cuda]'` installs it, and device_plan=cpu needs none"
        ) from None
    except RuntimeError:
        raise ConfigError(
            "device_plan: a cuda device needs NVRTC (libnvrtc), which was not found; every torch "
            "with CUDA brings it, `pip install nvidia-cuda-nvrtc` too; device_plan=cpu needs none"
        ) from None
    return core


def cubin(file: Path, architecture: str) -> bytes:
    """Return the machine code of a file of kernels for ``architecture``, as in ``sm_90``.

    It is kept in ``${GNNSCALE_HOME:-~/.cache/gnnscale}/cuda``.

    Raises:
        ConfigError: NVRTC is not installed, does not know the architecture, or refuses the file; or
            others may have written what is kept.
    """
    core = load_core()
    folder = home() / "cuda"
    kept = folder / f"{file.stem}-{architecture}-{_digest(file, architecture, core)}.cubin"
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    compiling.check_ours(folder)
    if not kept.is_file():
        with track(f"compiling CUDA kernels ({file.stem}, {architecture})"):
            made = compile_file(file, architecture).cubin
        write_atomically(kept, made, shared=True)
    compiling.check_ours(kept)
    return kept.read_bytes()


def compile_file(file: Path, architecture: str) -> CompiledFile:
    """Compile a file of kernels; no GPU is needed.

    Raises:
        ConfigError: NVRTC does not know the architecture, or refuses the file.
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
        # Products and sums are rounded one by one, as on the host: the results are its to the bit.
        fma=False,
        ptxas_options=["-v"],
    )
    log = io.StringIO()
    try:
        made = core.Program(file.read_text(), "c++", options).compile("cubin", logs=log)
    except Exception as error:  # NVRTC's own, whose text has the compiler's lines
        raise ConfigError(_refused(file, architecture, f"{error}\n{log.getvalue()}")) from None
    return CompiledFile(cubin=made.code, log=log.getvalue())


def _refused(file: Path, architecture: str, printed: str) -> str:
    """Return one line about what NVRTC does not compile."""
    if "gpu-architecture" in printed:
        return (
            f"device_plan: this NVRTC does not know {architecture}, the GPU's architecture; that "
            "of a newer torch, or a newer nvidia-cuda-nvrtc, does"
        )
    return f"{file}: NVRTC refuses the kernels: {compiling.first_error(printed, 1)}"


def _digest(file: Path, architecture: str, core: ModuleType) -> str:
    """Return a hash of all that the machine code depends on."""
    root = sources()
    native = native_sources(root)
    shared = compiling.digest_of_files(root, ("include",), _SUFFIXES).encode()
    words = (architecture, _STANDARD, "fma=False", core.__version__, nvrtc_version())
    return compiling.digest([file.read_bytes(), shared, *native, *(w.encode() for w in words)])


def nvrtc_version() -> str:
    """Return the version of NVRTC, as ``13.0``."""
    nvrtc = import_module("cuda.bindings.nvrtc")
    error, major, minor = nvrtc.nvrtcVersion()
    assert not error
    return f"{major}.{minor}"
