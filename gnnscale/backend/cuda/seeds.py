"""The seeds that the host hands to a device for a step, and the edges that are predicted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gnnscale.backend.base import HostParts
from gnnscale.core import Array
from gnnscale.sampler.links import LinkSampler, LinkSampling, LinkSeeds
from gnnscale.sampler.minibatch import Links


@dataclass(frozen=True, kw_only=True)
class StepSeeds:
    """The seeds of a step, as the host knows them."""

    vertices: Array  #: ``[n]`` that are sampled from
    slice_seeds: Array  #: ``[m]`` those of the slice: vertices, or numbers of edges
    edges: LinkSeeds | None = None  #: if edges are predicted

    @property
    def count(self) -> int:
        """Seeds of the slice, which its mean loss counts by."""
        return len(self.slice_seeds)

    def links_on(self, device: torch.device) -> Links | None:
        """Return the predicted edges as tensors of ``device``."""
        return None if self.edges is None else links_on(self.edges.links, device)

    def without_on(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return the ends of the edges whose messages are left out, as tensors of ``device``."""
        if self.edges is None:
            return None
        sources, destinations = (
            torch.from_numpy(np.asarray(each, np.int64)).to(device, non_blocking=True)
            for each in (self.edges.sources, self.edges.destinations)
        )
        return sources, destinations


def links_on(links: Links, device: torch.device) -> Links:
    """Return predicted edges as tensors of ``device``."""
    sources, destinations = (
        torch.from_numpy(each).to(device, non_blocking=True)
        for each in (links.sources, links.destinations)
    )
    return Links(sources=sources, destinations=destinations)  # type: ignore[arg-type]


def seeds_of(host: HostParts, seeds: Array, step: int) -> StepSeeds:
    """Return what ``seeds``, a slice of a step, are sampled from.

    Raises:
        ValueError: one is no vertex, whose label no kernel may look for.
    """
    if isinstance(host.sampler, LinkSampler):
        drawn = host.sampler.draw(seeds, step)
        return StepSeeds(vertices=drawn.vertices, slice_seeds=np.array(seeds), edges=drawn)
    vertices, count = np.array(seeds), host.graph.num_vertices
    # As unsigned numbers those below 0 are the largest.
    if len(vertices) and vertices.view(f"u{vertices.itemsize}").max() >= count:
        wrong = vertices[(vertices < 0) | (vertices >= count)][0]
        raise ValueError(f"seeds: {wrong} is not a vertex, the graph has {count}")
    return StepSeeds(vertices=vertices, slice_seeds=vertices)


def max_seeds(host: HostParts) -> int:
    """Return how many vertices a slice is sampled from at most."""
    sampling = host.sampling
    if isinstance(sampling, LinkSampling):
        return host.batch_size * (2 + sampling.num_negatives)
    return host.batch_size
