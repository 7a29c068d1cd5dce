"""What every sampler offers: mini-batches as a pure function of seeds, run seed and step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnscale.graph import Graph
from gnnscale.ops import Sampled
from gnnscale.sampler.minibatch import Block, MiniBatch

#: Hops that a sampler goes.
MAX_HOPS = 16


class Sampler(Protocol):
    """Draws computation graphs for seeds; several threads may call it at once."""

    #: Threads of one call; may be changed between calls.
    num_threads: int

    def sample(self, seeds: NDArray[Any], step: int) -> MiniBatch:
        """Return the mini-batch of ``seeds`` (distinct vertex ids) at ``step``.

        Raises:
            ValueError: a seed is not a vertex, or appears twice.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class SamplerConfig(ABC):
    """Base of the configuration group ``sampler``."""

    @property
    @abstractmethod
    def num_layers(self) -> int:
        """Number of hops, which must be the model's number of layers."""

    @abstractmethod
    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> Sampler:
        """Build the sampler for ``graph``. The number of threads changes its speed alone."""


def whole_numbers(name: str, values: Any) -> list[int]:
    """Return a copy of a sampler's argument; native code checks the numbers themselves.

    Raises:
        TypeError: it is neither a list nor a tuple.
    """
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{name}: {type(values).__name__}, allowed is a list of whole numbers")
    return list(values)


def to_minibatch(
    num_seeds: int,
    sampled: Sampled,
    *,
    seed: int,
    step: int,
    weight_sums: NDArray[np.float32] | None = None,
) -> MiniBatch:
    """Order the hops of a native sample as blocks, inputs first.

    ``weight_sums`` are ``[num_vertices]`` of the whole graph, if it has weights.
    """
    input_vertices, hops, edge_vertices = sampled
    sums = None if weight_sums is None else weight_sums[input_vertices]
    blocks = tuple(
        Block(
            indptr=hop.indptr,
            indices=hop.indices,
            num_src=hop.num_src,
            importance=hop.importance,
            edge_vertices=edge_vertices if index == 0 else None,
            edge_weights=hop.edge_weights,
            weight_sums=None if sums is None else sums[: hop.num_src],
        )
        for index, hop in enumerate(reversed(hops))
    )
    return MiniBatch(
        seed=seed, step=step, num_seeds=num_seeds, input_vertices=input_vertices, blocks=blocks
    )
