"""Work that runs ahead of whoever needs it, in threads, a bounded amount at a time."""

from gnnscale.prefetch.depth import PrefetchDepth
from gnnscale.prefetch.pipeline import Pipeline, StageGroup

__all__ = ["Pipeline", "PrefetchDepth", "StageGroup"]
