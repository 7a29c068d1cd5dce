"""What a device keeps in its own memory, and what it reads in that of its peers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnscale.cache.cache_plan import CachePlan, LookAhead
from gnnscale.core import Array


@dataclass(frozen=True, kw_only=True)
class KeptCache:
    """The caches of a clique: vertices ascend, so that all members know each other's slots."""

    names: tuple[str, ...]  #: of the members in reports
    positions: tuple[int, ...]  #: of the members in the device plan
    features: tuple[Array, ...]  #: ``[n_k]`` vertices whose feature rows each member keeps
    topology: tuple[Array, ...]  #: ``[m_k]`` vertices whose adjacency lists each member keeps
    own: int  #: which member the device is
    #: how its rows follow the batches, of which it keeps none at first; None if they stay
    look_ahead: LookAhead | None = None

    @classmethod
    def of(cls, plan: CachePlan, position: int) -> KeptCache:
        """Return what the device at ``position``, which has a cache, keeps and reads."""
        clique = plan.clique_of(position)
        members = [plan.of(each) for each in clique]
        return cls(
            names=tuple(each.name for each in members),
            positions=clique,
            features=tuple(np.sort(each.features) for each in members),
            topology=tuple(np.sort(each.topology) for each in members),
            own=clique.index(position),
            look_ahead=plan.of(position).look_ahead,
        )
