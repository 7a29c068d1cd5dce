"""Mini-batches: neighbour, layer-neighbour and layer-wise sampling, and the records they return."""

from gnnscale.sampler.labor import LaborSampler, LaborSampling
from gnnscale.sampler.layerwise import LayerSampler, LayerSampling
from gnnscale.sampler.minibatch import Block, MiniBatch, Reach, Sampler, SamplerConfig
from gnnscale.sampler.neighbor import (
    LeavingOutLastHop,
    NeighborSampler,
    NeighborSampling,
    WeightedSampler,
    WeightedSampling,
    WithoutLastHop,
    without_last_hop,
)
from gnnscale.sampler.seed_order import (
    SeedOrder,
    SeedOrderConfig,
    Shuffled,
    ShuffledOrder,
    StepSeeds,
)
from gnnscale.sampler.two_stage import TwoStageOrder
