"""Seed orders: the training vertices of each step and device, by the run's seed and the epoch.

The default cuts one permutation into mini-batches, whose seeds may be split among the devices in
any way. If each device has only its part of the graph, its seeds are fixed.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from typing import Protocol

import numpy as np

from gnnscale.core import Array, BoolArray, ConfigError, GraphError, IntArray
from gnnscale.graph import Graph, SplitLabels, are_labeled

log = logging.getLogger(__name__)
Vertices = IntArray


@dataclass(frozen=True, kw_only=True)
class StepSeeds:
    """Seeds of one step over all devices, and the number of each device (None: any split)."""

    seeds: Vertices  #: ``[n]`` seeds of all devices, device by device
    counts: tuple[int, ...] | None = None  #: seeds of each device. None: any split is valid


class SeedOrder(Protocol):
    """Seeds of every step of every epoch."""

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps in every epoch."""

    @property
    def batch_size(self) -> int:
        """Number of seeds of a full mini-batch, over all devices."""

    @property
    def movable(self) -> bool:
        """Whether seeds may move between devices.

        If so, ``StepSeeds.counts`` is None in every step; otherwise it is set.
        """

    def epoch(self, epoch: int) -> Iterator[StepSeeds]:
        """Yield the seeds of each step of ``epoch``, counted from 0."""


@dataclass(frozen=True, kw_only=True)
class SeedOrderConfig(ABC):
    """Base of the configuration group ``seed_order``."""

    @abstractmethod
    def order(
        self, train_idx: Vertices, *, batch_size: int, num_devices: int, seed: int
    ) -> SeedOrder:
        """Return a seed order of ``train_idx`` ``[n]``; ``batch_size`` is over all devices."""


@dataclass(frozen=True, kw_only=True)
class Shuffled(SeedOrderConfig):
    """A new permutation of all training vertices each epoch, cut into mini-batches."""

    def order(
        self, train_idx: Vertices, *, batch_size: int, num_devices: int, seed: int
    ) -> "ShuffledOrder":
        """Return the seed order of ``train_idx`` ``[n]``, shuffled by ``seed`` and epoch."""
        return ShuffledOrder(train_idx, batch_size=batch_size, seed=seed)


#: Largest number of vertices for which the next epoch's permutation is drawn in the background.
#: Larger permutations take too much memory, and little of an epoch's time.
_MAX_AHEAD = 1 << 24


class ShuffledOrder:
    """Seed order of slices of a permutation drawn by ``(seed, epoch)``; the last may be smaller.

    A thread draws the next epoch's permutation in the middle of an epoch: a device that trains a
    few hundred steps in a tenth of a second would otherwise wait for it.
    """

    movable = True

    def __init__(self, train_idx: Vertices, *, batch_size: int, seed: int) -> None:
        """Order the training vertices ``train_idx`` ``[n]`` by ``seed`` and epoch."""
        self.batch_size = batch_size
        self._train_idx = train_idx
        self._seed = seed
        #: permutation of the next epoch, drawn in the background, by the epoch's number
        self._prefetched: dict[int, _BackgroundPermutation] = {}

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps in every epoch."""
        return -(-len(self._train_idx) // self.batch_size)

    def epoch(self, epoch: int) -> Iterator[StepSeeds]:
        """Yield the seeds of each step of ``epoch``."""
        prefetched = self._prefetched.pop(epoch, None)
        order = self._permutation(epoch) if prefetched is None else prefetched.permutation()
        middle = len(order) // 2
        for start in range(0, len(order), self.batch_size):
            if start <= middle < start + self.batch_size and len(order) <= _MAX_AHEAD:
                draw_next = partial(self._permutation, epoch + 1)
                self._prefetched = {epoch + 1: _BackgroundPermutation(draw_next)}
            yield StepSeeds(seeds=order[start : start + self.batch_size])

    def _permutation(self, epoch: int) -> Array:
        generator = np.random.Generator(np.random.Philox(key=[self._seed, epoch]))
        permutation: Array = generator.permutation(self._train_idx)
        return permutation


class _BackgroundPermutation:
    """Permutation drawn in a thread (NumPy releases the GIL), or on request if none can start."""

    def __init__(self, draw: Callable[[], Array]) -> None:
        self._draw = draw
        self._result: Array | None = None
        self._thread = threading.Thread(target=self._run, name="next-epoch", daemon=True)
        with suppress(RuntimeError):  # the system has no memory for another stack
            self._thread.start()

    def _run(self) -> None:
        self._result = self._draw()

    def permutation(self) -> Array:
        if self._thread.ident is not None:
            self._thread.join()
        return self._draw() if self._result is None else self._result


class CheckedOrder:
    """Wrapper of a seed order: ConfigError if an epoch does not train each vertex exactly once."""

    def __init__(self, order: SeedOrder, train_idx: Vertices, *, num_devices: int) -> None:
        """Wrap ``order``, whose epochs must train each of the vertices ``train_idx`` ``[n]`` once.

        If its steps have ``counts``, these must be for ``num_devices``.
        """
        self.batch_size = order.batch_size
        self.movable = order.movable
        self.steps_per_epoch = order.steps_per_epoch
        self._order = order
        self._train_idx = np.sort(train_idx)
        self._num_devices = num_devices
        self._name = f"seed_order={type(order).__name__}"

    def epoch(self, epoch: int) -> Iterator[StepSeeds]:
        """Yield the seeds of each step of ``epoch``; ConfigError: wrong seeds, counts or steps."""
        trained = np.zeros(len(self._train_idx), np.bool_)
        num_steps = 0
        for num_steps, step in enumerate(self._order.epoch(epoch), 1):
            location = f"{self._name}: step {num_steps - 1} of epoch {epoch + 1}"
            _check_counts(location, step, self, self._num_devices)
            self._mark(trained, step.seeds, epoch)
            yield step
        missing = self._train_idx[~trained]
        if len(missing):
            raise ConfigError(
                f"{self._name}: never trains vertex {missing[0]} in epoch {epoch + 1}"
            )
        if num_steps != self.steps_per_epoch:
            raise ConfigError(
                f"{self._name}: {num_steps} steps in epoch {epoch + 1}, not {self.steps_per_epoch}"
            )

    def _mark(self, trained: BoolArray, seeds: Vertices, epoch: int) -> None:
        order = np.sort(seeds)
        at = np.searchsorted(self._train_idx, order)
        foreign = order[self._train_idx[np.minimum(at, len(trained) - 1)] != order]
        if len(foreign):
            raise ConfigError(
                f"{self._name}: trains vertex {foreign[0]}, which is no training vertex"
            )
        repeated = order[trained[at] | np.append(False, at[1:] == at[:-1])]
        if len(repeated):
            raise ConfigError(
                f"{self._name}: trains vertex {repeated[0]} twice in epoch {epoch + 1}"
            )
        trained[at] = True


class FullBatches:
    """Wrapper of a seed order that leaves out steps of fewer than ``batch_size`` seeds."""

    def __init__(self, order: SeedOrder, *, trains: bool = True) -> None:
        """Wrap ``order``; ``steps_per_epoch`` is the number of full mini-batches in epoch 0.

        ``trains``: ``epoch`` raises ConfigError if another epoch has more or fewer of them.
        """
        self._order = order
        self._trains = trains
        self.batch_size = order.batch_size
        self.movable = order.movable
        #: Steps of every epoch.
        self.steps_per_epoch = sum(1 for _ in self._full(0))

    def epoch(self, epoch: int) -> Iterator[StepSeeds]:
        """Yield the full steps of ``epoch``; ConfigError if ``trains`` and their number differs."""
        num_steps = 0
        for step in self._full(epoch):
            num_steps += 1
            yield step
        if self._trains and num_steps != self.steps_per_epoch:
            raise ConfigError(
                f"drop_last=true: expected {self.steps_per_epoch} full mini-batches in every "
                f"epoch, got {num_steps} in epoch {epoch + 1} of seed_order="
                f"{type(self._order).__name__}; drop_last=false trains all mini-batches"
            )

    def _full(self, epoch: int) -> Iterator[StepSeeds]:
        return (step for step in self._order.epoch(epoch) if len(step.seeds) == self.batch_size)


def _check_counts(location: str, step: StepSeeds, order: SeedOrder, num_devices: int) -> None:
    if len(step.seeds) > order.batch_size or not len(step.seeds):
        raise ConfigError(f"{location}: {len(step.seeds)} seeds, batch_size is {order.batch_size}")
    if (step.counts is None) != order.movable:
        raise ConfigError(
            f"{location}: counts are for seeds that may not move, and for these alone"
        )
    if step.counts is None:
        return
    if len(step.counts) != num_devices or min(step.counts) < 0:
        raise ConfigError(
            f"{location}: expected a count for each of {num_devices} devices, got "
            f"{list(step.counts)}"
        )
    if sum(step.counts) != len(step.seeds):
        raise ConfigError(
            f"{location}: counts {list(step.counts)} sum to {sum(step.counts)}, "
            f"there are {len(step.seeds)} seeds"
        )


def labeled_vertices(graph: SplitLabels, split: str, *, what: str = "vertices") -> Vertices:
    """Return the vertices of ``split`` (train, valid, test) with a label; GraphError without any.

    For the labels of edges, row numbers of edges are returned. ``what`` names vertices or edges in
    errors and in the log line about those without a label. A multilabel split is returned as it is,
    even if empty. Vertices of task rows are returned once, ascending.
    """
    if isinstance(graph, Graph) and graph.rows is not None:
        numbers = labeled_vertices(graph.rows, split, what="rows")
        return np.unique(graph.rows.vertices[numbers])
    vertices: Vertices = getattr(graph.split, f"{split}_idx")
    if graph.multilabel:
        return vertices
    labeled: Vertices = vertices[are_labeled(graph.labels, vertices)]
    if not graph.num_classes:
        raise GraphError(f"{graph.name}: has no labels, which {split} {what} need")
    if not len(vertices):
        raise GraphError(
            f"{graph.name}: has no {split} {what}; masks such as train_mask name them, or "
            "dataset.split=random of files"
        )
    if not len(labeled):
        raise GraphError(f"{graph.name}: none of the {len(vertices)} {split} {what} has a label")
    if len(labeled) < len(vertices):
        num_dropped = len(vertices) - len(labeled)
        log.info(
            f"{graph.name}: {num_dropped} of {len(vertices)} {split} {what} have no label "
            "and are left out"
        )
    return labeled


def two_stage_schedule(
    sizes: Sequence[int], batch_sizes: Sequence[int]
) -> Iterator[list[list[tuple[int, int]]]]:
    """Yield for every step a list by device of pairs: a part, and how many of its seeds to take.

    This is HitGNN's Algorithm 3, for parts of ``sizes`` seeds. Stage 1 lasts while every part has
    seeds left: device i takes a mini-batch, ``batch_sizes[i]`` seeds, of part i. In stage 2 the
    devices whose part is empty take an extra mini-batch each, in turn from the parts with seeds at
    the start of the step.

    The paper counts mini-batches of equal size. Here a device takes the seeds that its part lacks
    for a full mini-batch like an extra mini-batch. Otherwise an epoch could end with a step of a
    few seeds, which moves the weights as much as a full one.
    """
    remaining = list(sizes)
    extra = count()

    def take(part: int, max_seeds: int) -> tuple[int, int]:
        num_seeds = min(remaining[part], max_seeds)
        remaining[part] -= num_seeds
        return part, num_seeds

    while any(remaining):
        available = [part for part, seeds in enumerate(remaining) if seeds]
        step = [[take(device, batch_sizes[device])] for device in range(len(remaining))]
        missing = [size - seeds for size, [(_, seeds)] in zip(batch_sizes, step, strict=True)]
        # Devices without seeds come first.
        for device in sorted(range(len(remaining)), key=lambda index: step[index][0][1] > 0):
            while missing[device] and any(remaining):
                part = available[next(extra) % len(available)]
                if remaining[part]:
                    step[device].append(take(part, missing[device]))
                    missing[device] -= step[device][-1][1]
        yield [[(part, seeds) for part, seeds in pairs if seeds] for pairs in step]


class TwoStageOrder:
    """Seed order by parts: a device trains its part of the graph, then helps with other parts.

    The vertices of a part are shuffled each epoch (local shuffling, PaGraph, section 3.2), by
    ``(seed, epoch, part)`` alone. Every vertex is trained once an epoch.
    """

    movable = False

    def __init__(self, parts: Sequence[Array], *, batch_sizes: Sequence[int], seed: int) -> None:
        """Order device i's training vertices ``parts[i]``, ``batch_sizes[i]`` of them a step."""
        if len(parts) != len(batch_sizes) or min(batch_sizes) < 1:
            raise ValueError(f"batch_sizes: {list(batch_sizes)} for {len(parts)} parts")
        self.batch_size = sum(batch_sizes)
        self._parts = list(parts)
        self._seed = seed
        self._steps = list(two_stage_schedule([len(part) for part in parts], batch_sizes))

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps in every epoch."""
        return len(self._steps)

    def epoch(self, epoch: int) -> Iterator[StepSeeds]:
        """Yield the seeds of each step of ``epoch``, device by device."""
        orders = [self._shuffled(part, epoch) for part in range(len(self._parts))]
        num_taken = [0] * len(orders)
        for step in self._steps:
            seeds = []
            for part, num_seeds in chain.from_iterable(step):
                seeds.append(orders[part][num_taken[part] : num_taken[part] + num_seeds])
                num_taken[part] += num_seeds
            counts = tuple(sum(num_seeds for _, num_seeds in pairs) for pairs in step)

            yield StepSeeds(seeds=np.concatenate(seeds), counts=counts)

    def _shuffled(self, part: int, epoch: int) -> Array:
        # The counter keeps the streams of parts apart, and from that of the whole graph.
        bits = np.random.Philox(key=[self._seed, epoch], counter=[0, 0, 0, part + 1])
        order: Array = np.random.Generator(bits).permutation(self._parts[part])
        return order
