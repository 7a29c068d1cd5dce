"""Mini-batches: neighbour sampling and layer-wise sampling, and the records they return."""

from gnnscale.sampler.base import Sampler, SamplerConfig
from gnnscale.sampler.layerwise import LayerSampler, LayerSampling
from gnnscale.sampler.minibatch import Block, MiniBatch
from gnnscale.sampler.neighbor import NeighborSampler, NeighborSampling

__all__ = [
    "Block",
    "LayerSampler",
    "LayerSampling",
    "MiniBatch",
    "NeighborSampler",
    "NeighborSampling",
    "Sampler",
    "SamplerConfig",
]
