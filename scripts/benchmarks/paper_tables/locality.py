"""How many inputs of its mini-batches a part of METIS has, on the real graphs of the tests."""

import gzip
import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gnnscale.core import IntArray
from gnnscale.data import from_arrays
from gnnscale.graph import Graph
from gnnscale.partition import Metis
from gnnscale.sampling import NeighborSampler

FANOUTS, SEEDS = (25, 10), 1024
COUNTS = (2, 4, 8, 16)


def graphs() -> Iterator[Graph]:
    folder = Path(os.environ.get("GNNSCALE_TEST_DATA", "../shared/data"))
    with np.load(folder / "heterophilous" / "tolokers.npz") as file:
        yield _graph("tolokers", file["edges"].T, both=True)
    with gzip.open(folder / "snap" / "soc-Slashdot0902.txt.gz") as text:
        yield _graph("soc-Slashdot0902", np.loadtxt(text, dtype=np.int64).T, both=False)
    with zipfile.ZipFile(folder / "musae_git" / "git_web_ml.zip") as archive:
        name = next(each for each in archive.namelist() if each.endswith("edges.csv"))
        text = io.TextIOWrapper(archive.open(name))
        ends = np.loadtxt(text, delimiter=",", skiprows=1, dtype=np.int64).T
        yield _graph("MUSAE GitHub", ends, both=True)
    with np.load(folder / "webgraph" / "cnr-2000_csr.npz") as file:
        sources = np.repeat(np.arange(len(file["indptr"]) - 1), np.diff(file["indptr"]))
        yield _graph("cnr-2000", np.stack([sources, file["indices"].astype(np.int64)]), both=True)


def _graph(name: str, ends: IntArray, *, both: bool) -> Graph:
    if both:
        ends = np.concatenate([ends, ends[::-1]], axis=1)
    count = int(ends.max()) + 1
    every = np.arange(count)
    rows, labels = np.zeros((count, 1), np.float32), np.zeros(count, np.int64)
    return from_arrays((ends[0], ends[1]), rows, labels, train_idx=every, num_classes=2, name=name)


def share(graph: Graph, num_parts: int) -> float:
    """Return the mean share over the parts."""
    parts = Metis().assign(graph, num_parts=num_parts, num_hops=2, num_threads=1)
    assert parts.owner is not None
    sampler = NeighborSampler(graph, fanouts=list(FANOUTS), seed=1)
    random, found = np.random.default_rng(0), []
    for part in range(num_parts):
        own = np.flatnonzero(parts.owner == part)
        seeds = random.choice(own, min(SEEDS, len(own) // 4), replace=False)
        batch = sampler.sample(seeds, part)
        found.append((parts.owner[batch.input_vertices] == part).mean())
    return float(np.mean(found))


def show() -> None:
    print(f"{'graph':18s}", *(f"{count:3d} parts" for count in COUNTS))
    for graph in graphs():
        shares = (share(graph, count) for count in COUNTS)
        print(f"{graph.name:18s}", *(f"{each:9.2f}" for each in shares), flush=True)
    print(f"{'K^-0.66':18s}", *(f"{count**-0.66:9.2f}" for count in COUNTS))
