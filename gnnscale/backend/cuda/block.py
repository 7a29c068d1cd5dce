"""Block (a layer of a sample) in device memory, with the operations of layers over it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from gnnscale.backend.cuda import aggregation, attention, segment_kernels
from gnnscale.backend.cuda.block_edges import BlockArrays
from gnnscale.backend.cuda.kernels import columns_at_once, grid, row_bytes, row_type
from gnnscale.nn.device_block import Activation, DeviceBlock, Rule

#: Dropout probabilities are multiples of 1 / 65536, as on the host.
_PROBABILITIES = 65536


@dataclass(frozen=True, kw_only=True)
class DeviceActivation(Activation):
    """Activation of rows whose number and step only the device may know; later rows become 0."""

    block: BlockArrays  #: row i belongs to its vertex i
    count: torch.Tensor  #: int64 on the device: entry 0 is the number of rows

    def apply_(self, x: torch.Tensor) -> float:
        """Activate ``x`` ``[n, f]`` in place; return the scale of retained values, 1 / (1 - p)."""
        drop = min(round(self.p * _PROBABILITIES), _PROBABILITIES - 1)
        scale = _PROBABILITIES / (_PROBABILITIES - drop)
        vertices, kernels = self.block.vertices, self.block.kernels
        kernels.launch(
            f"relu_dropout_{columns_at_once(x)}",
            x,
            np.int32(row_type(x)),
            np.int64(row_bytes(x)),
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
            grid=grid(kernels),
        )
        return scale

    def gradient(self, y: torch.Tensor, grad: torch.Tensor, scale: float) -> torch.Tensor:
        """Return the gradient with respect to the input of the activation."""
        out, kernels = torch.empty_like(grad), self.block.kernels
        kernels.launch(
            f"relu_dropout_backward_{columns_at_once(y, grad, out)}",
            y,
            grad,
            out,
            np.int32(row_type(grad)),
            np.int64(grad.numel()),
            np.float32(scale),
            grid=grid(kernels),
        )
        return out


@dataclass(frozen=True, kw_only=True)
class CudaBlock(BlockArrays, DeviceBlock):
    """Block of a device with the operations that layers compute over it."""

    def copy(self, vertices: torch.Tensor) -> CudaBlock:
        """Return a copy that later samples do not overwrite, over a copy of ``vertices``."""
        arrays = ("indptr", "indices", "importance", "edge_weights", "weight_sums")
        copied = {
            name: array.clone() for name in arrays if (array := getattr(self, name)) is not None
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
        """Return the activation of rows of the destinations, or of the ``sources``."""
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
        """Return the block with a self-edge as the first edge of every destination."""
        return attention.with_self_edges(self)

    def edge_scores(self, src: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
        """Return ``src[u] + dst[v]`` of each edge, with gradient."""
        return attention.edge_scores(self, src, dst)

    def attend(self, scores: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """Sum source rows weighted by the softmax of edge scores."""
        return attention.attend(self, scores, z)

    def sums(self, degrees: torch.Tensor | None) -> segment_kernels.DeviceMessageSums:
        """Return the reductions of messages over its edges."""
        return segment_kernels.DeviceMessageSums(self, degrees)
