"""Yosys without what it prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pyosys import libyosys


def passes(commands: Iterable[str]) -> None:
    """Run the passes of Yosys on a new design."""
    design = libyosys.Design()
    with _silent():
        for command in commands:
            libyosys.run_pass(command, design)


@contextmanager
def _silent() -> Iterator[None]:
    sys.stdout.flush()
    stdout = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(nowhere)
