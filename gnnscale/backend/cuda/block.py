"""A layer of a sample in a device's memory, over which kernels compute."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from gnnscale.backend.cuda import activation, aggregation, attention, sums
from gnnscale.backend.cuda.edges import BlockArrays
from gnnscale.model.activation import Activation
from gnnscale.model.device_block import DeviceBlock, Rule


@dataclass(frozen=True, kw_only=True)
class CudaBlock(BlockArrays, DeviceBlock):
    """The arrays of a block, and what layers compute over it."""

    def copy(self, vertices: torch.Tensor) -> CudaBlock:
        """Return a block that the next samples do not overwrite.

        Args:
            vertices: a copy of those of the mini-batch.
        """
        arrays = ("indptr", "indices", "importance", "edge_weights", "weight_sums")
        copied = {
            name: each.clone() for name in arrays if (each := getattr(self, name)) is not None
        }
        return replace(
            self,
            **copied,
            edge_vertices=None,
            vertices=vertices[: self.num_src],
            num_vertices=self.num_vertices.clone(),
            num_used=self.num_used.clone(),
            step=self.step.clone(),
        )

    def activation(
        self, p: float, *, seed: int, step: int, layer: int, sources: bool = False
    ) -> Activation:
        """Return the activation of the rows of its destinations, or of its ``sources``."""
        return activation.DeviceActivation(
            p=p,
            seed=seed,
            step=step,
            layer=layer,
            vertices=self.vertices[: self.num_src if sources else self.num_dst],  # type: ignore[arg-type]
            count=self.num_vertices[1:] if sources else self.num_vertices,
            block=self,
        )

    def aggregate(
        self, h: torch.Tensor, rule: Rule, degrees: torch.Tensor | None, act: Activation | None
    ) -> torch.Tensor:
        """Activate ``h`` and aggregate it, with gradient."""
        return aggregation.aggregate(self, h, rule, degrees, act)

    def with_self_edges(self) -> CudaBlock:
        """Return the block with an edge from every destination to itself, first in its list."""
        return attention.with_self_edges(self)

    def edge_scores(self, src: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
        """Return ``src[u] + dst[v]`` of each edge, with gradient."""
        return attention.edge_scores(self, src, dst)

    def attend(self, scores: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """Sum source rows with the softmax of their edges' scores."""
        return attention.attend(self, scores, z)

    def sums(self, degrees: torch.Tensor | None) -> sums.DeviceSums:
        """Return the reductions of its edges' messages."""
        return sums.DeviceSums(self, degrees)
