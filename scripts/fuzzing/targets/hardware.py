"""Damaged files about hardware: NVLink matrices, platforms, degrees, bitstreams of csim."""

import json
import math
import os
import random
import re
from dataclasses import asdict
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.backend.fpga.board import BoardError, OpenBoard
from gnnscale.backend.fpga.csim.build import SimulatedDesign, library, load_csim
from gnnscale.backend.fpga.csim.library import seal
from gnnscale.nn import GCN
from gnnscale.partition.nvlink import MACHINES, disjoint_cliques, find_links
from gnnscale.planner.cost_model.hitgnn import ComputeDesign as DesignSizes
from gnnscale.planner.fpga_board import board
from gnnscale.planner.graphs import Degrees, expected_size
from gnnscale.planner.platform import MachineIdentity, ThisMachine
from gnnscale.planner.simulator import SimulateConfig, simulate
from gnnscale.report import simulate as report
from gnnscale.sampling import NeighborSampling

from ..case import Edited, Files, Input, Keep, WrongResultError, case_rng
from ..formats import json_value
from ..mutate import BYTES, INTEGERS
from .folders import Artefact, Valid, YamlFile, check_shown, overwritten
from .samples import npy

_LINKS = "links.csv"


class NvlinkMatrices(Artefact):
    """``partitioner.nvlink=FILE``: the matrix, and the cliques of its GPUs."""

    name = "nvlink"
    names = ("partitioner.nvlink",)

    def valid(self, folder: Path) -> list[Valid]:
        import networkx  # noqa: F401

        shipped = resources.files("gnnscale.partition") / "machines"
        texts = [(shipped / f"{machine}.csv").read_bytes() for machine in MACHINES]
        return [Valid({_LINKS: text}) for text in (*texts, b"0 0\n0 0\n")]

    def spoiled(self, files: Files, key: str, number: int, keep: Keep) -> Edited:
        rng = case_rng(key, number, "made up")
        if rng.random() < 0.5:
            return super().spoiled(files, key, number, keep)
        return {_LINKS: _made_up(rng)}, []

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        links = find_links(str(path / _LINKS))
        if links.ndim != 2 or (links != links.T).any() or links.min() < 0:
            raise WrongResultError("no matrix of links was read")
        cliques = disjoint_cliques(links)
        if sorted(gpu for clique in cliques for gpu in clique) != list(range(len(links))):
            raise WrongResultError("a GPU is in no clique, or in several")
        for clique in cliques:
            if (links[np.ix_(clique, clique)] + np.eye(len(clique)) < 1).any():
                raise WrongResultError("two GPUs of a clique are not linked")


def _made_up(rng: random.Random) -> bytes:
    """Return links of up to 60 GPUs, drawn, or in as many cliques as so many can have."""
    count = rng.choice((1, 2, 3, 8, 16, 33, 60))
    groups = rng.choice((0, 0, 2, 3, 4))
    density = rng.random()
    links = np.zeros((count, count), np.int64)
    for row in range(count):
        for column in range(row):
            # Between groups of three all are linked, within none (Moon and Moser, 1965).
            linked = row // groups != column // groups if groups else rng.random() < density
            links[row, column] = links[column, row] = linked * rng.choice((1, 1, 2, 1000))
    if rng.random() < 0.2:
        links[rng.randrange(count), rng.randrange(count)] += rng.choice((-1, 1, 1000))
    separator = rng.choice((",", " ", "\t", " , "))
    return "".join(separator.join(map(str, row)) + "\n" for row in links.tolist()).encode()


class Platforms(YamlFile):
    """``platform.yaml``, by its name and where the figures of this machine are kept."""

    name, file = "platform", "platform.yaml"
    #: Planning a machine whose processor trains too takes twenty times as long.
    kinds = (*("named", "kept") * 20, "hybrid")
    #: Mini-batches may be too large for the memory.
    names = ("batch_size=",)
    leaves = frozenset({"home"})

    def valid(self, folder: Path) -> list[Valid]:
        found = self.shipped(["epyc7763_a5000_x4", "epyc7763_u250_x4"])
        here = {"accelerator": None, "num_accelerators": 0}
        found.append(found[0] | here | {"measured_on": asdict(MachineIdentity.current())})
        return [Valid(self.written(each)) for each in found]

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        if made.kind == "kept":
            os.environ["GNNSCALE_HOME"] = str(path)
        machine = ThisMachine(file=None if made.kind == "kept" else path / self.file)
        platform = machine.open()
        counts = [0] if platform.accelerator is None else [1, 2]
        run = {"graph": "products", "model": GCN(hidden=8, num_layers=2), "batch_size": 64}
        run |= {"sampler": NeighborSampling(fanouts=[3, 2]), "fused": False, "prefetch": "auto"}
        how = {"accelerators": counts, "hybrid": made.kind == "hybrid", "seed": 0}
        how |= {"system": "hyscale", "epoch": "auto", "balance": True, "direct": True}
        how |= {"board": board("u250"), "design": DesignSizes(n=8, m=2048)}
        scaling = simulate(SimulateConfig(platform=machine, **run, **how))
        check_shown(partial(report.draw, scaling), partial(report.print_scaling, scaling))
        json.dumps(report.describe(scaling))
        for result in scaling.results:
            figures: Any = (result.epoch_s, result.mteps, result.step_s)
            if not all(each >= 0 for each in figures) or math.isinf(result.epoch_s):
                raise WrongResultError("figures of a run that cannot be")


_DEGREES, _VERTICES = "degrees.npy", 200


class DegreeFiles(Artefact):
    """``degrees=FILE.npy`` of a published graph: its classes, and the mini-batches they give."""

    name = "degrees"

    def valid(self, folder: Path) -> list[Valid]:
        rng = np.random.default_rng(0)
        found = (rng.integers(0, 50, _VERTICES), rng.integers(0, 50, (2, _VERTICES), np.int32))
        return [Valid({_DEGREES: npy(each)}) for each in found]

    def spoiled(self, files: Files, key: str, number: int, keep: Keep) -> Edited:
        if case_rng(key, number, "kind").random() < 0.5:
            return overwritten(files, key, number, keep)
        return super().spoiled(files, key, number, keep)

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        degrees = Degrees.from_npy(path / _DEGREES, _VERTICES)
        if degrees.counts.sum() != _VERTICES:
            raise WrongResultError("not a class for each vertex")
        size, met = expected_size(degrees, [5, 3], 20)
        if not np.isfinite(np.concatenate([size.vertices, size.edges, met])).all():
            raise WrongResultError("sizes of a mini-batch that cannot be")


_BITSTREAM = "kernel.xclbin"
_DESIGN = re.compile(rb'\{"format":[^\x00]*')
#: What a library may begin with in place of its first bytes.
_MAGIC = (b"xclbin2\x00", b"\x7fELF", b"MZ", b"#!/bin/sh\n", b"")


class Bitstreams(Artefact):
    """``OpenBoard`` over the module that simulates ``pyxrt``: kernels, arguments, compute units."""

    name = "bitstream"
    refusals = (BoardError,)

    def valid(self, folder: Path) -> list[Valid]:
        return [Valid({_BITSTREAM: library(SimulatedDesign()).read_bytes()})]

    def spoiled(self, files: Files, key: str, number: int, keep: Keep) -> Edited:
        rng = case_rng(key, number, "kind")
        kind = rng.random()
        if kind < 0.2:  # removed, or as it was
            return {} if kind < 0.05 else dict(files), []
        if rng.random() < 0.3:  # no damage, but another program's: it says so itself
            inner = files[_BITSTREAM][: -len(seal(b""))]
            return {_BITSTREAM: seal(_said(inner, rng))}, []
        if rng.random() < 0.1:
            magic = rng.choice(_MAGIC)
            return {_BITSTREAM: magic + files[_BITSTREAM][rng.choice((0, len(magic))) :]}, []
        edit = rng.choice((_headers, _headers, _said, *BYTES))
        return {_BITSTREAM: edit(files[_BITSTREAM], rng)}, []

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        sizes = {"index": 0, "compute_units": 2, "slots": 1}
        board = OpenBoard(load_csim(), bitstream=str(path / _BITSTREAM), **sizes)
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
