"""Running statistics of normalisations, which each device keeps of its own slices, combined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gnnscale.runtime.sync.group import Group

__all__ = ["combine_statistics"]


def combine_statistics(model: nn.Module, rows: Mapping[int, int], group: Group) -> bool:
    """Replace the floating-point buffers of ``model`` by those of all devices together.

    Of a batch normalisation, into which n_d rows with the running mean m_d and variance v_d went on
    device d, the rows of all devices have (law of total variance)

        mean = Σ n_d m_d / Σ n_d,    variance = Σ n_d (v_d + m_d²) / Σ n_d - mean².

    Any other floating-point buffer becomes the mean over devices, weighted likewise. A device that
    had no rows does not count. Where every device has the same part of the rows in every step, this
    mean is the one that a single process would have. Integer counters stay as they are.

    Args:
        model: layers in ``layers``, normalisations behind them in ``norms``, as in ``GNN``.
        rows: of each layer, rows that it wrote on this device since the last time; 0 where missing.
        group: every process of it calls this at the same time.

    Returns:
        Whether there was anything to combine.
    """
    found = list(_statistics(model))
    if not found or group.size == 1:
        return False
    parts = []
    for layer, mean, variance in found:
        count = torch.tensor([float(rows.get(layer, 0))], dtype=torch.float64)
        parts += [count, *(count * each.flatten() for each in _moments(mean, variance))]
    sums = torch.cat(parts)
    group.sum(sums)
    left = iter(torch.split(sums, [len(each) for each in parts]))
    for _, mean, variance in found:
        count = next(left)
        firsts = next(left)
        seconds = None if variance is None else next(left)
        if not count:
            continue
        combined = firsts / count
        mean.copy_(combined.view_as(mean))
        if variance is not None and seconds is not None:
            spread = (seconds / count - combined.square()).clamp(min=0)
            variance.copy_(spread.view_as(variance))
    return True


def _moments(mean: Tensor, variance: Tensor | None) -> list[Tensor]:
    """Return the first moment, and the second where there is a variance, in float64."""
    first = mean.double()
    return [first] if variance is None else [first, variance.double() + first.square()]


def _statistics(model: nn.Module) -> Iterator[tuple[int, Tensor, Tensor | None]]:
    """Yield layer, mean and variance of each normalisation, and layer and value of other buffers.

    What belongs to no layer counts as the last one's, which writes the seeds' rows.
    """
    last = max(len(getattr(model, "layers", ())) - 1, 0)
    for name, module in model.named_modules():
        layer = _layer_of(name, last)
        own = dict(module.named_buffers(recurse=False))
        if isinstance(module, _BatchNorm) and module.running_mean is not None:
            yield layer, own.pop("running_mean"), own.pop("running_var")
        for each in own.values():
            if each.is_floating_point():
                yield layer, each, None


def _layer_of(name: str, last: int) -> int:
    """Return the layer that the module ``name`` belongs to, inputs first."""
    place, _, rest = name.partition(".")
    number = rest.partition(".")[0]
    return int(number) if place in ("layers", "norms") and number.isdigit() else last
