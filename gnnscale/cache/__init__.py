"""Caches: which adjacency lists and feature rows accelerators keep in their own memory."""

from gnnscale.cache.cache_plan import (
    CacheFigures,
    CachePlan,
    CacheTraffic,
    CurvePoint,
    DeviceCache,
    LookAhead,
    Uncached,
)
from gnnscale.cache.draws import Draw, Draws
from gnnscale.cache.legion.legion import Legion
from gnnscale.cache.make import PICTURE_FILE, check_parts, make_plan
from gnnscale.cache.planner import CachePlannerConfig
from gnnscale.cache.policies import LookAheadCache, NoCache, StaticCache
from gnnscale.cache.stored_plan import StoredPlan, read_plan
from gnnscale.cache.task import CacheDevice, CacheTask
