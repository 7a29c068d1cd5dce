"""Samples of one kind after the other, with their input rows: what a device reads of a graph."""

from __future__ import annotations

from dataclasses import replace

import torch

from gnnscale.backend.base import HostParts
from gnnscale.backend.cuda import aggregation, sampler_plan
from gnnscale.backend.cuda import batch as batches
from gnnscale.backend.cuda.device_sample import DeviceSample, SampleSizes
from gnnscale.backend.cuda.engine import Engine
from gnnscale.backend.cuda.placement import PlacedGraph
from gnnscale.backend.cuda.rows import RowGather
from gnnscale.backend.cuda.sampler import CudaSampler
from gnnscale.backend.cuda.seeds import StepSeeds, max_seeds
from gnnscale.core import ConfigError
from gnnscale.model import GNN, Inputs, TrainableModel
from gnnscale.model.device_block import Rule
from gnnscale.model.layer import LinearAggregationLayer
from gnnscale.sampler.links import LinkSampling

#: Samples whose arrays are kept at a time: one is trained while the next is drawn.
NUM_SLOTS = 2


class GraphReader:
    """Samples, and reads rows, degrees and weights of what was sampled, without waiting."""

    def __init__(self, host: HostParts, placed: PlacedGraph, engine: Engine) -> None:
        """Make room for mini-batches of the run's size.

        Raises:
            ConfigError: kernels cannot sample as the run does.
        """
        sampling = host.sampling
        edges = isinstance(sampling, LinkSampling)
        if isinstance(sampling, LinkSampling):
            sampling = sampling.vertices
        if not isinstance(sampling, sampler_plan.Sampling):
            raise ConfigError(
                f"sampler: a cuda device samples neighbours and layers, not as "
                f"{type(sampling).__name__} does; device_plan=cpu does"
            )
        self.placed = placed
        self._sampling = sampling
        self._sampler = CudaSampler(
            placed.topology,
            engine.kernels,
            sampling,
            seed=host.seed,
            max_seeds=max_seeds(host),
            device=engine.device,
            leaves_out=edges,
            num_slots=NUM_SLOTS,
        )
        self._uses_degrees = host.model.uses_degrees or isinstance(
            sampling, sampler_plan.LayerSampling
        )
        self._kernels = engine.kernels
        self._dtype = host.loader.compute_dtype
        # Rows over the link are read once each; those in device memory while they are aggregated.
        self._rule = _rule_on_load(host.model) if placed.rows_on_device else None
        self._gather = None
        if self._rule is None:
            self._gather = RowGather(
                placed.rows,
                engine.kernels,
                max_ids=self._sampler.room.max_vertices,
                dtype=self._dtype,
                num_slots=NUM_SLOTS,
            )

    def sample(self, seeds: torch.Tensor, step: int, host_seeds: StepSeeds) -> DeviceSample:
        """Launch the kernels that sample, on the current stream.

        Args:
            seeds: ``[n]`` int64 vertices, on the device.
            host_seeds: the same, and edges that are left out.
        """
        without = host_seeds.without_on(seeds.device)
        return self._sampler.sample(seeds, step, without=without)

    def largest_sizes(self, num_seeds: int) -> SampleSizes:
        """Return what the sample of so many seeds has at most."""
        room = sampler_plan.Room.of(
            self._sampling, self.placed.topology, max_seeds=max(num_seeds, 1), max_edges=None
        )
        return batches.largest_sizes(room)

    def batch(
        self, sample: DeviceSample, seeds: StepSeeds, sizes: SampleSizes
    ) -> batches.CudaBatch:
        """Return a sample as a mini-batch, with sums of weights if edges have weights.

        Args:
            seeds: as the host knows them.
            sizes: the sample's own, or those of ``largest_sizes``.
        """
        sums = self.placed.weight_sums
        if sums is not None:
            count = sample.num_vertices[-1:]
            sums = aggregation.vertex_floats(self._kernels, sums, sample.vertices, count)
        made = batches.batch_of(sample, seeds.vertices, sizes, self._kernels, weight_sums=sums)
        return replace(
            made, links=seeds.links_on(sample.state.device), slice_seeds=seeds.slice_seeds
        )

    def load(self, batch: batches.CudaBatch) -> Inputs:
        """Launch the kernels that read what the first layer needs, on the current stream."""
        graph, vertices = self.placed, batch.vertices
        degrees = None
        if self._uses_degrees:
            degrees = aggregation.degrees_of(
                self._kernels, graph.topology, vertices, batch.num_sources, known=graph.degrees
            )
        if self._gather is None:
            assert self._rule is not None
            x = aggregation.load_aggregated(
                batch.input_block, graph.rows, self._rule, degrees, dtype=self._dtype
            )
        else:
            x = self._gather.gather(vertices, batch.num_sources).out[: len(vertices)]
        aggregated = self._gather is None
        return Inputs(x=x, aggregated=aggregated, degrees=degrees)  # type: ignore[arg-type]


def _rule_on_load(model: TrainableModel) -> Rule | None:
    """Return how the first layer aggregates rows while they are read; None if it does not."""
    first = model.layer(0) if isinstance(model, GNN) else None
    return first.rule if isinstance(first, LinearAggregationLayer) else None
