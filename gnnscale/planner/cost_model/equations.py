"""HyScale-GNN's performance model, equations 5 to 13: stage times of a device plan.

The equations are functions of sizes and rates, so that an emulated device, which has every
mini-batch's own sizes, and a planner, which expects them, use the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnnscale.core import StageTimes
from gnnscale.nn.cost import LayerWork
from gnnscale.sampling import MiniBatch

#: Weight, gradient, and the two moments of Adam.
BYTES_PER_PARAMETER = 16

#: A hidden feature and its gradient.
ACTIVATION_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """Sizes of a mini-batch, or the sizes expected of one."""

    vertices: tuple[float, ...]  #: |V^0| to |V^L|: inputs first, seeds last
    edges: tuple[float, ...]  #: |E^1| to |E^L|: those of the input layer's block first

    @classmethod
    def of(cls, batch: MiniBatch) -> BatchSize:
        """Return the sizes of ``batch``."""
        sources = [block.num_src for block in batch.blocks]
        return cls(
            vertices=(*sources, batch.num_seeds),
            edges=tuple(block.num_edges for block in batch.blocks),
        )

    @property
    def num_edges(self) -> float:
        """Edges over all layers, the numerator of eq. 5."""
        return sum(self.edges)

    @property
    def num_vertices(self) -> float:
        """Vertices over all layers 0..L, the numerator of NVTPS (HitGNN eq. 3)."""
        return sum(self.vertices)

    @property
    def num_seeds(self) -> float:
        """Vertices whose output rows are computed; 0 if there are no layers."""
        return self.vertices[-1] if self.vertices else 0

    @property
    def rows(self) -> dict[int, int]:
        """Rows that each layer writes, by its number from the inputs on."""
        return {layer: int(count) for layer, count in enumerate(self.vertices[1:])}


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The model's prediction of one full training step."""

    devices: tuple[StageTimes, ...]  #: seconds of each stage on each device, in the plan's order
    step_s: float  #: seconds of a step, eq. 6.
    num_edges: int  #: edges that a step traverses, over all devices; over ``step_s`` it is eq. 5.
    source: str  #: where the rates come from: the platform's name
    #: whether a step is the mean one of an epoch, whose first steps fill memory; else a usual one
    is_mean: bool = False


def load_seconds(num_bytes: float, bandwidth: float) -> float:
    """Seconds to load features from host memory, eq. 7.

    Args:
        num_bytes: |V^0|·f^0·S_feat, summed over the mini-batches that are loaded at once.
        bandwidth: effective bytes per second of the host's memory.
    """
    return num_bytes / bandwidth


def transfer_seconds(num_bytes: float, bandwidth: float, latency: float) -> float:
    """Seconds to bring a mini-batch to one accelerator, eq. 8, and a latency that it lacks.

    Args:
        num_bytes: |V^0|·f^0·S_feat, and the topology's bytes.
        bandwidth: effective bytes per second of the link.
        latency: seconds before the first byte arrives.
    """
    return latency + num_bytes / bandwidth


def trainer_seconds(
    layers: Sequence[tuple[LayerWork, LayerWork]],
    *,
    memory_bandwidth: float,
    macs_per_s: float,
    pipelined: bool,
) -> float:
    """Seconds of forward and backward propagation on one accelerator, eq. 10 to 12.

    Each layer takes aggregation ⊕ update, forward and backward. Eq. 11 counts the rows that edges
    read; here the operands and results of the products cross the device's memory too. Eq. 12
    counts |V^l|·f·f' for every layer alike; here each layer states its own products, of which
    backward propagation takes two (``gnnscale.nn.cost``). The paper writes |E^{l-1}|, f^l and
    f^{l+1}, with its layers counted from 0 in these two equations and from 1 in eq. 10.

    Args:
        memory_bandwidth: effective bytes per second of the device's memory, eq. 11.
        macs_per_s: multiply-accumulates per second, N·freq of eq. 12.
        pipelined: whether aggregation and update overlap: ⊕ is the maximum, else the sum.
    """
    seconds = 0.0
    for work in (each for layer in layers for each in layer):
        products = work.operand_bytes + work.stream_bytes
        num_bytes = work.read_bytes + products + work.edge_row_bytes
        aggregate = num_bytes / memory_bandwidth
        update = work.macs / macs_per_s
        seconds += max(aggregate, update) if pipelined else aggregate + update
    return seconds


def product_seconds(
    layers: Sequence[tuple[LayerWork, LayerWork]], *, macs_per_s: float, operand_bandwidth: float
) -> float:
    """Return the seconds of all layers' products on a processor: eq. 12, and operands of eq. 11.

    Forward, a processor reads operands while it multiplies. Backward it does not: the product for
    the gradient of weights reads operands column by column.

    Args:
        layers: forward and backward work of each.
        macs_per_s: multiply-accumulates per second, N·freq of eq. 12.
        operand_bandwidth: bytes per second of operands.
    """
    seconds = 0.0
    for forward, backward in layers:
        seconds += max(forward.macs / macs_per_s, forward.operand_bytes / operand_bandwidth)
        seconds += backward.macs / macs_per_s + backward.operand_bytes / operand_bandwidth
    return seconds


def sync_seconds(num_weight_bytes: float, bandwidth: float, latency: float) -> float:
    """Seconds to gather gradients and to scatter their average, eq. 13.

    Args:
        bandwidth: effective bytes per second of the link.
        latency: seconds before the first byte of each of the two transfers.
    """
    return 2 * (latency + num_weight_bytes / bandwidth)


def pipeline_seconds(stages: StageTimes, prefetch: str) -> float:
    """Seconds of a step on one device: stages that overlap count as the longest, eq. 6 and 9.

    Args:
        prefetch: one of ``PREFETCH``, or ``BY_DEVICE``. Without prefetching all stages take turns;
            with one stage of it, propagation overlaps with all before it; with two, and on a device
            that overlaps them by itself, every stage overlaps.
    """
    propagate = stages.propagate + stages.sync
    prepare = (stages.sample, stages.load, stages.exchange, stages.transfer)
    if prefetch == "none":
        return sum(prepare) + propagate
    if prefetch == "one_stage":
        return max(sum(prepare), propagate)
    return max(*prepare, propagate)


@dataclass(frozen=True, kw_only=True)
class PlanPredictions:
    """The predictions of one plan."""

    #: by the equations and the platform's rates alone; nothing of this plan was run
    by_rates: Prediction
    #: the same corrected by a rehearsal of this very plan, so that it repeats what a few steps of
    #: the run took; None if this plan was not rehearsed. What a rehearsal of another plan taught
    #: is never in it.
    rehearsed: Prediction | None = None
    window_steps: int  #: steps that the rehearsal measured, or that one would have

    @property
    def basis(self) -> str:
        """Name of the prediction that a run goes by: ``rehearsed`` if there is one."""
        return "by_rates" if self.rehearsed is None else "rehearsed"

    @property
    def best(self) -> Prediction:
        """The prediction that ``basis`` names."""
        return self.rehearsed or self.by_rates
