"""The assembly of kernels, by NVRTC's own interface: cuda-core asks a driver for PTX."""

from pathlib import Path
from typing import Any

from cuda.bindings import nvrtc

from gnnscale.backend.cuda import kernels


def done(answer: tuple[Any, ...]) -> Any:
    """What a call of NVRTC returns after its status, which must be good."""
    status, *rest = answer
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, status
    return rest[0] if rest else None


def ptx_of(file: Path, architecture: str) -> str:
    root = kernels.sources()
    folders = (root / "include", root / "include" / "nvrtc", kernels.native_headers(root))
    words = [f"--gpu-architecture={architecture}", "-std=c++17", "-default-device"]
    words += ["--device-int128", "--fmad=false", *(f"-I{folder}" for folder in folders)]
    program = done(nvrtc.nvrtcCreateProgram(file.read_bytes(), file.name.encode(), 0, [], []))
    done(nvrtc.nvrtcCompileProgram(program, len(words), [each.encode() for each in words]))
    text = bytearray(done(nvrtc.nvrtcGetPTXSize(program)))
    done(nvrtc.nvrtcGetPTX(program, text))
    done(nvrtc.nvrtcDestroyProgram(program))
    return text.decode().rstrip("\0")
