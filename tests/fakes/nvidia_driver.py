"""A machine with an NVIDIA driver: libraries that tests compile, which answer and note."""

import os
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent / "nvidia"


def driver_in(folder: Path) -> dict[str, str]:
    """Compile the libraries into ``folder``; the environment of a process that finds them."""
    for name in ("libnvidia-ml", "libcuda"):
        paths = (SOURCES / f"{name}.cpp", "-o", folder / f"{name}.so.1")
        subprocess.run(["g++", "-shared", "-fPIC", "-O1", *map(str, paths)], check=True)
    own = {"LD_LIBRARY_PATH": str(folder), "GNNSCALE_TEST_CUDA_LOG": str(folder / "log")}
    return {**os.environ, **own}
