"""Loop of a loader over mini-batches, which background threads prepare, and its options."""

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from gnnscale.api.loader.formats import Sampling
from gnnscale.api.loader.loader_data import EdgeUse
from gnnscale.api.loader.trees import read_tree_sampling
from gnnscale.core import ConfigError, Pipeline, brief, listed_numbers, suggestion
from gnnscale.core import types as arrays
from gnnscale.core.hardware import usable_cores
from gnnscale.core.process import standard_arithmetic
from gnnscale.sampling import ShuffledOrder

#: Arguments of PyG's, torch's and DGL's loaders with a single supported value.
FIXED: dict[str, Any] = {
    **dict.fromkeys(("input_time", "edge_label_time", "transform_sampler_output")),
    "custom_cls": None,
    **dict.fromkeys(("neighbor_sampler", "input_id", "sampler", "batch_sampler", "collate_fn")),
    **dict.fromkeys(("worker_init_fn", "mask", "device", "output_device", "gpu_cache")),
    **{"subgraph_type": "directional", "edge_dir": "in"},
    **{"directed": True, "use_ddp": False, "use_uva": False},
}
#: Arguments that concern worker processes, copies and prefetching, and change no batch; and
#: ``is_sorted``, since edges are sorted once in any case.
WITHOUT_EFFECT = (
    *("is_sorted", "filter_per_worker", "persistent_workers", "multiprocessing_context"),
    *("timeout", "in_order", "pin_memory_device", "fused", "ddp_seed", "use_prefetch_thread"),
    *("use_alternate_streams", "pin_prefetcher", "prefetch_node_feats", "prefetch_labels"),
    "prefetch_edge_feats",
)


@dataclass(kw_only=True)
class _Task:
    """Batch to load: number over all epochs, seeds as positions among all seeds, and result."""

    positions: arrays.Array
    step: int
    batch: Any = None

    def take(self) -> Any:
        """Return the loaded batch and drop it here, so that only the caller keeps its memory."""
        batch, self.batch = self.batch, None
        return batch


class MiniBatchLoader(IterableDataset[Any], ABC):
    """Base of loaders: seeds, cut into mini-batches, and threads that prepare these.

    Every ``iter()`` begins an epoch; a batch is a function of the seed, the epoch and its position.
    """

    def __init__(
        self,
        *,
        batch_size: int,
        shuffle: bool,
        drop_last: bool,
        replace: bool,
        num_workers: int,
        prefetch_factor: int | None,
        pin_memory: bool,
        transform: Callable[[Any], Any] | None,
        weight_attr: str | None,
        edge_ids: bool,
        generator: torch.Generator | None,
        seed: int | None,
        num_threads: int | None,
        time_attr: str | None,
        temporal_strategy: str,
        disjoint: bool,
        arguments: dict[str, Any],
    ) -> None:
        """Check the options of a loader, as ``NeighborLoader`` describes them.

        ``arguments`` are those of PyG's, torch's and DGL's loaders that this loader does not name.
        """
        prefetch_factor = 2 if prefetch_factor is None else prefetch_factor
        _check_minimum(0, num_workers=num_workers)
        if num_threads is None:
            num_threads = max(1, usable_cores() // max(1, num_workers))
        weight = _pop_weight_attr(weight_attr, arguments)
        _check_options(arguments, type(self).__init__)
        _check_minimum(
            1, batch_size=batch_size, prefetch_factor=prefetch_factor, num_threads=num_threads
        )
        seed = _choose_seed(seed, generator)
        _check_minimum(0, seed=seed)
        self._sampling = Sampling(
            replace=replace,
            by_weight=weight is not None,
            edge_ids=edge_ids,
            seed=seed,
            num_threads=num_threads,
            pinned=_can_pin(pin_memory),
            trees=read_tree_sampling(
                *(time_attr, temporal_strategy, disjoint),
                replace=replace,
                by_weight=weight is not None,
            ),
        )
        self._use = EdgeUse(weight=weight, time=time_attr, numbered=edge_ids)
        self.batch_size = batch_size
        self._num_seeds = 0
        self._shuffle = shuffle
        self._drop_last = drop_last
        self._num_workers = num_workers
        self._depth = num_workers * prefetch_factor
        self._transform = transform
        self._seed = seed
        self._epoch = 0

    @abstractmethod
    def _make_batch(self, positions: arrays.Array, step: int) -> Any:
        """Return the batch of the seeds at ``positions`` ``[n]``; ``step`` fixes random choices."""

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        spare = 0 if self._drop_last else self.batch_size - 1
        return (self._num_seeds + spare) // self.batch_size

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the batches of the next epoch.

        Raises ConfigError in a worker process of a ``DataLoader``.
        """
        worker = get_worker_info()
        if worker is not None:
            raise ConfigError(
                f"num_workers={worker.num_workers} of DataLoader: expected 0 around a "
                f"{type(self).__name__}, whose own threads prepare batches; each process would "
                "yield all"
            )
        epoch, self._epoch = self._epoch, self._epoch + 1
        return self._batches(self._tasks(epoch))

    def _batches(self, tasks: Iterator[_Task]) -> Iterator[Any]:
        """Load the tasks in threads, which end with this generator, or here; yield each batch."""
        run = [self._load]
        with Pipeline(
            tasks,
            [run] if self._num_workers else [],
            limit=self._depth + 1,
            inline=[] if self._num_workers else run,
            num_threads=self._num_workers,
            adaptive=False,
        ) as pipeline:
            for task in pipeline:
                yield task.take()

    def _tasks(self, epoch: int) -> Iterator[_Task]:
        positions: Iterator[arrays.Array]
        seed_positions = np.arange(self._num_seeds)
        if self._shuffle:
            order = ShuffledOrder(seed_positions, batch_size=self.batch_size, seed=self._seed)
            positions = (step.seeds for step in order.epoch(epoch))
        else:
            starts = range(0, len(seed_positions), self.batch_size)
            positions = (seed_positions[start : start + self.batch_size] for start in starts)
        first_step = epoch * len(self)
        for index, batch in enumerate(islice(positions, len(self))):
            yield _Task(positions=batch, step=first_step + index)

    def _load(self, task: _Task) -> None:
        with standard_arithmetic():
            batch = self._make_batch(task.positions, task.step)
        task.batch = batch if self._transform is None else self._transform(batch)


def fanouts_of_hops(num_neighbors: Any) -> list[int]:
    """Return the fan-out of each hop over a graph without types; ConfigError: invalid ones."""
    if isinstance(num_neighbors, Mapping):
        raise ConfigError("num_neighbors: expected a list, got a dictionary of edge types")
    fanouts = listed_numbers("num_neighbors", num_neighbors, "[15, 10]")
    if not fanouts or any(fanout == 0 or fanout < -1 for fanout in fanouts):
        raise ConfigError(
            f"num_neighbors={fanouts}: expected a positive number, or -1 for all, for each hop"
        )
    return fanouts


def _can_pin(pin_memory: bool) -> bool:
    """Return ``pin_memory``, or False with a warning (as torch's DataLoader does) without CUDA."""
    if pin_memory and not torch.cuda.is_available():
        warnings.warn(
            "pin_memory=True: there is no CUDA device, memory is not pinned", stacklevel=3
        )
        return False
    return pin_memory


def _pop_weight_attr(weight_attr: str | None, arguments: dict[str, Any]) -> str | None:
    """Return ``weight_attr`` or DGL's name for it, ``prob``, removed from ``arguments``."""
    prob = arguments.pop("prob", None)
    if prob is not None and weight_attr is not None:
        raise ConfigError(f"prob={prob!r}: expected None with weight_attr={weight_attr!r}")
    for name, value in (("weight_attr", weight_attr), ("prob", prob)):
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{name}={value!r}: expected the name of an edge attribute")
    return prob if weight_attr is None else weight_attr


def _check_options(arguments: dict[str, Any], loader: Callable[..., Any]) -> None:
    """Raise ConfigError for further ``arguments`` that are unknown to ``loader``."""
    for name, value in arguments.items():
        if name in FIXED:
            expected = FIXED[name]
            plain = getattr(value, "value", value)  # PyG's subgraph types are an enumeration
            if name in ("device", "output_device") and str(value) == "cpu":
                continue
            if plain is not expected and (expected is None or plain != expected):
                raise ConfigError(f"{name}={brief(repr(value))}: expected {expected!r}")
        elif name not in WITHOUT_EFFECT:
            supported = [*inspect.signature(loader).parameters, *FIXED, *WITHOUT_EFFECT]
            raise ConfigError(f"{name}={value!r}: unknown argument{suggestion(name, supported)}")


def _check_minimum(minimum: int, **values: Any) -> None:
    """Raise ConfigError unless every value is an integer of at least ``minimum``."""
    for name, value in values.items():
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise ConfigError(f"{name}={brief(value)}: expected a whole number")
        if value < minimum:
            raise ConfigError(f"{name}={value}: expected at least {minimum}")


def _choose_seed(seed: int | None, generator: torch.Generator | None) -> int:
    """Return ``seed``, else a number drawn from ``generator``, else 0; ConfigError for both."""
    if generator is None:
        return 0 if seed is None else seed
    if seed is not None:
        raise ConfigError(f"seed={seed}: expected None with a generator, which draws the seed")
    return int(torch.randint(2**63 - 1, (), generator=generator).item())
