"""ReLU with dropout on a device, equal to the host's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gnnscale.backend.cuda import layouts
from gnnscale.backend.cuda.edges import BlockArrays
from gnnscale.model.activation import Activation

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
