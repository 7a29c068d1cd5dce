"""A loss of a user's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gnnscale.config import ConfigError
from gnnscale.errors import shown
from gnnscale.foreign import check_name, load_named
from gnnscale.found import names
from gnnscale.loss.base import Loss, LossConfig

if TYPE_CHECKING:
    from torch import Tensor

    from gnnscale.graph import Graph

__all__ = ["CustomLoss"]


@dataclass(frozen=True, kw_only=True)
class CustomLoss(LossConfig):
    """A function of a user's own, ``function(outputs, targets)``, which returns the mean loss.

    Attributes:
        function: its name, ``MODULE:NAME`` or ``FILE.py:NAME``. It gets outputs ``[n, width]``
            float32 and targets: ``[n]`` int64 classes, ``[n, num_classes]`` float32 of 0 and 1, or
            ``[n, width]`` float32 numbers; and returns a scalar tensor, the mean over the ``n``
            vertices.
    """

    function: str = field(metadata=names("code"))

    def __post_init__(self) -> None:
        check_name(self.function, option="loss.function")

    def build(self, graph: Graph) -> Loss:
        """Import the function.

        Raises:
            ConfigError: it cannot be imported, or returns something else than a scalar.
        """
        import torch

        function = load_named(self.function, option="loss.function")

        def loss(outputs: Tensor, targets: Tensor) -> Tensor:
            value = function(outputs, targets)
            if not isinstance(value, torch.Tensor) or value.ndim:
                found = list(value.shape) if isinstance(value, torch.Tensor) else shown(value)
                raise ConfigError(
                    f"loss.function={self.function}: returned {found}, must return a scalar "
                    "tensor, the mean over the vertices"
                )
            return value

        return loss
