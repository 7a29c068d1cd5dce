"""The synchronizer (HyScale-GNN, section III-A): gradients of all trainers, summed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gnnscale.backend import Backend, BatchOutcome
from gnnscale.core import STAGES, Array, Float32Array, StageTimes, Traffic
from gnnscale.core.stages import NO_TRAFFIC
from gnnscale.distributed.process_group import Group
from gnnscale.graph.store_format import vertex_dtype
from gnnscale.nn import TrainableModel
from gnnscale.nn.learned_embeddings import LearnedEmbedding
from gnnscale.nn.optim.sparse import RowSums


def share_row_gradients(rows: LearnedEmbedding, group: Group) -> None:
    """Give ``rows`` the gradients of all devices; every process calls this once a step.

    Each sends its vertices and their gradients, ``[n, dim]`` float32, to all others. Processes that
    update by them keep equal tables, bit for bit: sums are in the order of ranks.

    Args:
        rows: learned rows, with the gradient of this device, or none if it had no seeds.
    """
    dtype = vertex_dtype(len(rows.weight))
    if rows.gradient is None:
        ids = np.empty(0, dtype)
        gradients = rows.weight.new_empty(0, rows.weight.shape[1])
    else:
        ids, sums = rows.gradient
        gradients = sums.total(torch.float32, num_threads=torch.get_num_threads())
    mine = torch.from_numpy(np.ascontiguousarray(ids, dtype)), gradients
    rows.gradient = sums_of_equal(*_gathered(mine, group))


def sums_of_equal(vertices: Tensor, gradients: Tensor) -> tuple[Array, RowSums]:
    """Return the distinct ones of ``vertices``, ascending, and the sums of their gradients.

    Args:
        vertices: ``[n]`` ids.
        gradients: ``[n, dim]`` float32; those of a vertex are summed in this order.
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


def _gathered(parts: Sequence[Tensor], group: Group) -> list[Tensor]:
    """Return the rows of all processes, in the order of ranks, for each of ``parts``.

    Args:
        parts: have the same number of rows, which may differ between processes.
    """
    counts = torch.empty(group.size, 1, dtype=torch.int64)
    group.gather_into(counts, torch.tensor([len(parts[0])]))
    lengths = counts.flatten().tolist()
    whole = [part.new_empty(sum(lengths), *part.shape[1:]) for part in parts]
    works = []
    for part, every in zip(parts, whole, strict=True):
        slices = torch.split(every, lengths)
        slices[group.rank].copy_(part)
        for peer in (rank for rank in range(group.size) if rank != group.rank):
            if lengths[peer]:
                works.append(group.start_receiving(slices[peer], peer))
            if len(part):
                works.append(group.start_sending(part, peer))
    group.finish(works)
    return whole


def combine_statistics(model: nn.Module, rows: Mapping[int, int], group: Group) -> bool:
    """Replace the floating-point buffers of ``model`` by those of all devices together.

    Of a batch normalisation, into which n_d rows with the running mean m_d and variance v_d went on
    device d, the rows of all devices have (law of total variance)

        mean = Σ n_d m_d / Σ n_d,    variance = Σ n_d (v_d + m_d²) / Σ n_d - mean².

    Any other floating-point buffer becomes the mean over devices, weighted likewise. A device that
    had no rows does not count. If every device has the same part of the rows in every step, this
    mean is the one that a single process would have. Integer counters stay as they are.

    Args:
        model: layers in ``layers``, normalisations after them in ``norms``, as in ``GNN``.
        rows: of each layer, rows that it wrote on this device since the last time and that its
            statistics count; 0 if missing.

    Returns:
        Whether there was anything to combine.
    """
    found = list(_statistics(model))
    if not found or group.size == 1:
        return False
    parts = []
    for layer, mean, variance in found:
        count = torch.tensor([float(rows.get(layer, 0))], dtype=torch.float64)
        parts += [count, *(count * each.flatten() for each in _moments(mean, variance))]
    sums = torch.cat(parts)
    group.sum(sums)
    left = iter(torch.split(sums, [len(each) for each in parts]))
    for _, mean, variance in found:
        count = next(left)
        firsts = next(left)
        seconds = None if variance is None else next(left)
        if not count:
            continue
        combined = firsts / count
        mean.copy_(combined.view_as(mean))
        if variance is not None and seconds is not None:
            spread = (seconds / count - combined.square()).clamp(min=0)
            variance.copy_(spread.view_as(variance))
    return True


def needs_several_rows(model: nn.Module) -> frozenset[int]:
    """Return the layers of which a slice with one row leaves the running statistics as they are.

    Such rows are not counted in ``combine_statistics``. See ``GNN.normalise``.
    """
    norms = getattr(model, "norms", ())
    return frozenset(index for index, norm in enumerate(norms) if isinstance(norm, _BatchNorm))


def _moments(mean: Tensor, variance: Tensor | None) -> list[Tensor]:
    """Return the first moment, and the second if there is a variance, in float64."""
    first = mean.double()
    return [first] if variance is None else [first, variance.double() + first.square()]


def _statistics(model: nn.Module) -> Iterator[tuple[int, Tensor, Tensor | None]]:
    """Yield layer, mean and variance of each normalisation, and layer and value of other buffers.

    What belongs to no layer counts as the last one's, which writes the seeds' rows.
    """
    last = max(len(getattr(model, "layers", ())) - 1, 0)
    for name, module in model.named_modules():
        layer = _layer_of(name, last)
        own = dict(module.named_buffers(recurse=False))
        if isinstance(module, _BatchNorm) and module.running_mean is not None:
            yield layer, own.pop("running_mean"), own.pop("running_var")
        for each in own.values():
            if each.is_floating_point():
                yield layer, each, None


def _layer_of(name: str, last: int) -> int:
    """Return the layer that the module ``name`` belongs to, inputs first."""
    place, _, rest = name.partition(".")
    number = rest.partition(".")[0]
    return int(number) if place in ("layers", "norms") and number.isdigit() else last


#: float32 holds integers up to 2^24 exactly: two of them hold a count.
_HALF = 1 << 24

_NUM_COUNTS = 2 + len(NO_TRAFFIC.counts())

#: The loss, and whether a checkpoint is wanted: sums over all devices.
_SHARED = 2

#: Stage times, counts, and stage times by counted work.
_ROW = 2 * len(STAGES) + 2 * _NUM_COUNTS


@dataclass(frozen=True, kw_only=True)
class StepTotals:
    """What every worker knows after a step."""

    loss: float  #: mean over the mini-batch's seeds
    num_edges: int  #: over all layers and devices
    num_vertices: int  #: over all layers and devices
    #: each device's stage times; ``sync`` is that of the step before
    stages: tuple[StageTimes, ...]
    traffic: tuple[Traffic, ...]  #: what each device moved
    #: each device's stage times by counted work, None if work is not counted
    counted: tuple[StageTimes, ...] | None = None
    checkpoint: bool = False  #: whether rank 0 wants a checkpoint after this step

    @classmethod
    def of_one(
        cls,
        outcome: BatchOutcome | None,
        stages: StageTimes,
        counted: tuple[StageTimes] | None,
        *,
        checkpoint: bool,
    ) -> StepTotals:
        """Return the totals of a step that one device alone did, None if it had no seeds."""
        return cls(
            loss=outcome.loss if outcome else 0.0,
            num_edges=outcome.num_edges if outcome else 0,
            num_vertices=outcome.num_vertices if outcome else 0,
            stages=(stages,),
            traffic=(outcome.traffic if outcome else NO_TRAFFIC,),
            counted=counted,
            checkpoint=checkpoint,
        )

    @property
    def managed(self) -> tuple[StageTimes, ...]:
        """The times that resource management uses."""
        return self.stages if self.counted is None else self.counted


class StepControl:
    """What devices trade of a step beside gradients: a row of numbers each."""

    def __init__(self, group: Group, values: Tensor | None = None) -> None:
        """Take ``values`` float32 in host memory, as many as ``size_of`` says, or new ones."""
        self._group = group
        self.values = torch.zeros(self.size_of(group)) if values is None else values

    @classmethod
    def size_of(cls, group: Group) -> int:
        """Return how many numbers there are."""
        return _SHARED + group.size * _ROW

    def trade(
        self,
        outcome: BatchOutcome | None,
        stages: StageTimes,
        counted: StageTimes | None,
        *,
        checkpoint: bool,
    ) -> StepTotals:
        """Return the totals of a step, of which each of several devices passes its own part."""
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
        """Fill this device's row; the other rows are zeros, and so sums are exact."""
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
        """Return what all devices have written, once it is summed.

        Args:
            counts: whether work is counted.
        """
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
            traffic=tuple(Traffic.from_counts(each) for each in sums[:, 2:].tolist()),
            counted=counted if counts else None,
            checkpoint=bool(control[1]),
        )


class Synchronizer:
    """Sums gradients in one flat bucket, and gathers what every device did.

    Parameters that are not shared (P3) are left to their device.

    Each slice's loss is weighted with its part of the mini-batch before it is differentiated, so
    that the sum is the gradient of the mean over all seeds. As every process gets the same sums,
    each decides the same about the next steps without a message.

    A bucket in host memory carries the control data (loss, counts, stage times, traffic, and
    whether a checkpoint is wanted, which only rank 0's clock and disk determine) as well,
    so that a step takes one all-reduce. A bucket on devices, summed by their own collective
    library, has the control data beside it in host memory. Gradients of learned rows follow.
    """

    def __init__(
        self, model: TrainableModel, backend: Backend, group: Group, *, own_collective: bool = False
    ) -> None:
        """Lay out the bucket.

        Args:
            own_collective: whether the bucket lies on the device, if ``Device.collective`` of
                all devices names the library that sums it.
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
            # One buffer, hence one collective a step.
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
        """Sum all devices' gradients into ``parameter.grad``; rank 0 may want a ``checkpoint``."""
        self._backend.gradients_out(self._gradients)
        if self._group.size == 1:
            of_one = None if counted is None else (counted,)
            totals = StepTotals.of_one(outcome, stages, of_one, checkpoint=checkpoint)
        else:
            self._control.write(outcome, stages, counted or StageTimes(), checkpoint=checkpoint)
            if self._own_collective:
                self._group.sum(self._bucket)
                self._group.sum(self._control.values)
            else:
                self._group.sum(self._buffer)
            totals = self._control.read(counts=counted is not None)
            if self._model.vertex_rows is not None:
                share_row_gradients(self._model.vertex_rows, self._group)
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient.to(parameter.device)
        return totals

    def clip_gradients(self, max_norm: float) -> None:
        """Scale all gradients down to a global L2 norm of ``max_norm``.

        Gradients that are not shared are parts of one that is spread over the devices.
        """
        parameters = list(self._model.parameters())
        shared = {id(each) for each in self._parameters}
        if len(shared) == len(parameters):
            nn.utils.clip_grad_norm_(parameters, max_norm)
            return
        squares = torch.zeros(2)
        for each in parameters:
            if each.grad is not None:
                squares[int(id(each) in shared)] += each.grad.square().sum()
        self._group.sum(squares[:1])
        nn.utils.clip_grads_with_norm_(parameters, max_norm, squares.sum().sqrt())

    def combine_statistics(self, rows: Mapping[int, int]) -> None:
        """Make running statistics those of all devices; a normalisation sees its slices only.

        Args:
            rows: of each layer, rows that this device wrote since the last time.
        """
        self._backend.buffers_out()
        if combine_statistics(self._model, rows, self._group):
            self._backend.load_state()


def _stage_times(seconds: Sequence[float]) -> StageTimes:
    return StageTimes(**dict(zip(STAGES, seconds, strict=True)))
