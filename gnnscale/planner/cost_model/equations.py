"""HyScale-GNN's performance model, equations 5 to 13: stage times of a device plan.

The equations are functions of sizes and rates. An emulated device calls them with the exact sizes
of a mini-batch, a planner with expected sizes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from gnnscale.core import StageTimes
from gnnscale.nn.cost import LayerWork
from gnnscale.sampling import MiniBatch

#: Bytes of a weight, its gradient, and Adam's two moments.
BYTES_PER_PARAMETER = 16

#: Bytes of a hidden feature and its gradient.
ACTIVATION_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """Exact or expected sizes of a mini-batch."""

    vertices: tuple[float, ...]  #: |V^0| to |V^L|: inputs first, seeds last
    edges: tuple[float, ...]  #: |E^1| to |E^L|, input layer first

    @classmethod
    def of(cls, batch: MiniBatch) -> "BatchSize":
        """Return the vertices and edges of ``batch``, layer by layer."""
        sources = [block.num_src for block in batch.blocks]
        return cls(
            vertices=(*sources, batch.num_seeds),
            edges=tuple(block.num_edges for block in batch.blocks),
        )

    @property
    def num_edges(self) -> float:
        """Number of edges over all layers, the numerator of eq. 5."""
        return sum(self.edges)

    @property
    def num_vertices(self) -> float:
        """Number of vertices over all layers 0..L, the numerator of NVTPS (HitGNN eq. 3)."""
        return sum(self.vertices)

    @property
    def num_seeds(self) -> float:
        """Number of seeds; 0 without layers."""
        return self.vertices[-1] if self.vertices else 0

    @property
    def rows(self) -> dict[int, int]:
        """Number of output rows of each layer, by layer number from 0 at the inputs."""
        return {layer: int(count) for layer, count in enumerate(self.vertices[1:])}


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Predicted seconds of a full training step, and of each device's stages in it."""

    devices: tuple[StageTimes, ...]  #: stage times of each device, in the plan's order
    step_s: float  #: seconds of a step, eq. 6
    num_edges: int  #: traversed edges of a step over all devices, for eq. 5
    source: str  #: name of the platform with the rates
    #: whether ``step_s`` is the mean over an epoch whose first steps fill memory. Otherwise it is a
    #: typical step
    is_mean: bool = False


def load_seconds(num_bytes: float, bandwidth: float) -> float:
    """Return the seconds of loading ``num_bytes``, |V^0|·f^0·S_feat, from host memory, eq. 7."""
    return num_bytes / bandwidth


def transfer_seconds(num_bytes: float, bandwidth: float, latency: float) -> float:
    """Return the seconds of sending rows and topology to an accelerator: eq. 8 plus latency."""
    return latency + num_bytes / bandwidth


def trainer_seconds(
    layers: Sequence[tuple[LayerWork, LayerWork]],
    *,
    memory_bandwidth: float,
    macs_per_s: float,
    pipelined: bool,
) -> float:
    """Return the seconds of forward and backward propagation on an accelerator, eq. 10 to 12.

    A layer takes aggregation ⊕ update, forward and backward. Eq. 11 counts the rows read by edges;
    this function adds the operands and results of products, which cross device memory too. Eq. 12
    counts |V^l|·f·f' for every layer; here each layer states its products, and backward propagation
    counts two products for each (``gnnscale.nn.cost``). The paper writes |E^{l-1}|, f^l and
    f^{l+1}: it counts layers from 0 in eq. 11 and 12, and from 1 in eq. 10.

    Args:
        memory_bandwidth: effective bytes per second of device memory, eq. 11.
        macs_per_s: multiply-accumulates per second, N·freq of eq. 12.
        pipelined: whether aggregation and update overlap: ⊕ is the maximum, otherwise the sum.
    """
    seconds = 0.0
    for work in chain.from_iterable(layers):
        products = work.operand_bytes + work.stream_bytes
        num_bytes = work.read_bytes + products + work.edge_row_bytes
        aggregate = num_bytes / memory_bandwidth
        update = work.macs / macs_per_s
        seconds += max(aggregate, update) if pipelined else aggregate + update
    return seconds


def product_seconds(
    layers: Sequence[tuple[LayerWork, LayerWork]], *, macs_per_s: float, operand_bandwidth: float
) -> float:
    """Return the seconds of all products on a processor: eq. 12, and operand reads of eq. 11.

    Forward, operand reads overlap with multiplication. Backward they do not: the product for the
    weights' gradient reads operands column by column.
    """
    seconds = 0.0
    for forward, backward in layers:
        seconds += max(forward.macs / macs_per_s, forward.operand_bytes / operand_bandwidth)
        seconds += backward.macs / macs_per_s + backward.operand_bytes / operand_bandwidth
    return seconds


def sync_seconds(num_weight_bytes: float, bandwidth: float, latency: float) -> float:
    """Return the seconds of gathering gradients and scattering their mean over a link, eq. 13."""
    return 2 * (latency + num_weight_bytes / bandwidth)


def pipeline_seconds(stages: StageTimes, prefetch: str) -> float:
    """Return the seconds of a step on one device: the longest of overlapping stages, eq. 6 and 9.

    ``prefetch`` of ``none``: all stages take turns. ``one_stage``: propagation, with
    synchronization, overlaps with all earlier stages together. ``two_stage`` or ``BY_DEVICE`` (the
    device drives its steps): all stages overlap.
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
    """Predictions of one plan, before and after a profiling run."""

    #: prediction by the equations and the platform's rates, without any run of the plan
    by_rates: Prediction
    #: prediction corrected by a profiling run of this very plan, so that it reproduces the measured
    #: steps. None: the plan was not profiled. Profiling runs of other plans do not contribute.
    rehearsed: Prediction | None = None
    window_steps: int  #: steps measured by a profiling run, or that one would measure

    @property
    def basis(self) -> str:
        """Field of the best prediction: ``rehearsed`` after a profiling run, else ``by_rates``."""
        return "by_rates" if self.rehearsed is None else "rehearsed"

    @property
    def best(self) -> Prediction:
        """Prediction in the field ``basis``."""
        return self.rehearsed or self.by_rates
