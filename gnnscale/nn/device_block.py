"""Blocks in the memory of a device that has its own kernels."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import torch
from torch import Tensor

from gnnscale import ops
from gnnscale.core import IntArray
from gnnscale.sampling import Block


@dataclass(frozen=True, kw_only=True)
class Activation:
    """ReLU and dropout of one layer's output in one step.

    The dropped values are a pure function of ``(seed, step, layer, vertex, column)``: a resumed run
    repeats an uninterrupted run, and all devices drop the same values of a vertex.
    """

    p: float  #: probability of dropping, rounded to 1/65536; 0 when evaluating
    seed: int  #: seed of the run
    step: int  #: step of the run
    layer: int  #: number of the layer whose output is activated
    vertices: IntArray  #: ``[n]`` int32 or int64, the vertex of each row

    def apply_(self, x: Tensor) -> float:
        """Overwrite ``x`` ``[n, f]`` by ReLU and dropout; return the applied factor 1 / (1 - p)."""
        return ops.relu_dropout(
            x,
            self.vertices,
            p=self.p,
            seed=self.seed,
            step=self.step,
            layer=self.layer,
            num_threads=torch.get_num_threads(),
        )

    def gradient(self, y: Tensor, grad: Tensor, scale: float) -> Tensor:
        """Return the gradient of the input of ``apply_``, which returned ``scale`` and wrote ``y``.

        ``y`` and its contiguous gradient ``grad`` are ``[n, f]``.
        """
        return ops.relu_dropout_backward(y, grad, scale=scale, num_threads=torch.get_num_threads())


class Rule(Enum):
    """Coefficients of a linear aggregation, for devices that compute coefficients themselves."""

    #: ``1 / sqrt(D(v) D(u))``, and the vertex's own row is added (``GCNLayer``)
    SYMMETRIC = "symmetric"
    #: 1 / (number of neighbors), and the vertex's own row is concatenated (``SAGELayer``)
    MEAN = "mean"
    #: 1, and the vertex's own row is added (``GINLayer``)
    SUM = "sum"


class MessageSums(Protocol):
    """Reductions of messages ``[num_edges, ...]`` to ``[num_dst, ...]``; see ``Segments``."""

    num_dst: int  #: number of destinations
    dst: Tensor  #: ``[num_edges]`` int64 destination of each edge, ascending

    def sum(self, messages: Tensor) -> Tensor:
        """Return each destination's sum of messages, scaled up if neighbors were sampled."""

    def mean(self, messages: Tensor) -> Tensor:
        """Return the mean of each destination's messages, zeros without any."""

    def max(self, messages: Tensor) -> Tensor:
        """Return the maximum of each destination's messages, zeros without any."""


class DeviceBlock(Block, ABC):
    """Block whose arrays are tensors on a device.

    ``num_dst``, ``num_src`` and ``num_edges`` may be upper bounds, if only the device knows the
    numbers. Computed rows after the last vertex are then zeros, and so are their gradients.
    """

    @abstractmethod
    def activation(
        self, p: float, *, seed: int, step: int, layer: int, sources: bool = False
    ) -> Activation:
        """Return ReLU and dropout, with probability ``p``, of destinations' rows.

        With ``sources``, of source rows. ``seed``, ``step``, ``layer`` select the random numbers.
        """

    @abstractmethod
    def aggregate(
        self, h: Tensor, rule: Rule, degrees: Tensor | None, act: Activation | None
    ) -> Tensor:
        """Activate ``h`` and aggregate it, with gradient; see ``functional.aggregate``.

        ``h`` ``[num_src, f]``, float32 or bfloat16 and contiguous, is overwritten by ``act``.
        ``degrees`` are ``[num_src]`` float32 in-degrees in the full graph, if the rule needs them.
        """

    @abstractmethod
    def with_self_edges(self) -> "DeviceBlock":
        """Return the block with an edge from every destination to itself, first in its list."""

    @abstractmethod
    def edge_scores(self, src: Tensor, dst: Tensor) -> Tensor:
        """Return ``src[u] + dst[v]`` for each edge from u to v, with gradient."""

    @abstractmethod
    def attend(self, scores: Tensor, z: Tensor) -> Tensor:
        """Return each destination's sum of ``z``, weighted by the softmax of edge ``scores``."""

    @abstractmethod
    def sums(self, degrees: Tensor | None) -> MessageSums:
        """Return an object that sums, averages or maximizes messages over each destination.

        ``degrees`` are ``[num_src]`` full-graph in-degrees. None: the block has all neighbors.
        """

    @abstractmethod
    def sources(self) -> Tensor:
        """Return the index of each edge's source in the block, ``[num_edges]`` int32."""

    @abstractmethod
    def destinations(self) -> Tensor:
        """Return each edge's destination in the block, ``[num_edges]`` int32, ascending."""
