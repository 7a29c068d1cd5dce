"""A move of dynamic resource management: what is proposed, and what is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnscale.plan import DevicePlan

if TYPE_CHECKING:
    from gnnscale.runtime.drm.balance_thread import Trade


@dataclass(frozen=True, kw_only=True)
class Move:
    """A change of the plan."""

    plan: DevicePlan  #: the plan after it
    promise: float  #: the part of a step that it is expected to save
    #: the thread that goes from one task to another; None if seeds move
    trade: Trade | None = None
    shift: tuple[int, ...] = ()  #: seeds that each device gets; negative if it gives some
    gain: float = 1.0  #: the part of the way to equal times that they go
    takes_back: bool = False  #: whether it undoes a trade that was of no use
