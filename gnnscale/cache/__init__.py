"""Cache planning: adjacency lists and feature rows in the memory of accelerators."""

from gnnscale.cache.base import CachePlannerConfig
from gnnscale.cache.belady import Belady, CacheUpdate, HitCounts, LookAheadReplay
from gnnscale.cache.build import PICTURE_FILE, check_partition, make_plan
from gnnscale.cache.legion.legion import Legion
from gnnscale.cache.plan import (
    HOST,
    ROWS_FROM,
    CachePlan,
    CacheStats,
    CacheTraffic,
    CliqueCache,
    CurvePoint,
    DeviceCache,
    LookAhead,
    Uncached,
)
from gnnscale.cache.policies import LookAheadCache, NoCache, StaticCache
from gnnscale.cache.presampling import PresampledBatch, Presampler
from gnnscale.cache.problem import CacheDevice, CacheTask, RowType, row_types
from gnnscale.cache.store import StoredPlan, read_plan
