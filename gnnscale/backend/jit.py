"""Kernels that are compiled here for the processor, and kept for the next time."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import gnnscale
from gnnscale.core import ConfigError, check_private

_COMPILERS = ("g++", "c++", "clang++")


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: how it is called, and the first line of its version."""

    command: tuple[str, ...]
    version: str

    @classmethod
    def find(cls, purpose: str, otherwise: str) -> Compiler:
        """Return what ``CXX`` names, or the first of the usual ones.

        Args:
            purpose: what takes a compiler, for the error if it is missing.
            otherwise: what does without.

        Raises:
            ConfigError: it is missing.
        """
        chosen = os.environ.get("CXX", "").strip()
        candidates = [tuple(shlex.split(chosen))] if chosen else [(name,) for name in _COMPILERS]
        for command in candidates:
            if shutil.which(command[0]) is not None:
                lines = output([*command, "--version"])[1].splitlines()
                return cls(command, lines[0] if lines else "")
        looked_for = f"CXX={chosen}" if chosen else ", ".join(_COMPILERS)
        raise ConfigError(
            f"{purpose} takes a C++ compiler, which is missing: looked for {looked_for}; "
            f"{otherwise}"
        )

    @property
    def is_clang(self) -> bool:
        """Whether it is clang, which lacks some options of GCC."""
        return "clang" in self.version


def output(command: list[str]) -> tuple[int, str]:
    """Run a compiler; return its exit status and its output, in English."""
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


def first_error(printed: str, status: int) -> str:
    """Return the line of a compiler's output that names the error."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    last = lines[-1] if lines else f"the compiler ended with status {status}"
    return next((line for line in lines if "error:" in line), last)


def check_ours(kept: Path) -> None:
    """Refuse to execute what another user of this machine may have written."""
    try:
        check_private(kept)
    except OSError as error:
        raise ConfigError(
            f"{kept}: not used, {error.strerror}; compiled kernels are loaded only if nobody but "
            "you and root can have written them"
        ) from None


def find_sources(name: str, source: Path, what: str) -> Path:
    """Return the folder ``name`` of kernels' sources: the checkout's, or as installed.

    Args:
        source: a file in it, by which it is recognised.
        what: whose sources they are, for the error if they are missing.

    Raises:
        ConfigError: it is missing.
    """
    # In an editable installation the package has two folders: of what was built, and its sources.
    folders = [Path(folder).parent / name for folder in gnnscale.__path__]
    folders += [Path(folder) / name for folder in gnnscale.__path__]
    for folder in folders:
        if (folder / source).is_file():
            return folder
    raise ConfigError(
        f"the sources of the {what} kernels are not installed; install gnnscale again"
    )


def digest_of_files(root: Path, folders: Iterable[str], suffixes: Iterable[str]) -> str:
    """Return a hash of the sources in ``folders`` of ``root``, in the order of their names."""
    files = {
        each.relative_to(root).as_posix(): each
        for folder in folders
        for each in (root / folder).rglob("*")
        if each.suffix in suffixes and each.is_file()
    }
    hashes = (hashlib.sha256(files[name].read_bytes()).hexdigest() for name in sorted(files))
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def digest(parts: Iterable[bytes]) -> str:
    """Return a short hash of ``parts``, each of which counts by itself."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()[:32]
