"""Mini-batches: neighbor, layer-neighbor and layer-wise sampling, and the records they return."""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names
from gnnscale.sampling.labor import LaborSampler, LaborSampling
from gnnscale.sampling.layerwise import LayerSampler, LayerSampling
from gnnscale.sampling.minibatch import (
    MAX_HOPS,
    Block,
    InputFrontier,
    Links,
    MiniBatch,
    Sampler,
    SamplerConfig,
)
from gnnscale.sampling.neighbor import (
    FanoutSampling,
    NeighborSampler,
    NeighborSampling,
    WeightedSampler,
    WeightedSampling,
    without_last_hop,
)
from gnnscale.sampling.rows import RowSampling
from gnnscale.sampling.seed_order import (
    FullBatches,
    SeedOrder,
    SeedOrderConfig,
    Shuffled,
    ShuffledOrder,
    StepSeeds,
    TwoStageOrder,
    labeled_vertices,
)
from gnnscale.sampling.time_rule import TimeRule
from gnnscale.sampling.timed import RowSampler, TimedSampler
from gnnscale.sampling.typed import TypedBlock, TypedMiniBatch, TypedSampler

if TYPE_CHECKING:
    from gnnscale.sampling.edge_batches import *  # noqa: F403

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.sampling.edge_batches": (
            "Candidates EdgeSampling LinkSampler LinkSampling LinkSeeds draw_candidates"
        ),
    },
)
