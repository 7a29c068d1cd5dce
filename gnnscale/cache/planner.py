"""What every cache planner offers: from a task to a plan."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from gnnscale.artifact.folder import check_place
from gnnscale.cache.cache_plan import CachePlan
from gnnscale.cache.task import CacheTask
from gnnscale.core.errors import ConfigError, check_range, shown
from gnnscale.options.found import names
from gnnscale.partition.nvlink import MACHINES

__all__ = ["CachePlannerConfig"]

#: The largest budget of a device, 1 PiB: more than any has, and many of them fit into 64 bits.
_MAX_BYTES = 1 << 50
#: Folders are called after policies.
_POLICY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,62}")


@dataclass(frozen=True, kw_only=True)
class CachePlannerConfig(ABC):
    """Base of the configuration group ``cache_planner``.

    Attributes:
        budget_bytes: memory of each device's cache; None where ``ratio`` says, or for what the
            device has left beside the model and its mini-batches (PaGraph, section 3.3).
        ratio: the same as feature rows, as a part of all vertices (0.1 for a tenth).
        reserve: the part of a device's memory that is kept free where neither is given.
        nvlink: which devices read each other's caches: ``dgx_v100``, ``siton``, ``dgx_a100``, or a
            file with a matrix of links, whose first devices are meant; None for no device.
        store: directory of the plan; None for a name of its own in
            ``${GNNSCALE_HOME:-~/.cache/gnnscale}/cache_plans``.
    """

    budget_bytes: int | None = None
    ratio: float | None = None
    reserve: float = 0.1
    nvlink: str | None = field(default=None, metadata=names("place", known=MACHINES))
    store: str | None = field(default=None, metadata=names("place"))

    #: Whether there is a cache at all.
    caches: ClassVar[bool] = True

    @property
    @abstractmethod
    def policy(self) -> str:
        """What reports call the policy."""

    @property
    def shares(self) -> bool:
        """Whether devices read each other's caches, as far as ``nvlink`` joins them."""
        return False

    def __post_init__(self) -> None:
        if not _POLICY.fullmatch(self.policy):
            raise ConfigError(
                f"cache_planner.name={shown(self.policy)}: must be a word of at most 63 letters, "
                "digits and the signs _ + -"
            )
        if self.budget_bytes is not None:
            check_range("cache_planner.budget_bytes", self.budget_bytes, 0, _MAX_BYTES)
        if self.ratio is not None and not 0 <= self.ratio < math.inf:
            raise ConfigError(f"cache_planner.ratio={self.ratio}: must be finite and at least 0")
        if self.budget_bytes is not None and self.ratio is not None:
            raise ConfigError(
                f"cache_planner.ratio={self.ratio}: cannot be given with "
                f"cache_planner.budget_bytes={self.budget_bytes}"
            )
        if not 0 <= self.reserve < 1:
            raise ConfigError(f"cache_planner.reserve={self.reserve}: must be at least 0, below 1")
        if self.store is not None:
            if not self.store or "\0" in self.store:
                raise ConfigError(f"cache_planner.store={shown(self.store)}: not a path")
            check_place(self.store, option="cache_planner.store")

    @property
    def sizes_itself(self) -> bool:
        """Whether a cache takes what its device has left."""
        return self.budget_bytes is None and self.ratio is None

    @property
    def keeps_batch(self) -> bool:
        """Whether rows of a mini-batch stay for the next one, beyond the budget."""
        return False

    @abstractmethod
    def plan(self, task: CacheTask) -> CachePlan:
        """Decide what each device of ``task`` keeps.

        Raises:
            ConfigError: the policy does not go with the run.
        """
