"""The kernels on a GPU: compiled by NVRTC when they are first used, and kept."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from gnnscale.backend import compiling
from gnnscale.backend.base import DeviceError
from gnnscale.backend.cuda import kernels
from gnnscale.core import ConfigError, home, track, usable_cores, write_atomically

_STANDARD = "c++17"
_SUFFIXES = (".cu", ".hpp", "")


@dataclass(frozen=True)
class Compiled:
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
        files = kernels.kernel_files(kernels.sources())
        with ThreadPoolExecutor(usable_cores()) as pool:
            made = pool.map(lambda file: cubin(file, architecture), files)
        self._modules = [self._core.ObjectCode.from_cubin(each) for each in made]
        self._configs: dict[tuple[int, int], Any] = {}

    def launch(
        self,
        name: str,
        *arguments: kernels.Argument,
        grid: int,
        block: int = kernels.BLOCK,
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


def compile_file(file: Path, architecture: str) -> Compiled:
    """Compile a file of kernels; no GPU is needed.

    Raises:
        ConfigError: NVRTC does not know the architecture, or refuses the file.
    """
    core = load_core()
    root = kernels.sources()
    folders = (root / "include", root / "include" / "nvrtc", kernels.native_headers(root))
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
    return Compiled(cubin=made.code, log=log.getvalue())


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
    root = kernels.sources()
    native = kernels.native_sources(root)
    shared = compiling.digest_of_files(root, ("include",), _SUFFIXES).encode()
    words = (architecture, _STANDARD, "fma=False", core.__version__, nvrtc_version())
    return compiling.digest([file.read_bytes(), shared, *native, *(w.encode() for w in words)])


def nvrtc_version() -> str:
    """Return the version of NVRTC, as ``13.0``."""
    nvrtc = import_module("cuda.bindings.nvrtc")
    error, major, minor = nvrtc.nvrtcVersion()
    assert not error
    return f"{major}.{minor}"
