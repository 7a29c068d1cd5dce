"""Update rules: torch's without the wrappers of their methods, and those of sparse rows.

Lazy Adam and row-wise Adagrad update only the rows that a step has read.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import unwrap
from typing import Any

import numpy as np
import torch
from torch import Tensor, optim
from torch.optim import Optimizer

from gnnscale import ops
from gnnscale.core import Array, Float32Array


@dataclass(frozen=True, kw_only=True)
class RowSums:
    """Gradients of n rows as sums over edges that are not computed yet.

    The gradient of row ``i`` is ``sum_e weights[e] * rows[indices[e]]``, for ``e`` in
    ``indptr[i]:indptr[i + 1]``, plus ``self_scale[i] * self_rows[i]`` if ``i < num_self``.
    """

    rows: Tensor  #: ``[any number, f]`` float32 or bfloat16
    indptr: Array  #: ``[n + 1]`` int64
    indices: Array  #: ``[num_edges]`` int32
    weights: Float32Array | None = None  #: ``[num_edges]`` float32; None: ones
    self_rows: Tensor  #: ``[at least num_self, f]``
    self_scale: Float32Array | None = None  #: ``[at least num_self]`` float32; None: ones
    num_self: int  #: number of rows, from the first, that have a term of ``self_rows``

    @classmethod
    def of(cls, gradients: Tensor) -> "RowSums":
        """Return sums that have no edges, only the self term: ``gradients`` ``[n, f]``."""
        num_rows = len(gradients)
        return cls(
            rows=gradients,
            indptr=np.zeros(num_rows + 1, np.int64),
            indices=np.zeros(0, np.int32),
            self_rows=gradients,
            num_self=num_rows,
        )

    def total(self, dtype: torch.dtype, *, gate: Tensor | None = None, num_threads: int) -> Tensor:
        """Return the sums ``[n, f]`` as ``dtype``; 0 where ``gate`` ``[n, f]`` is not above 0."""
        out = ops.empty((len(self.indptr) - 1, self.rows.shape[1]), dtype)
        edges, options = self.edges, self.options
        return ops.aggregate(*edges, **options, gate=gate, out=out, num_threads=num_threads)

    @property
    def edges(self) -> tuple[Tensor, Array, Array]:
        """Positional arguments of native functions that sum: ``rows``, ``indptr``, ``indices``."""
        return self.rows, self.indptr, self.indices

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of native functions that sum: weights, and fields of self terms."""
        names = ("weights", "self_rows", "self_scale", "num_self")
        return {name: getattr(self, name) for name in names}


class RowOptimizer(ABC):
    """Update rule for the rows of a table that a step has read; other rows are never touched.

    The state is part of the state of the optimizer of all weights, so that its checkpoint contains
    it.
    """

    @abstractmethod
    def state_shapes(self, rows: Tensor) -> Mapping[str, tuple[int, ...]]:
        """Return shapes, by name, of the float32 state of table ``rows``; ``step`` is a scalar."""

    @abstractmethod
    def apply(
        self,
        rows: Tensor,
        state: Mapping[str, Tensor],
        vertices: Array,
        gradients: RowSums,
        *,
        rate: float,
        num_threads: int,
    ) -> None:
        """Update the table's rows of ``vertices``, and ``state``, in place, by their ``gradients``.

        ``state["step"]`` counts this update already; ``rate`` is the learning rate.
        """

    def update(
        self,
        optimizer: torch.optim.Optimizer,
        rows: Tensor,
        vertices: Array,
        gradients: RowSums,
        *,
        rate: float,
        decays: bool = False,
        num_threads: int,
    ) -> None:
        """Update the table's rows of ``vertices`` (``[n]``, distinct) by ``gradients``.

        The gradients are summed meanwhile. ``optimizer`` has the table ``rows`` ``[num_vertices,
        dim]`` among its weights, without ``grad``, and keeps the rule's state, which the first
        call creates. With ``decays``, these rows have the weight decay of ``optimizer``.
        """
        if decays:
            gradients = _decayed(optimizer, rows, vertices, gradients, rate, num_threads)
        state = optimizer.state[rows]
        if not state:
            for name, shape in self.state_shapes(rows).items():
                # NumPy's zeros take memory only where they are written, unlike torch's.
                state[name] = torch.from_numpy(np.zeros(shape, np.float32))
        state["step"] += 1
        self.apply(rows, state, vertices, gradients, rate=rate, num_threads=num_threads)


def _decayed(
    optimizer: torch.optim.Optimizer,
    rows: Tensor,
    vertices: Array,
    gradients: RowSums,
    rate: float,
    num_threads: int,
) -> RowSums:
    """Return ``gradients`` of ``rows[vertices]`` plus the decay of ``optimizer`` times the rows.

    The decay of AdamW is subtracted from the rows instead, at ``rate``.
    """
    group = next(g for g in optimizer.param_groups if any(part is rows for part in g["params"]))
    decay = group["weight_decay"]
    if not decay:
        return gradients
    ids = torch.from_numpy(vertices).long()
    current = rows.detach()[ids]
    if group.get("decoupled_weight_decay"):
        rows.detach()[ids] = current.mul_(1 - rate * decay)
        return gradients
    total = gradients.total(torch.float32, num_threads=num_threads)
    return RowSums.of(total.add_(current, alpha=decay))


class LazyAdam(RowOptimizer):
    """Adam like ``torch.optim.SparseAdam``; bias is corrected by the number of all steps."""

    _BETAS = (0.9, 0.999)
    _EPSILON = 1e-8

    def state_shapes(self, rows: Tensor) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of ``step`` and of both moments, each as large as the table."""
        return {"step": (), "exp_avg": tuple(rows.shape), "exp_avg_sq": tuple(rows.shape)}

    def apply(
        self,
        rows: Tensor,
        state: Mapping[str, Tensor],
        vertices: Array,
        gradients: RowSums,
        *,
        rate: float,
        num_threads: int,
    ) -> None:
        """Update the table's rows of ``vertices``, and their moments in ``state``, by Adam."""
        step, (beta1, beta2) = state["step"].item(), self._BETAS
        ops.adam_rows(
            rows,
            state["exp_avg"],
            state["exp_avg_sq"],
            vertices,
            *gradients.edges,
            **gradients.options,
            rate=rate * math.sqrt(1 - beta2**step) / (1 - beta1**step),
            beta1=beta1,
            beta2=beta2,
            epsilon=self._EPSILON,
            num_threads=num_threads,
        )


class RowWiseAdagrad(RowOptimizer):
    """Adagrad with one sum for each row, of the mean squares of its gradients.

    DLRM trains its embeddings with it (Naumov et al., 2019, "Deep Learning Recommendation Model for
    Personalization and Recommendation Systems"). As in FBGEMM's ``EXACT_ROWWISE_ADAGRAD``, sums
    begin with 0, and ``x -= rate / (sqrt(sum) + 1e-8) * gradient``.
    """

    _EPSILON = 1e-8

    def state_shapes(self, rows: Tensor) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of ``step``, a single number, and of ``sum``, a number for each row."""
        return {"step": (), "sum": (len(rows),)}

    def apply(
        self,
        rows: Tensor,
        state: Mapping[str, Tensor],
        vertices: Array,
        gradients: RowSums,
        *,
        rate: float,
        num_threads: int,
    ) -> None:
        """Update the table's rows of ``vertices``, and their sums in ``state``, by Adagrad."""
        ops.adagrad_rows(
            rows,
            state["sum"].numpy(),
            vertices,
            *gradients.edges,
            **gradients.options,
            rate=rate,
            epsilon=self._EPSILON,
            num_threads=num_threads,
        )


#: Row optimizers by their names in ``features.optimizer``.
ROW_OPTIMIZERS: Mapping[str, RowOptimizer] = {"adam": LazyAdam(), "adagrad": RowWiseAdagrad()}


class _Plain(Optimizer):
    """Base of optimizers whose methods lack torch's decorators."""

    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)


class PlainAdam(_Plain, optim.Adam):
    """``torch.optim.Adam`` without torch's decorators of its methods."""

    step = torch.no_grad()(unwrap(optim.Adam.step))


class PlainAdamW(_Plain, optim.AdamW):
    """``torch.optim.AdamW`` without torch's decorators of its methods."""

    step = torch.no_grad()(unwrap(optim.AdamW.step))


class PlainSgd(_Plain, optim.SGD):
    """``torch.optim.SGD`` without torch's decorators of its methods."""

    step = torch.no_grad()(unwrap(optim.SGD.step))


def optimizer_state(optimizer: Optimizer) -> dict[int, dict[str, Tensor]]:
    """Return the optimizer's state tensors of each parameter, by the parameter's number."""
    state: dict[int, dict[str, Tensor]] = optimizer.state_dict()["state"]
    return {
        number: {name: values for name, values in tensors.items() if values is not None}
        for number, tensors in state.items()
    }


def restore_optimizer(optimizer: Optimizer, state: Mapping[int, Mapping[str, Tensor]]) -> None:
    """Set the optimizer's state to ``state``, as ``optimizer_state`` returned it."""
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": dict(state), "param_groups": groups})
