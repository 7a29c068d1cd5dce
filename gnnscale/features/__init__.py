"""Feature stores: objects that read or compute the feature rows of vertices.

Modules that need torch are imported on first use.
"""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names
from gnnscale.features.options import (
    DegreeFeaturesConfig,
    DiskFeaturesConfig,
    FeatureStoreConfig,
    HostFeaturesConfig,
    LearnedFeaturesConfig,
    PreaggregatedFeaturesConfig,
    ProjectionFeaturesConfig,
    SharedFeaturesConfig,
    StructuralFeaturesConfig,
)

if TYPE_CHECKING:
    from gnnscale.features.base import Aggregation, FeatureStore, check_store
    from gnnscale.features.disk import DiskRows
    from gnnscale.features.host import HostFeatures, PreaggregatedFeatures, read_from_disk

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.features.disk": "DiskRows",
        "gnnscale.features.host": "HostFeatures PreaggregatedFeatures read_from_disk",
        "gnnscale.features.base": "Aggregation FeatureStore check_store",
    },
)
