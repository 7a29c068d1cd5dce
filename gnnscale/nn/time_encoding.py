"""Relative time as an input: the age of vertices at a cut-off, encoded and added to their rows.

RelBench's temporal encoder (Robinson et al. 2024, "RelBench", section 4.1): a sinusoidal encoding
(Vaswani et al. 2017, section 3.5) of the days from a vertex's time to the cut-off, and a linear
layer for each vertex type.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

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


def time_encoders(
    kind: str, hidden: int, widths: Sequence[int], timed: Sequence[bool]
) -> nn.ModuleList:
    """Return a module for each vertex type: an encoder of ages, or an identity without times.

    ``widths[t]`` are the features to which those of type t are added.
    """
    pairs = zip(widths, timed, strict=True)
    return nn.ModuleList(
        TimeEncoder(kind, hidden, width) if is_timed else nn.Identity() for width, is_timed in pairs
    )
