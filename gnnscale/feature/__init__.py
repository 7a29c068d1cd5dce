"""Feature stores: where rows of features lie, and how they are read.

What needs torch is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names
from gnnscale.feature.options import (
    DegreeFeaturesConfig,
    DiskFeaturesConfig,
    FeatureStoreConfig,
    HostFeaturesConfig,
    LearnedFeaturesConfig,
    MadeFeaturesConfig,
    PreaggregatedFeaturesConfig,
    ProjectionFeaturesConfig,
    SharedFeaturesConfig,
)

if TYPE_CHECKING:
    from gnnscale.feature.disk import DiskRows
    from gnnscale.feature.host import HostFeatures, PreaggregatedFeatures, read_from_disk
    from gnnscale.feature.store import Aggregation, FeatureStore, check_store

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.feature.disk": "DiskRows",
        "gnnscale.feature.host": "HostFeatures PreaggregatedFeatures read_from_disk",
        "gnnscale.feature.store": "Aggregation FeatureStore check_store",
    },
)
