"""Samples of one kind after the other, with their input rows: what a device reads of a graph."""

from __future__ import annotations

from dataclasses import replace

import torch

from gnnscale.backend.base import BackendInputs, ColumnExchange, DeviceMemoryError
from gnnscale.backend.cuda import aggregation
from gnnscale.backend.cuda import batch as batches
from gnnscale.backend.cuda.capacity import BatchCapacity, SampleSizes, Sampling, envelope
from gnnscale.backend.cuda.device_sample import DeviceSample, DeviceSeeds, max_seeds
from gnnscale.backend.cuda.dynamic_cache import CacheUpdates
from gnnscale.backend.cuda.engine import Engine
from gnnscale.backend.cuda.p3_exchange import CudaColumnExchange, agreed
from gnnscale.backend.cuda.placement import ResidentGraph
from gnnscale.backend.cuda.row_gather import RowGather
from gnnscale.backend.cuda.sampler import CudaSampler
from gnnscale.core import ConfigError
from gnnscale.nn import GNN, Inputs, TrainableModel
from gnnscale.nn.conv.linear import LinearAggregationLayer
from gnnscale.nn.device_block import Rule
from gnnscale.sampling import LayerSampling
from gnnscale.sampling.edge_batches import LinkSampling


class GraphPipeline:
    """Samples, and reads rows, degrees and weights of what was sampled, without waiting."""

    def __init__(
        self,
        host: BackendInputs,
        placed: ResidentGraph,
        engine: Engine,
        *,
        num_slots: int,
        bounded: bool,
    ) -> None:
        """Make room for mini-batches of the run's size.

        Args:
            num_slots: samples that are kept at a time.
            bounded: whether there is no more room than mini-batches need by trial.

        Raises:
            ConfigError: kernels cannot sample as the run does.
        """
        sampling = host.sampling
        edges = isinstance(sampling, LinkSampling)
        if isinstance(sampling, LinkSampling):
            sampling = sampling.vertices
        if not isinstance(sampling, Sampling):
            raise ConfigError(
                f"sampler: a cuda device samples neighbours and layers, not as "
                f"{type(sampling).__name__} does; device_plan=cpu does"
            )
        self.placed = placed
        self._sampling = sampling
        most = max_seeds(host)
        room = None
        if bounded:
            room = envelope(host, placed.topology, sampling, max_seeds=most)
        self._sampler = CudaSampler(
            placed.topology,
            engine.kernels,
            sampling,
            seed=host.seed,
            max_seeds=most,
            device=engine.device,
            room=room,
            leaves_out=edges,
            num_slots=num_slots,
        )
        columns = None if host.own_steps is None else host.own_steps.columns
        self._exchange = None
        if columns is not None:
            self._exchange = self._open_exchange(host, engine, columns)
        self._uses_degrees = host.model.uses_degrees or isinstance(sampling, LayerSampling)
        self._kernels = engine.kernels
        self._largest: dict[int, SampleSizes] = {}
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
                num_slots=num_slots,
                cache=placed.cached,
                following=placed.following,
            )

    def _open_exchange(
        self, host: BackendInputs, engine: Engine, columns: ColumnExchange
    ) -> CudaColumnExchange:
        """Return what trades blocks with devices that have other columns (P3)."""
        rule = _rule_on_load(host.model)
        assert rule is not None, "checked with the options"
        if not self.placed.rows_on_device:
            raise DeviceMemoryError(
                "partitioner=p3: a device keeps its columns of the features in its memory, and "
                "these do not fit; more devices, with fewer columns each, may do"
            )
        return CudaColumnExchange(
            self.placed,
            engine,
            columns,
            agreed(self._sampler.room, columns),
            rule=rule,
            dtype=host.loader.compute_dtype,
            uses_degrees=host.model.uses_degrees or isinstance(self._sampling, LayerSampling),
        )

    def exchange(self, batch: batches.CudaBatch, inputs: Inputs) -> Inputs:
        """Trade blocks with devices that have other columns, on the current stream (P3)."""
        return inputs if self._exchange is None else self._exchange.trade(batch, inputs)

    def exchanged_bytes(self, width: int) -> tuple[int, int]:
        """Return the bytes of rows and blocks that a step receives from peers; see ``trade``."""
        return (0, 0) if self._exchange is None else self._exchange.traded_bytes(width)

    def sample(
        self,
        seeds: torch.Tensor,
        step: int | torch.Tensor,
        host_seeds: DeviceSeeds,
        *,
        slot: int = 0,
    ) -> DeviceSample:
        """Launch the kernels that sample, on the current stream.

        Args:
            seeds: ``[n]`` int64 vertices, on the device.
            step: of the run; ``[1]`` int64 on the device if it is known there alone.
            host_seeds: the same, and edges that are left out.
            slot: whose sample is overwritten.
        """
        without = host_seeds.without_on(seeds.device)
        return self._sampler.sample(seeds, step, without=without, slot=slot)

    def largest_sizes(self, num_seeds: int) -> SampleSizes:
        """Return what the sample of so many seeds has at most."""
        if num_seeds not in self._largest:
            self._largest[num_seeds] = self._find_largest(num_seeds)
        return self._largest[num_seeds]

    def _find_largest(self, num_seeds: int) -> SampleSizes:
        room = BatchCapacity.of(
            self._sampling, self.placed.topology, max_seeds=max(num_seeds, 1), max_edges=None
        )
        return batches.largest_sizes(room.smallest(self._sampler.room))

    def batch(
        self, sample: DeviceSample, seeds: DeviceSeeds, sizes: SampleSizes, *, step: int
    ) -> batches.CudaBatch:
        """Return a sample as a mini-batch, with sums of weights if edges have weights.

        Args:
            seeds: as the host knows them.
            sizes: the sample's own, or those of ``largest_sizes``.
            step: of the run.
        """
        sums = self.placed.weight_sums
        if sums is not None:
            count = sample.num_vertices[-1:]
            sums = aggregation.vertex_floats(self._kernels, sums, sample.vertices, count)
        made = batches.batch_of(
            sample, seeds.vertices, sizes, self._kernels, step=step, weight_sums=sums
        )
        return replace(
            made, links=seeds.links_on(sample.state.device), slice_seeds=seeds.slice_seeds
        )

    def found_rows(self, slot: int = 0) -> torch.Tensor | None:
        """Return how many rows of a slot were found at each place; None without a cache.

        ``[num_members + 1]`` int64, which counts once ``load`` is done.
        """
        placed = self.placed
        if self._gather is None or (placed.cached is None and placed.following is None):
            return None
        return self._gather.found(slot)

    def replace(
        self,
        replaced: CacheUpdates,
        place: torch.Tensor,
        sample: DeviceSample,
        before: DeviceSample | None,
        slot: int,
    ) -> None:
        """Let rows that were read enter a cache that follows the batches, on the current stream.

        Args:
            place: ``[1]`` int64 the step's record.
            sample: of the step, in ``slot``.
            before: of the step before, in the other slot.
        """
        following = self.placed.following
        assert following is not None
        assert self._gather is not None
        out = self._gather.out(slot)
        following.replace(self._kernels, replaced, place, sample, before, out, slot)

    def load(self, batch: batches.CudaBatch, *, slot: int = 0) -> Inputs:
        """Launch the kernels that read what the first layer needs, on the current stream.

        Args:
            slot: whose rows are overwritten.
        """
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
            x = self._gather.gather(vertices, batch.num_sources, slot=slot).out[: len(vertices)]
        aggregated = self._gather is None
        return Inputs(x=x, aggregated=aggregated, degrees=degrees)  # type: ignore[arg-type]


def _rule_on_load(model: TrainableModel) -> Rule | None:
    """Return how the first layer aggregates rows while they are read; None if it does not."""
    aggregates = isinstance(model, GNN) and model.aggregates_on_load
    first = model.layer(0) if aggregates else None
    return first.rule if isinstance(first, LinearAggregationLayer) else None
