"""Feature stores: where rows of features lie, and how they are read.

What needs torch is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gnnscale.feature.options import (
    FeatureStoreConfig,
    HostFeaturesConfig,
    PreaggregatedFeaturesConfig,
)

if TYPE_CHECKING:
    from gnnscale.feature.host import HostFeatures, PreaggregatedFeatures, read_from_disk
    from gnnscale.feature.store import Aggregation, FeatureStore, check_store


_HOMES = {
    "Aggregation": "gnnscale.feature.store",
    "FeatureStore": "gnnscale.feature.store",
    "HostFeatures": "gnnscale.feature.host",
    "PreaggregatedFeatures": "gnnscale.feature.host",
    "check_store": "gnnscale.feature.store",
    "read_from_disk": "gnnscale.feature.host",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gnnscale.feature' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
