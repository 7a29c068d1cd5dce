"""Lazy Adam: an update of the rows that a step has read, and of no others."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from gnnscale import ops
from gnnscale.core import Array

#: What an optimizer keeps of learned rows, whatever it keeps of weights.
ROW_STATE = frozenset({"step", "exp_avg", "exp_avg_sq"})
#: As ``torch.optim.SparseAdam`` has them.
_BETAS, _EPSILON = (0.9, 0.999), 1e-8


def update_rows(
    optimizer: torch.optim.Optimizer,
    rows: Tensor,
    vertices: Array,
    gradients: Tensor,
    *,
    rate: float,
    num_threads: int,
) -> None:
    """Update the rows of ``vertices`` as ``torch.optim.SparseAdam`` does.

    Both moments are kept for each element, in ``optimizer.state``, whose checkpoint has them.
    Memory of rows that no step has read is never touched. Bias is corrected by the number of all
    steps, also of rows that few of them have read.

    Args:
        optimizer: of the weights; ``rows`` are among its parameters, and never have a gradient.
        rows: ``[num_vertices, dim]`` float32.
        vertices: ``[n]`` distinct ids.
        gradients: ``[n, dim]`` float32.
        rate: learning rate.
        num_threads: threads to use; the result does not depend on it.
    """
    state = optimizer.state[rows]
    if not state:
        state["step"] = torch.zeros(())
        for name in ("exp_avg", "exp_avg_sq"):
            # Unlike torch, NumPy leaves it to the system to clear memory once it is touched.
            state[name] = torch.from_numpy(np.zeros(tuple(rows.shape), np.float32))
    state["step"] += 1
    step, (beta1, beta2) = state["step"].item(), _BETAS
    ops.adam_rows(
        rows,
        state["exp_avg"],
        state["exp_avg_sq"],
        vertices,
        gradients,
        rate=rate * math.sqrt(1 - beta2**step) / (1 - beta1**step),
        beta1=beta1,
        beta2=beta2,
        epsilon=_EPSILON,
        num_threads=num_threads,
    )
