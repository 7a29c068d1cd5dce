"""Work that runs ahead of its consumer in threads, within a bound."""

from gnnscale.prefetch.depth import PrefetchDepth
from gnnscale.prefetch.pipeline import Pipeline, StageGroup

__all__ = ["Pipeline", "PrefetchDepth", "StageGroup"]
