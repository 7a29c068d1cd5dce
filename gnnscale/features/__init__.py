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
    from gnnscale.features.base import *  # noqa: F403
    from gnnscale.features.disk import DiskRows, features_file, max_read_gap, take_reads
    from gnnscale.features.host import HostFeatures, PreaggregatedFeatures, read_from_disk

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.features.base": (
            "Aggregation FeatureStore WrappedStore check_store write_aggregated"
        ),
        "gnnscale.features.disk": "DiskRows features_file max_read_gap take_reads",
        "gnnscale.features.host": "HostFeatures PreaggregatedFeatures read_from_disk",
    },
)
