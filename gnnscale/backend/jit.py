"""Compilation of kernels for the host's processor, stored for later runs."""

import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import gnnscale
from gnnscale.core import ConfigError, check_private, track, write_atomically

_COMPILERS = ("g++", "c++", "clang++")


@dataclass(frozen=True)
class Compiler:
    """C++ compiler: its command and the first line of its version."""

    command: tuple[str, ...]
    version: str

    @classmethod
    def find(cls, purpose: str, otherwise: str) -> "Compiler":
        """Return the compiler named by ``CXX`` in the environment, or the first installed of three.

        These are g++, c++ and clang++. ConfigError: it is not installed; the message begins with
        ``purpose``, the activity that needs a compiler, and ends with the advice ``otherwise``.
        """
        chosen = os.environ.get("CXX", "").strip()
        candidates = [tuple(shlex.split(chosen))] if chosen else [(name,) for name in _COMPILERS]
        for command in candidates:
            if shutil.which(command[0]) is not None:
                lines = output([*command, "--version"])[1].splitlines()
                return cls(command, lines[0] if lines else "")
        looked_for = f"CXX={chosen}" if chosen else ", ".join(_COMPILERS)
        raise ConfigError(
            f"{purpose} needs a C++ compiler, which is missing: looked for {looked_for}; "
            f"{otherwise}"
        )

    @property
    def is_clang(self) -> bool:
        """Whether the compiler is clang, which lacks some options of GCC."""
        return "clang" in self.version


def output(command: list[str]) -> tuple[int, str]:
    """Run the compiler ``command``; return its exit status and all its output, in English.

    ConfigError: it cannot be started.
    """
    try:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=os.environ | {"LC_ALL": "C"},
            check=False,
        )
    except OSError as error:
        raise ConfigError(f"{command[0]}: {error.strerror}") from None
    return ran.returncode, ran.stdout


def compile_into(command: list[str], log: Path) -> None:
    """Run a compiler; if it fails, write its full output to ``log``, and raise ConfigError."""
    status, printed = output(command)
    if status != 0:
        write_atomically(log, f"{shlex.join(command)}\n{printed}", shared=True)
        raise ConfigError(f"{first_error(printed, status)}; the full output is in {log}")


def stored(path: Path, title: str, build: Callable[[], None]) -> Path:
    """Return ``path``; if the file is missing, call ``build``, which writes it.

    ``title`` names the progress of ``build``. ConfigError: other users can write the file or its
    folder, see ``check_ours``.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    check_ours(path.parent)
    if not path.is_file():
        with track(title):
            build()
    check_ours(path)
    return path


def first_error(printed: str, status: int) -> str:
    """Return the first line with ``error:`` of a compiler's output, or else the last line.

    Without output, return a text with the exit ``status``.
    """
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    last = lines[-1] if lines else f"the compiler ended with status {status}"
    return next((line for line in lines if "error:" in line), last)


def check_ours(path: Path) -> None:
    """Raise ConfigError if a user other than this one and root owns or can write ``path``."""
    try:
        check_private(path)
    except OSError as error:
        raise ConfigError(
            f"{path}: not used, {error.strerror}; compiled kernels are loaded only if nobody but "
            "you and root can have written them"
        ) from None


def find_sources(name: str, source: Path, what: str) -> Path:
    """Return the folder ``name`` of kernel sources: beside or in the package folder of gnnscale.

    The folder contains the file ``source``; ``what`` names the kernels in a ConfigError.
    """
    # An editable installation has two package folders: build results and sources.
    folders = [Path(folder).parent / name for folder in gnnscale.__path__]
    folders += [Path(folder) / name for folder in gnnscale.__path__]
    for folder in folders:
        if (folder / source).is_file():
            return folder
    raise ConfigError(
        f"the sources of the {what} kernels are not installed; install gnnscale again"
    )


def digest_of_files(root: Path, folders: Iterable[str], suffixes: Iterable[str]) -> str:
    """Return a hash of the contents of all files below ``folders`` of ``root`` with ``suffixes``.

    Contents are hashed in the order of the files' names.
    """
    files = {
        path.relative_to(root).as_posix(): path
        for folder in folders
        for path in (root / folder).rglob("*")
        if path.suffix in suffixes and path.is_file()
    }
    hashes = (hashlib.sha256(files[name].read_bytes()).hexdigest() for name in sorted(files))
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def digest(parts: Iterable[bytes]) -> str:
    """Return 32 hexadecimal digits of a hash of ``parts``; the division into parts counts."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()[:32]
