import ctypes
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from gnnscale.backend.fpga.csim.library import seal

PROGRAM = Path(__file__).parent / "programs" / "step.cpp"


class Built(Protocol):
    def __call__(self, **macros: object) -> Path: ...


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Compile the program of the tests once for each set of macros."""
    folder = tmp_path_factory.mktemp("bitstreams")

    def build(**macros: object) -> Path:
        defined = [f"-D{name}={value}" for name, value in macros.items()]
        path = folder / f"step{''.join(defined)}.so"
        if not path.exists():
            options = ["-std=c++20", "-O1", "-fPIC", "-shared", "-pthread", "-Wall", "-Werror"]
            subprocess.run(["g++", *options, *defined, str(PROGRAM), "-o", str(path)], check=True)
            path.write_bytes(seal(path.read_bytes()))
        return path

    return build


@pytest.fixture
def bitstream(built: Built) -> Path:
    """Four compute units with banks of 1 MiB."""
    return built()


@pytest.fixture
def gate(bitstream: Path) -> Iterator[Callable[[], None]]:
    """Let runs go on that hold; they are let go when the test ends, too."""
    library = ctypes.CDLL(str(bitstream))
    library.open_gate(0)
    yield lambda: library.open_gate(1)
    library.open_gate(1)
