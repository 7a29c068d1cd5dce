"""Blocks in the memory of a device that computes over them by kernels of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import torch

from gnnscale import ops
from gnnscale.core import IntArray
from gnnscale.sampling import Block


@dataclass(frozen=True, kw_only=True)
class Activation:
    """ReLU and dropout of one layer's output in one step.

    What is dropped is a pure function of ``(seed, step, layer, vertex, column)``: a resumed run
    repeats an uninterrupted one, and devices that compute the same vertex drop the same of it.
    """

    p: float  #: probability of dropping, rounded to 1/65536; 0 when evaluating
    seed: int  #: of the run
    step: int  #: of the run
    layer: int  #: whose output is activated
    vertices: IntArray  #: ``[n]`` int32 or int64, the vertex of each row

    def apply_(self, x: torch.Tensor) -> float:
        """Activate ``x`` ``[n, f]`` in place; return the factor of what is kept, 1 / (1 - p)."""
        return ops.relu_dropout(
            x,
            self.vertices,
            p=self.p,
            seed=self.seed,
            step=self.step,
            layer=self.layer,
            num_threads=torch.get_num_threads(),
        )

    def gradient(self, y: torch.Tensor, grad: torch.Tensor, scale: float) -> torch.Tensor:
        """Return the gradient of what was activated.

        Args:
            y: ``[n, f]`` that ``apply_`` has made.
            grad: ``[n, f]`` gradient of it, contiguous.
            scale: that ``apply_`` returned.
        """
        return ops.relu_dropout_backward(y, grad, scale=scale, num_threads=torch.get_num_threads())


class Rule(Enum):
    """What an edge counts in a linear aggregation, from which a device makes coefficients."""

    #: ``1 / sqrt(D(v) D(u))``, and the vertex's own row is added (``GCNLayer``)
    SYMMETRIC = "symmetric"
    #: 1 / (number of neighbours), and the vertex's own row is concatenated (``SAGELayer``)
    MEAN = "mean"
    #: 1, and the vertex's own row is added (``GINLayer``)
    SUM = "sum"


class MessageSums(Protocol):
    """Reductions of messages ``[num_edges, ...]`` to ``[num_dst, ...]``; see ``Segments``."""

    num_dst: int  #: number of destinations
    dst: torch.Tensor  #: ``[num_edges]`` int64 destination of each edge, ascending

    def sum(self, messages: torch.Tensor) -> torch.Tensor:
        """Return the sum of each destination's messages."""
        ...

    def mean(self, messages: torch.Tensor) -> torch.Tensor:
        """Return the mean of each destination's messages, zeros without any."""
        ...

    def max(self, messages: torch.Tensor) -> torch.Tensor:
        """Return the maximum of each destination's messages, zeros without any."""
        ...


class DeviceBlock(Block, ABC):
    """A block whose arrays are tensors of a device.

    The device alone may know how many edges and vertices it has. ``num_dst``, ``num_src`` and
    ``num_edges`` are then upper bounds: rows after the last vertex are zeros in what is computed
    here, and so are their gradients.
    """

    @abstractmethod
    def activation(
        self, p: float, *, seed: int, step: int, layer: int, sources: bool = False
    ) -> Activation:
        """Return the activation of the rows of its destinations, or of its ``sources``."""

    @abstractmethod
    def aggregate(
        self, h: torch.Tensor, rule: Rule, degrees: torch.Tensor | None, act: Activation | None
    ) -> torch.Tensor:
        """Activate ``h`` and aggregate it, with gradient; see ``functional.aggregate``.

        Args:
            h: ``[num_src, f]`` float32 or bfloat16, contiguous; overwritten if it is activated.
            degrees: ``[num_src]`` float32 in-degrees in the whole graph, if the rule needs them.
            act: activation of ``h``, None to use it as it is.
        """

    @abstractmethod
    def with_self_edges(self) -> DeviceBlock:
        """Return the block with an edge from every destination to itself, first in its list."""

    @abstractmethod
    def edge_scores(self, src: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
        """Return ``src[u] + dst[v]`` of each edge, with gradient.

        Args:
            src: ``[num_src, num_heads]`` float32.
            dst: ``[num_dst, num_heads]`` float32.

        Returns:
            ``[num_edges, num_heads]`` float32.
        """

    @abstractmethod
    def attend(self, scores: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """Sum source rows with the softmax of their edges' scores; see ``gat.attend``."""

    @abstractmethod
    def sums(self, degrees: torch.Tensor | None) -> MessageSums:
        """Return the reductions of its edges' messages."""

    @abstractmethod
    def sources(self) -> torch.Tensor:
        """Return the source of each edge, ``[num_edges]`` int32, that of no edge after the last."""

    @abstractmethod
    def destinations(self) -> torch.Tensor:
        """Return the destination of each edge, ``[num_edges]`` int32, ascending."""
