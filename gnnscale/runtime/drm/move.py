"""A move of dynamic resource management: what is proposed, and what is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnscale.plan import DevicePlan

if TYPE_CHECKING:
    from gnnscale.runtime.drm.balance_thread import Trade

__all__ = ["Move"]


@dataclass(frozen=True, kw_only=True)
class Move:
    """A change of the plan.

    Attributes:
        plan: the plan after it.
        promise: the part of a step that it is expected to save.
        trade: the thread that goes from one task to another; None where seeds move.
        shift: seeds that each device gets; negative where it gives some.
        gain: the part of the way to equal times that they go.
        takes_back: whether it undoes a trade that was of no use.
    """

    plan: DevicePlan
    promise: float
    trade: Trade | None = None
    shift: tuple[int, ...] = ()
    gain: float = 1.0
    takes_back: bool = False
