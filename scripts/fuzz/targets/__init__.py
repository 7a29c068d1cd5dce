"""What is fuzzed, by name. Only the module of the target that is meant is imported."""

from __future__ import annotations

from ..case import Target

__all__ = ["TARGETS", "target_named"]

TARGETS = ("readers", "store", "partition", "cache_plan", "ops", "commands")


def target_named(name: str, only: str | None = None) -> Target:
    """Return a target; only what it needs is imported."""
    if name.startswith("readers"):
        from .readers import Readers

        return Readers(only or name.partition("-")[2] or None)
    if name == "store":
        from .store import Stores

        return Stores()
    if name == "partition":
        from .partition import Partitions

        return Partitions()
    if name == "cache_plan":
        from .cache_plan import CachePlans

        return CachePlans()
    if name.startswith("ops"):
        from .ops import Ops

        return Ops(only or name.partition("-")[2] or None)
    from .commands import Commands

    return Commands()
