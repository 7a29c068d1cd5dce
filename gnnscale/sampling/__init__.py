"""Mini-batches: neighbor, layer-neighbor and layer-wise sampling, and the records they return."""

from gnnscale.sampling.labor import LaborSampler, LaborSampling
from gnnscale.sampling.layerwise import LayerSampler, LayerSampling
from gnnscale.sampling.minibatch import Block, InputFrontier, MiniBatch, Sampler, SamplerConfig
from gnnscale.sampling.neighbor import (
    NeighborSampler,
    NeighborSampling,
    WeightedSampler,
    WeightedSampling,
    without_last_hop,
)
from gnnscale.sampling.seed_order import (
    SeedOrder,
    SeedOrderConfig,
    Shuffled,
    ShuffledOrder,
    StepSeeds,
    TwoStageOrder,
)
