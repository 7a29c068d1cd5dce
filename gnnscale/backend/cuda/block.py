"""A layer of a sample in a device's memory, over which kernels compute."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from gnnscale.backend.cuda import aggregation, attention
from gnnscale.backend.cuda import kernels as layouts
from gnnscale.backend.cuda import segment_kernels as sums
from gnnscale.backend.cuda.block_edges import BlockArrays
from gnnscale.nn.device_block import Activation, DeviceBlock, Rule

#: A probability is a whole number of these, as for the host.
_PROBABILITIES = 65536


@dataclass(frozen=True, kw_only=True)
class DeviceActivation(Activation):
    """The activation of rows whose number the device alone may know; rows after them are zeros.

    The step is the device's, too: that of the block.
    """

    block: BlockArrays  #: whose first vertices have the rows
    count: torch.Tensor  #: int64 on the device: the first entry is how many of the rows there are

    def apply_(self, x: torch.Tensor) -> float:
        """Activate ``x`` ``[n, f]`` in place; return the factor of what is kept, 1 / (1 - p)."""
        drop = min(round(self.p * _PROBABILITIES), _PROBABILITIES - 1)
        scale = _PROBABILITIES / (_PROBABILITIES - drop)
        vertices, kernels = self.block.vertices, self.block.kernels
        kernels.launch(
            f"relu_dropout_{layouts.columns_at_once(x)}",
            x,
            np.int32(layouts.row_type(x)),
            np.int64(layouts.row_bytes(x)),
            np.int64(x.shape[1]),
            vertices,
            np.int32(vertices.dtype == torch.int64),
            self.count,
            np.int64(len(x)),
            np.uint64(self.seed),
            self.block.step,
            np.uint64(self.layer),
            np.uint32(drop),
            np.float32(scale),
            grid=layouts.grid(kernels),
        )
        return scale

    def gradient(self, y: torch.Tensor, grad: torch.Tensor, scale: float) -> torch.Tensor:
        """Return the gradient of what was activated."""
        out, kernels = torch.empty_like(grad), self.block.kernels
        kernels.launch(
            f"relu_dropout_backward_{layouts.columns_at_once(y, grad, out)}",
            y,
            grad,
            out,
            np.int32(layouts.row_type(grad)),
            np.int64(grad.numel()),
            np.float32(scale),
            grid=layouts.grid(kernels),
        )
        return out


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
        return DeviceActivation(
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

    def sums(self, degrees: torch.Tensor | None) -> sums.DeviceMessageSums:
        """Return the reductions of its edges' messages."""
        return sums.DeviceMessageSums(self, degrees)
