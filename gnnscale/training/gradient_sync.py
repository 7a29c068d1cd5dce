"""Synchronizer (HyScale-GNN, section III-A): all-reduce of the gradients of all trainers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gnnscale.backend import Backend, BatchOutcome
from gnnscale.core import NO_TRAFFIC, STAGES, Array, Float32Array, StageTimes, Traffic
from gnnscale.distributed.process_group import Group
from gnnscale.graph.store_format import vertex_dtype
from gnnscale.nn import LearnedEmbedding, TrainableModel
from gnnscale.nn.optim.update_rules import RowSums


def sum_embedding_gradients(rows: LearnedEmbedding, group: Group) -> None:
    """Sum the gradients of learned embeddings over all devices into ``rows``, once a step.

    Every process calls this, and sends its vertices and their gradients, ``[n, dim]`` float32, to
    all other processes; without seeds it sends none. Sums are in the order of ranks, so that all
    tables stay equal bit for bit.
    """
    dtype = vertex_dtype(len(rows.weight))
    if rows.gradient is None:
        ids = np.empty(0, dtype)
        gradients = rows.weight.new_empty(0, rows.weight.shape[1])
    else:
        ids, sums = rows.gradient
        gradients = sums.total(torch.float32, num_threads=torch.get_num_threads())
    local = torch.from_numpy(np.ascontiguousarray(ids, dtype)), gradients
    rows.gradient = sum_by_vertex(*_all_gather_rows(local, group))


def sum_by_vertex(vertices: Tensor, gradients: Tensor) -> tuple[Array, RowSums]:
    """Return the distinct ``vertices``, ascending, and the sum of each vertex's gradients.

    For vertices [7, 3, 7] and gradients [g0, g1, g2], ``[n, dim]`` float32, the result is [3, 7]
    and [g1, g0 + g2], summed in this order.
    """
    ids = vertices.numpy()
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    is_first = np.ones(len(ids), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    first = np.flatnonzero(is_first)
    sums = RowSums(
        rows=gradients,
        indptr=np.append(first, len(ids)),
        indices=order.astype(np.int32),
        self_rows=gradients,
        num_self=0,
    )
    return ordered[first], sums


def _all_gather_rows(parts: Sequence[Tensor], group: Group) -> list[Tensor]:
    """Exchange ``parts``, tensors of equal length; return each joined over processes, by rank."""
    counts = torch.empty(group.size, 1, dtype=torch.int64)
    group.all_gather_into(counts, torch.tensor([len(parts[0])]))
    lengths = counts.flatten().tolist()
    gathered = [part.new_empty(sum(lengths), *part.shape[1:]) for part in parts]
    works = []
    for part, rows in zip(parts, gathered, strict=True):
        slices = torch.split(rows, lengths)
        slices[group.rank].copy_(part)
        for peer in (rank for rank in range(group.size) if rank != group.rank):
            if lengths[peer]:
                works.append(group.start_receiving(slices[peer], peer))
            if len(part):
                works.append(group.start_sending(part, peer))
    group.finish(works)
    return gathered


def combine_statistics(model: nn.Module, rows: Mapping[int, int], group: Group) -> bool:
    """Replace the floating-point buffers of ``model`` by statistics over all devices.

    A batch normalization has normalized n_d rows on device d, with the running mean m_d and the
    running variance v_d. The rows of all devices have (law of total variance)

        mean = Σ n_d m_d / Σ n_d,    variance = Σ n_d (v_d + m_d²) / Σ n_d - mean².

    Any other floating-point buffer becomes its mean over devices, weighted by n_d. If every device
    has the same fraction of the rows in every step, this mean equals the running mean of a single
    process. Integer buffers are unchanged. The result is whether any buffer was combined.

    Args:
        model: has its layers in ``layers``, and the normalizations after them in ``norms``, as in
            ``GNN``.
        rows: number of rows by layer that this device's statistics counted since the last call; 0
            if missing.
    """
    statistics = list(_statistics(model))
    if not statistics or group.size == 1:
        return False
    parts = []
    for layer, mean, variance in statistics:
        count = torch.tensor([float(rows.get(layer, 0))], dtype=torch.float64)
        parts += [count, *(count * moment.flatten() for moment in _moments(mean, variance))]
    sums = torch.cat(parts)
    group.sum(sums)
    remaining = iter(torch.split(sums, [len(part) for part in parts]))
    for _, mean, variance in statistics:
        count = next(remaining)
        firsts = next(remaining)
        seconds = None if variance is None else next(remaining)
        if not count:
            continue
        combined = firsts / count
        mean.copy_(combined.view_as(mean))
        if variance is not None and seconds is not None:
            spread = (seconds / count - combined.square()).clamp(min=0)
            variance.copy_(spread.view_as(variance))
    return True


def batch_norm_layers(model: nn.Module) -> frozenset[int]:
    """Return the indices of a model's layers with batch normalization, by its ``norms``.

    A device's slice of one row leaves the running statistics of such a layer unchanged, so that
    the row must not be counted for ``combine_statistics``.
    """
    norms = getattr(model, "norms", ())
    return frozenset(index for index, norm in enumerate(norms) if isinstance(norm, _BatchNorm))


def _moments(mean: Tensor, variance: Tensor | None) -> list[Tensor]:
    """Return the first moment, and the second moment if there is a variance, in float64."""
    first = mean.double()
    return [first] if variance is None else [first, variance.double() + first.square()]


def _statistics(model: nn.Module) -> Iterator[tuple[int, Tensor, Tensor | None]]:
    """Yield for each floating-point statistic its layer, the mean or buffer, and variance or None.

    A buffer outside all layers counts for the last layer, which writes the rows of the seeds.
    """
    last = max(len(getattr(model, "layers", ())) - 1, 0)
    for name, module in model.named_modules():
        layer = _layer_index(name, last)
        buffers = dict(module.named_buffers(recurse=False))
        if isinstance(module, _BatchNorm) and module.running_mean is not None:
            yield layer, buffers.pop("running_mean"), buffers.pop("running_var")
        for buffer in buffers.values():
            if buffer.is_floating_point():
                yield layer, buffer, None


def _layer_index(name: str, last: int) -> int:
    """Return the layer of the module ``name``, counted from the inputs; ``last``: it is in none."""
    container, _, path = name.partition(".")
    number = path.partition(".")[0]
    return int(number) if container in ("layers", "norms") and number.isdigit() else last


#: float32 represents integers up to 2^24 exactly: two numbers represent a count.
_HALF = 1 << 24

_NUM_COUNTS = 2 + len(NO_TRAFFIC.counts())

#: Number of values summed over all devices: the loss, and the checkpoint flag.
_SHARED = 2

#: Length of a device's row: stage times, counts, and stage times by counted work.
_ROW = 2 * len(STAGES) + 2 * _NUM_COUNTS


@dataclass(frozen=True, kw_only=True)
class StepTotals:
    """Totals of a step over all devices, equal in every worker."""

    loss: float  #: mean over the mini-batch's seeds
    num_edges: int  #: over all layers and devices
    num_vertices: int  #: over all layers and devices
    stages: tuple[StageTimes, ...]  #: of each device, in seconds; ``sync``: of the last step
    traffic: tuple[Traffic, ...]  #: bytes that each device moved
    #: each device's stage times by counted work; None: work is not counted
    counted: tuple[StageTimes, ...] | None = None
    checkpoint: bool = False  #: whether a checkpoint is due after this step

    @classmethod
    def of_single_device(
        cls,
        outcome: BatchOutcome | None,
        stages: StageTimes,
        counted: StageTimes | None,
        *,
        checkpoint: bool,
    ) -> "StepTotals":
        """Return the totals of a step of a single device.

        ``outcome`` None: the step had no seeds. ``counted`` None: work is not counted.
        """
        return cls(
            loss=outcome.loss if outcome else 0.0,
            num_edges=outcome.num_edges if outcome else 0,
            num_vertices=outcome.num_vertices if outcome else 0,
            stages=(stages,),
            traffic=(outcome.traffic if outcome else NO_TRAFFIC,),
            counted=None if counted is None else (counted,),
            checkpoint=checkpoint,
        )

    @property
    def managed(self) -> tuple[StageTimes, ...]:
        """Stage times for resource management: by counted work if counted, else as measured."""
        return self.stages if self.counted is None else self.counted


class StepControl:
    """Float32 buffer for the all-reduce of a step: loss, checkpoint flag, and a row per device."""

    def __init__(self, group: Group, values: Tensor | None = None) -> None:
        """Use ``values``, float32 in host memory of length ``size_of(group)``; None: new zeros."""
        self._group = group
        self.values = torch.zeros(self.size_of(group)) if values is None else values

    @classmethod
    def size_of(cls, group: Group) -> int:
        """Return the length of ``values`` for the processes of ``group``."""
        return _SHARED + group.size * _ROW

    def all_reduce(
        self,
        outcome: BatchOutcome | None,
        stages: StageTimes,
        counted: StageTimes | None,
        *,
        checkpoint: bool,
    ) -> StepTotals:
        """Write this device's arguments, all-reduce the buffer, and return the step's totals."""
        self.write(outcome, stages, counted or StageTimes(), checkpoint=checkpoint)
        self._group.sum(self.values)
        return self.read(counts=counted is not None)

    def write(
        self,
        outcome: BatchOutcome | None,
        stages: StageTimes,
        counted: StageTimes,
        *,
        checkpoint: bool,
    ) -> None:
        """Write loss, ``checkpoint`` flag and this device's row; zeros into all other rows.

        The row has the counts of ``outcome`` (None: no seeds), the measured stage times ``stages``
        and ``counted``, the stage times by counted work. Since only one device writes each row, the
        all-reduce leaves rows exact. By the flag rank 0 requests a checkpoint after the step.
        """
        control: Float32Array = self.values.numpy()
        control[:] = 0
        control[:_SHARED] = outcome.loss if outcome else 0.0, checkpoint
        row = control[_SHARED:].reshape(self._group.size, _ROW)[self._group.rank]
        row[: len(STAGES)] = [getattr(stages, stage) for stage in STAGES]
        row[-len(STAGES) :] = [getattr(counted, stage) for stage in STAGES]
        if outcome is not None:
            counts = [outcome.num_edges, outcome.num_vertices, *outcome.traffic.counts()]
            row[len(STAGES) : -len(STAGES)] = np.ravel(np.divmod(np.array(counts, np.int64), _HALF))

    def read(self, *, counts: bool) -> StepTotals:
        """Return the totals after the all-reduce; ``counts``: rows have times of counted work."""
        control: Float32Array = self.values.numpy()
        rows = control[_SHARED:].reshape(self._group.size, _ROW)
        halves = rows[:, len(STAGES) : -len(STAGES)].astype(np.int64).reshape(-1, 2, _NUM_COUNTS)
        sums = halves[:, 0] * _HALF + halves[:, 1]
        counted = tuple(_stage_times(row) for row in rows[:, -len(STAGES) :].tolist())
        return StepTotals(
            loss=float(control[0]),
            num_edges=int(sums[:, 0].sum()),
            num_vertices=int(sums[:, 1].sum()),
            stages=tuple(_stage_times(row) for row in rows[:, : len(STAGES)].tolist()),
            traffic=tuple(Traffic.from_counts(row) for row in sums[:, 2:].tolist()),
            counted=counted if counts else None,
            checkpoint=bool(control[1]),
        )


class Synchronizer:
    """All-reduce of gradients in one flat bucket, with the control data of every device.

    Gradients are summed as the backends return them: ``Backend.propagate`` has multiplied the loss
    of each slice by its fraction of the mini-batch's seeds. So the sum of gradients is the gradient
    of the mean loss over all seeds. Every process gets equal sums, and makes equal decisions about
    later steps without a message.

    A bucket in host memory contains the control data as well (loss, counts, stage times, traffic,
    checkpoint flag): a step takes one all-reduce. A bucket on devices, summed by their collective
    library, has its control data in host memory. Gradients of learned embeddings follow separately.
    Parameters that are not shared (P3) are not summed.
    """

    def __init__(
        self, model: TrainableModel, backend: Backend, group: Group, *, own_collective: bool = False
    ) -> None:
        """Lay out the bucket for the ``model`` that this device trains.

        ``own_collective``: the library ``Device.collective``, which is equal for all devices, sums
        the bucket in its memory, apart from the control data.
        """
        self._model = model
        self._backend = backend
        self._group = group
        self._parameters = model.shared_parameters
        sizes = [parameter.numel() for parameter in self._parameters]
        num_control = StepControl.size_of(group)
        if own_collective:
            collective = backend.device.collective or "cpu"
            self._bucket = torch.zeros(sum(sizes), device=collective.partition(":")[0])
            control = torch.zeros(num_control)
        else:
            # One buffer, hence one all-reduce a step.
            self._buffer = torch.zeros(sum(sizes) + num_control)
            self._bucket, control = self._buffer.tensor_split([sum(sizes)])
        self._control = StepControl(group, control)
        self._own_collective = own_collective
        views = zip(torch.split(self._bucket, sizes), self._parameters, strict=True)
        self._gradients = [view.view(parameter.shape) for view, parameter in views]

    def synchronize(
        self,
        outcome: BatchOutcome | None,
        stages: StageTimes,
        counted: StageTimes | None = None,
        *,
        checkpoint: bool = False,
    ) -> StepTotals:
        """Sum the gradients of all devices into ``parameter.grad``, and return the step's totals.

        Args:
            outcome: outcome of this device's slice; None: the slice had no seeds.
            stages: stage times of this device, in seconds.
            counted: stage times by counted work; None: work is not counted.
            checkpoint: whether rank 0 requests a checkpoint after this step.
        """
        self._backend.copy_gradients(self._gradients)
        if self._group.size == 1:
            totals = StepTotals.of_single_device(outcome, stages, counted, checkpoint=checkpoint)
        else:
            self._control.write(outcome, stages, counted or StageTimes(), checkpoint=checkpoint)
            if self._own_collective:
                self._group.sum(self._bucket)
                self._group.sum(self._control.values)
            else:
                self._group.sum(self._buffer)
            totals = self._control.read(counts=counted is not None)
            if self._model.vertex_rows is not None:
                sum_embedding_gradients(self._model.vertex_rows, self._group)
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient.to(parameter.device)
        return totals

    def clip_gradients(self, max_norm: float) -> None:
        """Scale all gradients so that their global L2 norm is at most ``max_norm``.

        The norm includes the parameters that are split over devices (P3).
        """
        parameters = list(self._model.parameters())
        shared = {id(parameter) for parameter in self._parameters}
        if len(shared) == len(parameters):
            nn.utils.clip_grad_norm_(parameters, max_norm)
            return
        squares = torch.zeros(2)
        for parameter in parameters:
            if parameter.grad is not None:
                squares[int(id(parameter) in shared)] += parameter.grad.square().sum()
        self._group.sum(squares[:1])
        nn.utils.clip_grads_with_norm_(parameters, max_norm, squares.sum().sqrt())

    def combine_statistics(self, rows: Mapping[int, int]) -> None:
        """Combine the running statistics of all devices, weighted by their ``rows`` by layer.

        The device's buffers are copied to the model before, and back after a change.
        """
        self._backend.copy_buffers()
        if combine_statistics(self._model, rows, self._group):
            self._backend.load_state()


def _stage_times(seconds: Sequence[float]) -> StageTimes:
    return StageTimes(**dict(zip(STAGES, seconds, strict=True)))
