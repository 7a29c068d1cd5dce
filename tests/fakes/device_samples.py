"""Random topologies, and samples of kernels on the host beside those of the native sampler."""

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from gnnscale import Graph
from gnnscale.backend.cuda.capacity import DeviceGraph, Sampling
from gnnscale.backend.cuda.host_kernels import HostKernels
from gnnscale.backend.cuda.sampler import CudaSampler
from gnnscale.graph import EdgeData
from gnnscale.sampling import Block, MiniBatch

HOST = torch.device("cpu")
SEED = 2**63 + 11


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of a random graph."""

    num_vertices: int
    num_edges: int
    hub: int  #: edges of vertex 0, besides
    wide: bool = False
    weighted: bool = False
    rng: int = 0

    def graph(self) -> Graph:
        """Draw lists with repeated neighbours and loops, and weights of which some are 0."""
        rng = np.random.default_rng(self.rng)
        num_edges = self.num_edges + self.hub
        dst = (rng.random(num_edges) ** 2 * self.num_vertices).astype(np.int64)
        dst[self.num_edges :] = 0
        src = (rng.random(num_edges) ** 3 * self.num_vertices).astype(np.int64)
        order = np.lexsort((src, dst))
        indptr = np.zeros(self.num_vertices + 1, np.int64)
        np.cumsum(np.bincount(dst, minlength=self.num_vertices), out=indptr[1:])
        weights = rng.choice([0, 1e-30, 0.5, 1, 3.25], num_edges).astype(np.float32)
        weights *= rng.random(num_edges, dtype=np.float32)
        return Graph(
            name="random",
            indptr=indptr,
            indices=src[order].astype(np.int64 if self.wide else np.int32),
            features=np.zeros((self.num_vertices, 1), np.float32),
            feature_dtype="float32",
            labels=np.zeros(self.num_vertices, np.int64),
            num_classes=1,
            edges=EdgeData(weights=weights if self.weighted else None),
        )


shapes = st.builds(
    Shape,
    num_vertices=st.integers(1, 60),
    num_edges=st.integers(0, 600),
    hub=st.sampled_from([0, 0, 90, 3000]),
    wide=st.booleans(),
    weighted=st.booleans(),
    rng=st.integers(0, 1000),
)
fanouts = st.lists(
    st.sampled_from([-1, 1, 2, 5, 8, 9, 16, 17, 31, 32, 33, 40, 300]), min_size=1, max_size=3
)


def new_sampler(
    graph: Graph, sampling: Sampling, *, max_seeds: int, kernels: Any = None, **options: Any
) -> CudaSampler:
    return CudaSampler(
        DeviceGraph.copy_of(graph, HOST),
        kernels or HostKernels(num_threads=1),
        sampling,
        seed=SEED,
        max_seeds=max_seeds,
        device=HOST,
        **options,
    )


def seeds_of(graph: Graph, count: int, step: int) -> np.ndarray:
    return np.random.default_rng(step).permutation(graph.num_vertices)[:count]


def assert_same(found: MiniBatch, expected: MiniBatch) -> None:
    identity = attrgetter("seed", "step", "num_seeds")
    assert identity(found) == identity(expected)
    assert_equal(found.input_vertices, expected.input_vertices)
    for one, other in zip(found.blocks, expected.blocks, strict=True):
        for field in fields(Block):
            assert_equal(getattr(one, field.name), getattr(other, field.name))


def assert_equal(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(found, np.ndarray):
        assert found.dtype == expected.dtype
        assert found.tolist() == expected.tolist()
    else:
        assert found == expected


def check(graph: Graph, sampling: Sampling, *, num_seeds: int, kernels: Any = None) -> None:
    """Compare a few steps with the native sampler."""
    sampler = new_sampler(graph, sampling, max_seeds=max(num_seeds, 1), kernels=kernels)
    native = sampling.sampler(graph, seed=SEED, num_threads=1)
    for step in (0, 7, 2**40):
        seeds = seeds_of(graph, num_seeds, step)
        found = sampler.sample(torch.from_numpy(seeds), step)
        expected = native.sample(seeds, step)
        assert_same(found.to_minibatch(weight_sums=graph.weight_sums), expected)


class Recording:
    """Kernels on the host, and the names of those that were launched."""

    def __init__(self) -> None:
        self._kernels = HostKernels(num_threads=1)
        self.num_multiprocessors = self._kernels.num_multiprocessors
        self.names: list[str] = []

    def launch(self, name: str, *arguments: Any, **options: Any) -> None:
        self.names.append(name)
        self._kernels.launch(name, *arguments, **options)
