"""Dynamic caches that know the batches to come, since sampling is a pure function of the step."""

from gnnscale.cache.look_ahead.belady import (
    Belady,
    Counts,
    Replaced,
    belady_bytes,
    count_hits,
)

__all__ = ["Belady", "Counts", "Replaced", "belady_bytes", "count_hits"]
