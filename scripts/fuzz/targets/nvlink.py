"""Matrices of NVLink: damaged ones are read, and divided into cliques."""

from __future__ import annotations

import random
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import numpy as np

from gnnscale.partition.nvlink import MACHINES, disjoint_cliques, links_of

from ..case import Input, WrongResultError, case_rng
from .folders import Artefact, Valid

_FILE = "links.csv"


class NvlinkMatrices(Artefact):
    """``partitioner.nvlink=FILE``: the matrix, and the cliques of its GPUs."""

    name = "nvlink"
    names = ("partitioner.nvlink",)

    def valid(self, folder: Path) -> list[Valid]:
        import networkx  # noqa: F401

        shipped = resources.files("gnnscale.partition") / "machines"
        texts = [(shipped / f"{machine}.csv").read_bytes() for machine in MACHINES]
        return [Valid({_FILE: text}) for text in (*texts, b"0 0\n0 0\n")]

    def spoiled(
        self, files: Mapping[str, bytes], key: str, number: int, keep: frozenset[int] | None
    ) -> tuple[dict[str, bytes], list[str]]:
        rng = case_rng(key, number, "made up")
        if rng.random() < 0.5:
            return super().spoiled(files, key, number, keep)
        return {_FILE: _made_up(rng)}, []

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        links = links_of(str(path / _FILE))
        if links.ndim != 2 or (links != links.T).any() or links.min() < 0:
            raise WrongResultError("no matrix of links was read")
        cliques = disjoint_cliques(links)
        if sorted(gpu for clique in cliques for gpu in clique) != list(range(len(links))):
            raise WrongResultError("a GPU is in no clique, or in several")
        for clique in cliques:
            if (
                np.delete(links[np.ix_(clique, clique)].ravel(), slice(None, None, len(clique) + 1))
                < 1
            ).any():
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
