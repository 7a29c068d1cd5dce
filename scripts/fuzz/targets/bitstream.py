"""Bitstreams of a simulated card: damaged libraries are opened as a run opens them."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path

from gnnscale.backend.fpga.board import Board, BoardError
from gnnscale.backend.fpga.csim.build import Design, library
from gnnscale.backend.fpga.csim.library import seal
from gnnscale.backend.fpga.drivers import load_csim

from ..case import Input, case_rng
from ..mutate import BYTES, INTEGERS
from ..structured import json_value
from ..verdict import WrongResultError
from .artefact import Artefact, Valid

__all__ = ["Bitstreams"]

_FILE = "kernel.xclbin"
_DESIGN = re.compile(rb'\{"format":[^\x00]*')
#: What a library may begin with in place of its first bytes.
_MAGIC = (b"xclbin2\x00", b"\x7fELF", b"MZ", b"#!/bin/sh\n", b"")


class Bitstreams(Artefact):
    """``Board`` over the module that simulates ``pyxrt``: kernels, arguments, compute units."""

    name = "bitstream"
    refusals = (BoardError,)

    def valid(self, folder: Path) -> list[Valid]:
        """Take the library of the design that ships; where none is installed, it is compiled."""
        return [Valid({_FILE: library(Design()).read_bytes()})]

    def spoiled(
        self, files: Mapping[str, bytes], key: str, number: int, keep: frozenset[int] | None
    ) -> tuple[dict[str, bytes], list[str]]:
        """Damage the headers, what the library says of itself, or anything."""
        rng = case_rng(key, number, "kind")
        if rng.random() < 0.05:
            return {}, []
        if rng.random() < 0.3:  # no damage, but another program's: it says so itself
            inner = files[_FILE][: -len(seal(b""))]
            return {_FILE: seal(_said(inner, rng))}, []
        edit = rng.choice((_headers, _headers, _said, _beginning, *BYTES))
        return {_FILE: edit(files[_FILE], rng)}, []

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        """Open two compute units."""
        board = Board(load_csim(), index=0, bitstream=str(path / _FILE), compute_units=2, slots=1)
        if board.compute_units != 2:
            raise WrongResultError("other compute units than were asked for")
        board.close()


def _headers(data: bytes, rng: random.Random) -> bytes:
    """Overwrite a field of the ELF header, of a program header or of a section's."""
    programs, sections = (int.from_bytes(data[at : at + 8], "little") for at in (32, 40))
    begin = rng.choice((0, programs, sections))
    end = {0: 64, programs: programs + 56 * 11}.get(begin, len(data))
    width = rng.choice((2, 4, 8))
    at = rng.randrange(begin, max(end - width, begin + 1))
    value = (rng.choice(INTEGERS) % (1 << 8 * width)).to_bytes(width, "little")
    return data[:at] + value + data[at + width :]


def _said(data: bytes, rng: random.Random) -> bytes:
    """Edit what the library says of its design, in as many bytes."""
    found = _DESIGN.search(data)
    assert found is not None
    edited = json_value(found[0], rng)[: len(found[0])].ljust(len(found[0]))
    return data[: found.start()] + edited + data[found.end() :]


def _beginning(data: bytes, rng: random.Random) -> bytes:
    magic = rng.choice(_MAGIC)
    return magic + data[rng.choice((0, len(magic))) :]
