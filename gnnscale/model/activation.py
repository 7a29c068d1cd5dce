"""ReLU with dropout that no slice of a mini-batch changes."""

from dataclasses import dataclass

import torch

from gnnscale import ops
from gnnscale.core import IntArray


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
