"""Seed orders: which vertices are trained in which step, and on which device.

A seed order is a pure function of the run's seed and the epoch. The default cuts one permutation
into mini-batches, whose seeds may be split among the devices in any way. If each device has only
its part of the graph, its seeds are fixed.
"""

from __future__ import annotations

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
from gnnscale.graph import SplitLabels
from gnnscale.graph.store_format import has_label

log = logging.getLogger(__name__)
Vertices = IntArray


@dataclass(frozen=True, kw_only=True)
class StepSeeds:
    """The seeds of one step."""

    seeds: Vertices  #: ``[n]`` of all devices, those of one device after those of another
    counts: tuple[int, ...] | None = None  #: seeds of each device; None if any split will do


class SeedOrder(Protocol):
    """The seeds of every step of every epoch."""

    @property
    def steps_per_epoch(self) -> int:
        """Steps of every epoch."""
        ...

    @property
    def batch_size(self) -> int:
        """Seeds of a full mini-batch, over all devices."""
        ...

    @property
    def movable(self) -> bool:
        """Whether seeds may move between devices; ``StepSeeds.counts`` is None then."""
        ...

    def epoch(self, epoch: int) -> Iterator[StepSeeds]:
        """Yield the seeds of each step of ``epoch``, counted from 0."""
        ...


@dataclass(frozen=True, kw_only=True)
class SeedOrderConfig(ABC):
    """Base of the configuration group ``seed_order``."""

    @abstractmethod
    def order(
        self, train_idx: Vertices, *, batch_size: int, num_devices: int, seed: int
    ) -> SeedOrder:
        """Return the order of the training vertices ``[n]``; a mini-batch counts all devices."""


@dataclass(frozen=True, kw_only=True)
class Shuffled(SeedOrderConfig):
    """A new permutation of all training vertices each epoch, cut into mini-batches."""

    def order(
        self, train_idx: Vertices, *, batch_size: int, num_devices: int, seed: int
    ) -> ShuffledOrder:
        """Return the order of a run."""
        return ShuffledOrder(train_idx, batch_size=batch_size, seed=seed)


#: Vertices up to which the next epoch's permutation is drawn while an epoch is trained. More take
#: memory for two, and their epochs are so long that drawing one is no part of them.
_MAX_AHEAD = 1 << 24


class ShuffledOrder:
    """Slices of a permutation fixed by ``(seed, epoch)``; the last of an epoch may be smaller.

    The next epoch's is drawn in a thread, in the middle of an epoch: a device that trains a few
    hundred steps in a tenth of a second would wait for it.
    """

    movable = True

    def __init__(self, train_idx: Vertices, *, batch_size: int, seed: int) -> None:
        """Order ``train_idx`` ``[n]``."""
        self.batch_size = batch_size
        self._train_idx = train_idx
        self._seed = seed
        #: the permutation of an epoch that is drawn ahead, by the epoch's number
        self._ahead: dict[int, _Drawn] = {}

    @property
    def steps_per_epoch(self) -> int:
        """Steps of every epoch."""
        return -(-len(self._train_idx) // self.batch_size)

    def epoch(self, epoch: int) -> Iterator[StepSeeds]:
        """Yield the seeds of each step of ``epoch``."""
        drawn = self._ahead.pop(epoch, None)
        order = self._permutation(epoch) if drawn is None else drawn.permutation()
        middle = len(order) // 2
        for start in range(0, len(order), self.batch_size):
            if start <= middle < start + self.batch_size and len(order) <= _MAX_AHEAD:
                self._ahead = {epoch + 1: _Drawn(partial(self._permutation, epoch + 1))}
            yield StepSeeds(seeds=order[start : start + self.batch_size])

    def _permutation(self, epoch: int) -> Array:
        generator = np.random.Generator(np.random.Philox(key=[self._seed, epoch]))
        permutation: Array = generator.permutation(self._train_idx)
        return permutation


class _Drawn:
    """A permutation that a thread draws; NumPy does so without Python's lock."""

    def __init__(self, draw: Callable[[], Array]) -> None:
        self._draw = draw
        self._found: Array | None = None
        self._thread = threading.Thread(target=self._run, name="next-epoch", daemon=True)
        with suppress(RuntimeError):  # the system has no memory for another stack
            self._thread.start()

    def _run(self) -> None:
        self._found = self._draw()

    def permutation(self) -> Array:
        if self._thread.ident is not None:
            self._thread.join()
        return self._draw() if self._found is None else self._found


class CheckedOrder:
    """A seed order that is refused as soon as an epoch does not train every vertex exactly once."""

    def __init__(self, order: SeedOrder, train_idx: Vertices, *, num_devices: int) -> None:
        """Check ``order`` against the training vertices ``[n]``, and the devices of the plan."""
        self.batch_size = order.batch_size
        self.movable = order.movable
        self.steps_per_epoch = order.steps_per_epoch
        self._order = order
        self._train_idx = np.sort(train_idx)
        self._num_devices = num_devices
        self._name = f"seed_order={type(order).__name__}"

    def epoch(self, epoch: int) -> Iterator[StepSeeds]:
        """Yield the seeds of each step of ``epoch``.

        Raises:
            ConfigError: a vertex is trained twice or never, or the counts are not those of the
                seeds.
        """
        trained = np.zeros(len(self._train_idx), np.bool_)
        num_steps = 0
        for num_steps, step in enumerate(self._order.epoch(epoch), 1):
            place = f"{self._name}: step {num_steps - 1} of epoch {epoch + 1}"
            _check_counts(place, step, self, self._num_devices)
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
        unknown = order[self._train_idx[np.minimum(at, len(trained) - 1)] != order]
        if len(unknown):
            raise ConfigError(
                f"{self._name}: trains vertex {unknown[0]}, which is no training vertex"
            )
        again = order[trained[at] | np.append(False, at[1:] == at[:-1])]
        if len(again):
            raise ConfigError(f"{self._name}: trains vertex {again[0]} twice in epoch {epoch + 1}")
        trained[at] = True


class FullBatches:
    """The full mini-batches of a seed order, in its order: the incomplete ones are dropped."""

    def __init__(self, order: SeedOrder, *, trains: bool = True) -> None:
        """Drop the incomplete mini-batches of ``order``.

        Args:
            order: every epoch of which has the same number of full mini-batches.
            trains: whether a run trains them, so that another number in an epoch is refused.
        """
        self._order = order
        self._trains = trains
        self.batch_size = order.batch_size
        self.movable = order.movable
        #: Steps of every epoch.
        self.steps_per_epoch = sum(1 for _ in self._full(0))

    def epoch(self, epoch: int) -> Iterator[StepSeeds]:
        """Yield the seeds of each step of ``epoch``.

        Raises:
            ConfigError: the epoch has another number of full mini-batches than the first.
        """
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


def _check_counts(place: str, step: StepSeeds, order: SeedOrder, num_devices: int) -> None:
    if len(step.seeds) > order.batch_size or not len(step.seeds):
        raise ConfigError(f"{place}: {len(step.seeds)} seeds, batch_size is {order.batch_size}")
    if (step.counts is None) != order.movable:
        raise ConfigError(f"{place}: counts are for seeds that may not move, and for these alone")
    if step.counts is None:
        return
    if len(step.counts) != num_devices or min(step.counts) < 0:
        raise ConfigError(
            f"{place}: counts {list(step.counts)}, one for each of {num_devices} devices is needed"
        )
    if sum(step.counts) != len(step.seeds):
        raise ConfigError(
            f"{place}: counts {list(step.counts)} sum to {sum(step.counts)}, "
            f"there are {len(step.seeds)} seeds"
        )


def labelled_vertices(graph: SplitLabels, split: str, *, what: str = "vertices") -> Vertices:
    """Return the vertices of ``split`` (train, valid, test) whose label is known.

    Args:
        graph: or the labels of its edges, whose rows are then returned.
        split: which part.
        what: has the labels, in errors.

    Raises:
        GraphError: there is none.
    """
    vertices: Vertices = getattr(graph.split, f"{split}_idx")
    if graph.multilabel:
        return vertices
    known: Vertices = vertices[has_label(graph.labels[vertices])]
    if not graph.num_classes:
        raise GraphError(f"{graph.name}: has no labels, which {split} {what} need")
    if not len(vertices):
        raise GraphError(
            f"{graph.name}: has no {split} {what}; masks such as train_mask name them, or "
            "dataset.split=random of files"
        )
    if not len(known):
        raise GraphError(f"{graph.name}: none of the {len(vertices)} {split} {what} has a label")
    if len(known) < len(vertices):
        left_out = len(vertices) - len(known)
        log.info(
            f"{graph.name}: {left_out} of {len(vertices)} {split} {what} have no label "
            "and are left out"
        )
    return known


def two_stage_schedule(
    sizes: Sequence[int], batch_sizes: Sequence[int]
) -> Iterator[list[list[tuple[int, int]]]]:
    """Yield for every step the parts that each device takes from, and the seeds of each.

    This is Algorithm 3. Stage 1 lasts while every part has seeds left: device i takes a mini-batch
    of part i. In stage 2 the devices whose part is empty take an extra mini-batch each, in turn
    from the parts that began the step with seeds.

    The paper counts mini-batches of equal size. Here the seeds of a part may not fill its last one:
    the device then takes what is missing as it takes an extra mini-batch. So every mini-batch is
    full in every step but the last. Otherwise an epoch could end with a step of a few seeds, which
    moves the weights as much as a full one. ``sizes`` are the training vertices of the p parts,
    ``batch_sizes`` the seeds of each device's mini-batch.
    """
    left = list(sizes)
    extra = count()

    def take(part: int, wanted: int) -> tuple[int, int]:
        num_seeds = min(left[part], wanted)
        left[part] -= num_seeds
        return part, num_seeds

    while any(left):
        available = [part for part, seeds in enumerate(left) if seeds]
        step = [[take(device, batch_sizes[device])] for device in range(len(left))]
        missing = [size - taken for size, [(_, taken)] in zip(batch_sizes, step, strict=True)]
        # Who has nothing comes first.
        for device in sorted(range(len(left)), key=lambda each: step[each][0][1] > 0):
            while missing[device] and any(left):
                part = available[next(extra) % len(available)]
                if left[part]:
                    step[device].append(take(part, missing[device]))
                    missing[device] -= step[device][-1][1]
        yield [[(part, seeds) for part, seeds in taken if seeds] for taken in step]


class TwoStageOrder:
    """Every device trains the vertices of its part; one that is done helps the others.

    The vertices of a part are shuffled each epoch (local shuffling, PaGraph, section 3.2), by
    ``(seed, epoch, part)`` alone. Every vertex is trained once an epoch.
    """

    movable = False

    def __init__(self, parts: Sequence[Array], *, batch_sizes: Sequence[int], seed: int) -> None:
        """Order the training vertices of ``parts``, of which part i is device i's.

        Raises:
            ValueError: there is not a mini-batch of at least one seed for each part.
        """
        if len(parts) != len(batch_sizes) or min(batch_sizes) < 1:
            raise ValueError(f"batch_sizes: {list(batch_sizes)} for {len(parts)} parts")
        self.batch_size = sum(batch_sizes)
        self._parts = list(parts)
        self._seed = seed
        self._steps = list(two_stage_schedule([len(part) for part in parts], batch_sizes))

    @property
    def steps_per_epoch(self) -> int:
        """Steps of every epoch."""
        return len(self._steps)

    def epoch(self, epoch: int) -> Iterator[StepSeeds]:
        """Yield the seeds of each step of ``epoch``, those of device 0 first."""
        orders = [self._shuffled(part, epoch) for part in range(len(self._parts))]
        taken = [0] * len(orders)
        for step in self._steps:
            seeds = []
            for part, num_seeds in chain.from_iterable(step):
                seeds.append(orders[part][taken[part] : taken[part] + num_seeds])
                taken[part] += num_seeds
            counts = tuple(sum(num_seeds for _, num_seeds in taken_by) for taken_by in step)
            yield StepSeeds(seeds=np.concatenate(seeds), counts=counts)

    def _shuffled(self, part: int, epoch: int) -> Array:
        # The counter keeps the streams of parts apart, and from that of the whole graph.
        bits = np.random.Philox(key=[self._seed, epoch], counter=[0, 0, 0, part + 1])
        order: Array = np.random.Generator(bits).permutation(self._parts[part])
        return order
