"""Graph pipeline of a device: samples, and the input rows, degrees and weights of each sample."""

from dataclasses import replace
from typing import cast

import torch

from gnnscale.backend.base import BackendInputs, ColumnExchange, DeviceMemoryError
from gnnscale.backend.cuda import aggregation
from gnnscale.backend.cuda.batch import CudaBatch, batch_of
from gnnscale.backend.cuda.capacity import (
    BatchCapacity,
    SampleSizes,
    Sampling,
    envelope,
    vertex_sampling,
)
from gnnscale.backend.cuda.device_sample import DeviceSample, DeviceSeeds, max_seeds
from gnnscale.backend.cuda.engine import Engine
from gnnscale.backend.cuda.p3_exchange import CudaColumnExchange, shared_capacity
from gnnscale.backend.cuda.placement import ResidentGraph
from gnnscale.backend.cuda.row_gather import CacheUpdates, RowGather
from gnnscale.backend.cuda.sampler import CudaSampler
from gnnscale.core import Access, ConfigError, Traffic
from gnnscale.nn import GNN, Inputs, Rule, TrainableModel
from gnnscale.nn.conv.linear import LinearAggregationLayer
from gnnscale.sampling import LayerSampling, LinkSampling


class GraphPipeline:
    """Sampling, and reading the first layer's input, without waiting for the device.

    Methods queue kernels on the current stream:

        sample = reader.sample(seeds, step=3, host_seeds=host_seeds)
        batch = reader.batch(sample, host_seeds, reader.largest_sizes(len(seeds)), step=3)
        inputs = reader.load(batch)
    """

    def __init__(
        self,
        host: BackendInputs,
        placed: ResidentGraph,
        engine: Engine,
        *,
        num_slots: int,
        bounded: bool,
    ) -> None:
        """Allocate the buffers of ``num_slots`` samples and their input rows.

        ``bounded``: samples have the capacity observed in mini-batches of the first steps, not the
        maximum.
        """
        self.placed = placed
        self._sampler = self._new_sampler(host, engine, num_slots=num_slots, bounded=bounded)
        self._uses_degrees = host.model.uses_degrees or isinstance(self._sampling, LayerSampling)
        columns = None if host.step_inputs is None else host.step_inputs.columns
        self._exchange = None if columns is None else self._open_exchange(host, engine, columns)
        #: traffic of a step with peers. None: the run does not use P3
        self.exchange_traffic: Traffic | None = None
        if self._exchange is not None:
            rows, blocks = self._exchange.traded_bytes(cast(GNN, host.model).widths[1])
            row_access, list_access = Access(peer_bytes=rows), Access(peer_bytes=blocks)
            self.exchange_traffic = Traffic(rows=row_access, lists=list_access)
        self._kernels = engine.kernels
        self._largest: dict[int, SampleSizes] = {}
        self._dtype = host.loader.compute_dtype
        # Rows in device memory are aggregated while reading; rows over the link are read once each.
        self._rule = _rule_on_load(host.model) if placed.rows_on_device else None
        self._gather = None
        if self._rule is None:
            self._gather = RowGather(
                placed.rows,
                engine.kernels,
                max_ids=self._sampler.capacity.max_vertices,
                dtype=self._dtype,
                num_slots=num_slots,
                cache=placed.cached,
                following=placed.following,
            )

    def _new_sampler(
        self, host: BackendInputs, engine: Engine, *, num_slots: int, bounded: bool
    ) -> CudaSampler:
        sampling, topology = vertex_sampling(host.sampling), self.placed.topology
        if not isinstance(sampling, Sampling):
            raise ConfigError(
                f"sampler: {type(sampling).__name__} has no CUDA kernels; use sampler=neighbor, "
                "weighted or layerwise, or device_plan=cpu"
            )
        self._sampling = sampling
        num_seeds = max_seeds(host)
        capacity = envelope(host, topology, sampling, max_seeds=num_seeds) if bounded else None
        return CudaSampler(
            topology,
            engine.kernels,
            sampling,
            seed=host.seed,
            max_seeds=num_seeds,
            device=engine.device,
            capacity=capacity,
            leaves_out=isinstance(host.sampling, LinkSampling),
            num_slots=num_slots,
        )

    def _open_exchange(
        self, host: BackendInputs, engine: Engine, columns: ColumnExchange
    ) -> CudaColumnExchange:
        """Return P3's exchange of first-layer blocks; a collective call.

        DeviceMemoryError: this device's columns of the features are not in device memory.
        """
        rule = _rule_on_load(host.model)
        assert rule is not None, "checked with the options"
        if not self.placed.rows_on_device:
            raise DeviceMemoryError(
                "partitioner=p3: the device's columns of the features exceed its memory; more "
                "devices have fewer columns each"
            )
        return CudaColumnExchange(
            self.placed,
            engine,
            columns,
            shared_capacity(self._sampler.capacity, columns),
            rule=rule,
            dtype=host.loader.compute_dtype,
            uses_degrees=self._uses_degrees,
        )

    def exchange(self, batch: CudaBatch, inputs: Inputs) -> Inputs:
        """Return ``inputs``, in P3 with this device's columns aggregated for every device's batch.

        P3 all-gathers the first-layer blocks for this, that of ``batch`` from here; a collective
        call.
        """
        return inputs if self._exchange is None else self._exchange.trade(batch, inputs)

    def sample(
        self,
        seeds: torch.Tensor,
        step: int | torch.Tensor,
        host_seeds: DeviceSeeds,
        *,
        slot: int = 0,
    ) -> DeviceSample:
        """Queue sampling from ``seeds`` on the current stream; return the sample.

        ``seeds`` are ``[n]`` int64 on the device. ``step`` is ``[1]`` int64 on the device if only
        the device knows it. ``host_seeds`` are these seeds with the edges to leave out, ``slot`` is
        the number of the buffers to overwrite.
        """
        without = host_seeds.without_on(seeds.device)
        return self._sampler.sample(seeds, step, without=without, slot=slot)

    def largest_sizes(self, num_seeds: int) -> SampleSizes:
        """Return the maximum sizes of a sample of ``num_seeds`` seeds that the buffers can take."""
        if num_seeds not in self._largest:
            bound = BatchCapacity.of(
                self._sampling, self.placed.topology, max_seeds=max(num_seeds, 1), max_edges=None
            )
            self._largest[num_seeds] = bound.smallest(self._sampler.capacity).sizes
        return self._largest[num_seeds]

    def batch(
        self, sample: DeviceSample, seeds: DeviceSeeds, sizes: SampleSizes, *, step: int
    ) -> CudaBatch:
        """Return a sample as a mini-batch; ``sizes`` are the sample's, or of ``largest_sizes``."""
        sums = self.placed.sums_of(self._kernels, sample.vertices, sample.num_vertices[-1:])
        batch = batch_of(sample, seeds.vertices, sizes, self._kernels, step=step, weight_sums=sums)
        links = seeds.links_on(sample.state.device)
        return replace(batch, links=links, slice_seeds=seeds.slice_seeds)

    def row_reads(self, slot: int = 0) -> torch.Tensor | None:
        """Return numbers of rows that the last reads into buffer ``slot`` took from each location.

        Locations are the clique's members, or a dynamic cache and reused earlier outputs; the last
        one is the host. Numbers are int64 on the device. None: rows are not cached, or are
        aggregated while they are read.
        """
        placed = self.placed
        if self._gather is None or (placed.cached is None and placed.following is None):
            return None
        return self._gather.read_counts(slot)

    def replace(
        self,
        replaced: CacheUpdates,
        record_index: torch.Tensor,
        sample: DeviceSample,
        previous: DeviceSample | None,
        slot: int,
    ) -> None:
        """Copy rows in output buffer ``slot`` to the dynamic cache, in place of earlier rows.

        ``replaced`` has the rows and cache slots of each step, and ``record_index``, ``[1]`` int64,
        selects the step. ``sample`` is the rows' sample, ``previous`` the one before, whose rows
        can no longer be reused. None: no such sample.
        """
        following = self.placed.following
        assert following is not None
        assert self._gather is not None
        out = self._gather.out(slot)
        following.replace(self._kernels, replaced, record_index, sample, previous, out, slot)

    def load(self, batch: CudaBatch, *, slot: int = 0) -> Inputs:
        """Queue the reads of the first layer's input, and return it as tensors of the device.

        Rows are in the buffer of ``slot``, unless the first layer aggregates while reading.
        """
        graph, vertices, degrees = self.placed, batch.vertices, None
        if self._uses_degrees:
            degrees = graph.degrees_of(self._kernels, vertices, batch.num_sources)
        if self._gather is None:
            assert self._rule is not None
            block, rule, dtype = batch.input_block, self._rule, self._dtype
            x = aggregation.load_aggregated(block, graph.rows, rule, degrees, dtype=dtype)
        else:
            x = self._gather.gather(vertices, batch.num_sources, slot=slot).out[: len(vertices)]
        aggregated = self._gather is None
        return Inputs(x=x, aggregated=aggregated, degrees=degrees)  # type: ignore[arg-type]


def _rule_on_load(model: TrainableModel) -> Rule | None:
    """Return the aggregation that the first layer computes while reading. None: it reads rows."""
    aggregates = isinstance(model, GNN) and model.aggregates_on_load
    first = model.layer(0) if aggregates else None
    return first.rule if isinstance(first, LinearAggregationLayer) else None
