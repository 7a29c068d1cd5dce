"""Relative time as an input: the age of vertices at a cut-off, encoded and added to their rows.

RelBench's temporal encoder (Robinson et al. 2024, "RelBench", section 4.1): a sinusoidal encoding
(Vaswani et al. 2017, section 3.5) of the days from a vertex's time to the cut-off, and a linear
layer for each vertex type.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gnnscale.nn.base import TrainableModel
from gnnscale.nn.gnn import GNN
from gnnscale.nn.typed.model import TypedGNN

#: Ratio of the lowest to the highest frequency, which is a radian a day.
_BASE = 1e-4
_DAYS_PER_YEAR = 365.25


class TimeEncoder(nn.Module):
    """Encoder of ages: ``W e(a) + b`` for the age ``a``, in days.

    ``e(a)`` of ``sinusoidal`` are the sines and cosines of ``a * 1e-4^(i / (k - 1))`` for i from 0
    to k - 1, where k is half of ``hidden``; of ``linear``, the age in years.
    """

    def __init__(self, kind: str, hidden: int, width: int) -> None:
        """Encode by ``kind``, one of ``TIME_ENCODINGS`` but ``none``, into ``width`` features."""
        super().__init__()
        #: Number k of frequencies; 0: linear.
        self.num_frequencies = max(1, hidden // 2) if kind == "sinusoidal" else 0
        self.linear = nn.Linear(2 * self.num_frequencies or 1, width)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, ages: Tensor) -> Tensor:
        """Return ``[n, width]`` float32 of ``ages`` ``[n]`` float32 in days."""
        encoded = ages[:, None] / _DAYS_PER_YEAR
        if self.num_frequencies:
            # Not a buffer: a checkpoint has weights alone.
            angles = ages[:, None] * torch.logspace(0, 1, self.num_frequencies, base=_BASE)
            encoded = torch.cat([angles.sin(), angles.cos()], 1)
        out: Tensor = self.linear(encoded)
        return out


def add_encoder(
    model: TrainableModel, kind: str | None, hidden: int, timed: Sequence[bool]
) -> None:
    """Let a model of a graph without types add encoded ages to its input rows.

    Args:
        model: a ``GNN``.
        kind: one of ``TIME_ENCODINGS``; ``none`` adds nothing. None: ``sinusoidal``.
        hidden: number of sines and cosines.
        timed: whether vertices have times; empty or false adds nothing.
    """
    if kind != "none" and any(timed):
        assert isinstance(model, GNN)
        model.time_encoder = TimeEncoder(kind or "sinusoidal", hidden, model.widths[0])


def add_encoders(
    model: TrainableModel, kind: str | None, hidden: int, timed: Sequence[bool]
) -> None:
    """Let a ``TypedGNN`` add encoded ages to encoded rows of the types that are ``timed``.

    Other arguments are those of ``add_encoder``.
    """
    if kind != "none" and any(timed):
        assert isinstance(model, TypedGNN)
        model.time_encoders = nn.ModuleList(
            TimeEncoder(kind or "sinusoidal", hidden, hidden) if is_timed else nn.Identity()
            for is_timed in timed
        )
