"""A feature store that takes its time on one device of a run, as long as the clock likes."""

import time
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from gnnscale.features import FeatureStoreConfig, HostFeatures
from gnnscale.graph import Graph

#: Seconds, of which some more go by: those of the clock that nobody can foretell.
_PAUSE_S, _MORE_S = 0.02, 0.005


class Unhurried(HostFeatures):
    """The host's features, which the first process of a run reads slowly."""

    def gather(self, *args: Any, **options: Any) -> Any:
        pause()
        return super().gather(*args, **options)

    def aggregate(self, *args: Any, **options: Any) -> Any:
        pause()
        return super().aggregate(*args, **options)


def pause() -> None:
    if dist.get_rank() == 0:
        time.sleep(_PAUSE_S + time.perf_counter() % _MORE_S)


@dataclass(frozen=True, kw_only=True)
class TakeTime(FeatureStoreConfig):
    """Reads slowly on the first device."""

    def open(self, graph: Graph) -> Unhurried:
        return Unhurried.of(graph)
