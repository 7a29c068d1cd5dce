"""Mini-batches for a user's own training loop, in PyG's form or in DGL's."""

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from gnnscale.api.loader.batch_format import FORMATS, Sampling
from gnnscale.api.loader.loader_data import EdgeUse, read_data
from gnnscale.core import (
    ConfigError,
    GraphError,
    Pipeline,
    listed_numbers,
    nearest,
    shown,
    standard_arithmetic,
    usable_cores,
)
from gnnscale.core import types as arrays
from gnnscale.data.array_inputs import as_array
from gnnscale.data.validation import check_ids
from gnnscale.graph import Graph
from gnnscale.sampling import ShuffledOrder

#: Arguments of others with a single value that this loader can honour: PyG's, torch's, DGL's.
FIXED: dict[str, Any] = {
    **dict.fromkeys(("input_time", "time_attr", "transform_sampler_output", "custom_cls")),
    **dict.fromkeys(("neighbor_sampler", "input_id", "sampler", "batch_sampler", "collate_fn")),
    **dict.fromkeys(("worker_init_fn", "mask", "device", "output_device", "gpu_cache")),
    **{"subgraph_type": "directional", "temporal_strategy": "uniform", "edge_dir": "in"},
    **{"directed": True, "disjoint": False, "use_ddp": False, "use_uva": False},
}
#: Those that steer worker processes, copies and what is read ahead, and change no batch.
WITHOUT_EFFECT = (
    *("is_sorted", "filter_per_worker", "persistent_workers", "multiprocessing_context"),
    *("timeout", "in_order", "pin_memory_device", "fused", "ddp_seed", "use_prefetch_thread"),
    *("use_alternate_streams", "pin_prefetcher", "prefetch_node_feats", "prefetch_labels"),
    "prefetch_edge_feats",
)


@dataclass(kw_only=True)
class _Task:
    """A batch that is to be loaded: the positions of its seeds, its step, and what came of it."""

    positions: arrays.Array
    step: int
    batch: Any = None

    def take(self) -> Any:
        """Give the batch away: its memory is free for the next one when the caller is done."""
        batch, self.batch = self.batch, None
        return batch


class NeighborLoader(IterableDataset[Any]):
    """Yields sampled mini-batches; takes the arguments of PyG's loader of the same name.

    Batches are sampled and their rows gathered natively, by background threads instead of worker
    processes. They end when the loop does, also when it breaks off.

    In PyG's form a batch is a ``torch_geometric.data.Data`` with

    - ``x``, ``y`` and any other per-vertex attribute of ``data``: rows of the sampled vertices;
    - ``edge_index`` ``[2, num_edges]`` int64 local ids, sources then destinations, hop by hop;
    - ``n_id`` int64 global ids of the vertices, the seeds first, then hop by hop;
    - ``input_id`` int64 positions of the seeds in ``input_nodes`` (their ids for a mask);
    - ``batch_size``, the number of seeds;
    - ``num_sampled_nodes`` (seeds, hop 1, ...) and ``num_sampled_edges`` (hop 1, ...), lists for
      ``torch_geometric.utils.trim_to_layer``. As in PyG, a hop expands the vertices that the hop
      before it found.

    Where edges have data (``edge_attr``, ``edge_weight``, any other), or with ``edge_ids``, also

    - the rows of the sampled edges, in the order of ``edge_index``;
    - ``e_id`` int64 their places in the ``edge_index`` of ``data``. Of a ``gnnscale.Graph`` they
      are its ``edge_ids``, or else places in its ``indices``.

    In DGL's form it is ``(input_nodes, output_nodes, blocks)``, with rows for all sources of the
    first block in its ``srcdata`` and for all destinations of the last one in its ``dstdata``
    (``feat``, ``label`` and any other), and with data and ``dgl.EID`` of edges in each block's
    ``edata``. As in DGL, a hop expands every vertex of the block above.

    An epoch begins with every ``iter()``. Epochs differ in the neighbours drawn, and
    with ``shuffle`` in the order of the seeds; ``seed`` fixes both, for any number of threads.

    It is an ``IterableDataset`` with a length. A ``DataLoader(loader, batch_size=None)`` yields its
    batches, but not with worker processes, each of which would yield all of them.

    Args:
        data: a ``gnnscale.Graph``, or a homogeneous PyG ``Data`` or DGL graph on the CPU, whose
            edges are sorted once. To share that among loaders, convert it to a Graph first.
        num_neighbors: neighbours a vertex, from the seeds outwards; -1 takes all.
        input_nodes: seeds: distinct ids, or a mask over all vertices; None for every vertex.
        batch_size: seeds a batch; the last may have fewer.
        shuffle: a new order each epoch, fixed by ``(seed, epoch)``.
        drop_last: leave out a last batch with fewer seeds.
        replace: draw neighbours with replacement.
        num_workers: background threads; 0 makes each batch when it is asked for.
        prefetch_factor: batches a background thread prepares ahead; None for 2.
        pin_memory: put batches into page-locked memory; needs CUDA.
        transform: called with each batch, in the background thread; its result is yielded.
        weight_attr: draw neighbours with probability by this attribute of edges, one number
            each; of a Graph, ``edge_weight``. Those of weight 0 are never drawn. DGL's name of
            the argument, ``prob``, is taken too.
        edge_ids: add the numbers of edges even if these have no data.
        generator: ``seed`` is drawn from it, once.
        seed: fixes order and neighbours; None for 0, or what ``generator`` draws.
        num_threads: threads of the native kernels for a batch; by default the cores, divided by
            ``num_workers``.
        output_format: ``pyg`` or ``dgl``.
        others: further arguments of PyG's and DGL's loaders, with values that mean what this
            one does; ``docs/loader.md`` lists them.

    Raises:
        ConfigError: an argument has a value that is not allowed.
        GraphError: ``data`` is not usable, or ``input_nodes`` are not distinct vertices of it.
        ImportError: the library of ``output_format`` is not installed.
    """

    @standard_arithmetic()
    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int],
        input_nodes: Any = None,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        replace: bool = False,
        num_workers: int = 1,
        prefetch_factor: int | None = 2,
        pin_memory: bool = False,
        transform: Callable[[Any], Any] | None = None,
        weight_attr: str | None = None,
        edge_ids: bool = False,
        generator: torch.Generator | None = None,
        seed: int | None = None,
        num_threads: int | None = None,
        output_format: str = "pyg",
        **others: Any,
    ) -> None:
        if isinstance(num_neighbors, Mapping):
            raise ConfigError("num_neighbors: a dictionary, allowed is a list: one type of edges")
        fanouts = listed_numbers("num_neighbors", num_neighbors, "[15, 10]")
        prefetch_factor = 2 if prefetch_factor is None else prefetch_factor
        _check_minimum(0, num_workers=num_workers)
        if num_threads is None:
            num_threads = max(1, usable_cores() // max(1, num_workers))
        if output_format not in FORMATS:
            raise ConfigError(f"output_format={output_format!r}: allowed are {', '.join(FORMATS)}")
        weight = _weights_of(weight_attr, others)
        _check_options(fanouts, others, type(self).__init__)
        _check_minimum(
            1, batch_size=batch_size, prefetch_factor=prefetch_factor, num_threads=num_threads
        )
        seed = _drawn_seed(seed, generator)
        _check_minimum(0, seed=seed)
        sampling = Sampling(
            fanouts=fanouts,
            replace=replace,
            by_weight=weight is not None,
            edge_ids=edge_ids,
            seed=seed,
            num_threads=num_threads,
            pinned=_can_pin(pin_memory),
        )
        parts = read_data(data, EdgeUse(weight=weight, numbered=edge_ids))
        self._seeds, self._input_ids = _read_seeds(input_nodes, parts.graph)
        self._format = FORMATS[output_format](parts, sampling)
        self.batch_size = batch_size
        self._shuffle = shuffle
        self._drop_last = drop_last
        self._num_workers = num_workers
        self._depth = num_workers * prefetch_factor
        self._transform = transform
        self._seed = seed
        self._epoch = 0

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        if self._drop_last:
            return len(self._seeds) // self.batch_size
        return -(-len(self._seeds) // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        """Begin the next epoch."""
        worker = get_worker_info()
        if worker is not None:
            raise ConfigError(
                f"num_workers={worker.num_workers} of DataLoader: allowed is 0 around a "
                "NeighborLoader, whose own threads prepare batches; each process would yield all"
            )
        epoch, self._epoch = self._epoch, self._epoch + 1
        return self._batches(self._tasks(epoch))

    def _batches(self, tasks: Iterator[_Task]) -> Iterator[Any]:
        """Yield the result of each task; threads end with this generator, however it ends."""
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
        everything = np.arange(len(self._seeds))
        if self._shuffle:
            order = ShuffledOrder(everything, batch_size=self.batch_size, seed=self._seed)
            positions = (step.seeds for step in order.epoch(epoch))
        else:
            starts = range(0, len(everything), self.batch_size)
            positions = (everything[start : start + self.batch_size] for start in starts)
        first_step = epoch * len(self)
        for index, batch in enumerate(islice(positions, len(self))):
            yield _Task(positions=batch, step=first_step + index)

    def _load(self, task: _Task) -> None:
        seeds, input_ids = self._seeds[task.positions], self._input_ids[task.positions]
        with standard_arithmetic():
            batch = self._format.batch(seeds, input_ids, task.step)
        task.batch = batch if self._transform is None else self._transform(batch)


def _can_pin(pin_memory: bool) -> bool:
    """Warn as torch's DataLoader does if there is nothing to pin memory for."""
    if pin_memory and not torch.cuda.is_available():
        warnings.warn(
            "pin_memory=True: there is no CUDA device, memory is not pinned", stacklevel=3
        )
        return False
    return pin_memory


def _read_seeds(input_nodes: Any, graph: Graph) -> tuple[arrays.Array, arrays.Int64Array]:
    """Return the seeds, in the graph's type of ids, and the ``input_id`` of each."""
    num_vertices = graph.num_vertices
    nodes = np.arange(num_vertices)
    if input_nodes is not None:
        nodes = as_array(input_nodes, "input_nodes")
        if not nodes.size and nodes.ndim == 1:  # an empty list is float64 to NumPy
            nodes = nodes.astype(np.int64)
    if nodes.ndim != 1:
        raise GraphError(f"input_nodes are {list(nodes.shape)}, allowed is one axis")
    if nodes.dtype == np.bool_:
        if len(nodes) != num_vertices:
            raise GraphError(
                f"input_nodes is a mask over {len(nodes)} vertices, the graph has {num_vertices}"
            )
        nodes = np.flatnonzero(nodes)
        return nodes.astype(graph.indices.dtype), nodes
    check_ids(nodes, num_vertices, "input_nodes")
    distinct, counts = np.unique(nodes, return_counts=True)
    if len(distinct) < len(nodes):
        raise GraphError(f"input_nodes names vertex {distinct[counts > 1][0]} more than once")
    return nodes.astype(graph.indices.dtype), np.arange(len(nodes))


def _weights_of(weight_attr: str | None, others: dict[str, Any]) -> str | None:
    """Return the attribute of edges that neighbours are drawn by, and take ``prob`` from others."""
    prob = others.pop("prob", None)
    if prob is not None and weight_attr is not None:
        raise ConfigError(f"prob={prob!r}: allowed is None beside weight_attr={weight_attr!r}")
    given = {"weight_attr": weight_attr, "prob": prob}
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{name}={value!r}: allowed is the name of an attribute of edges")
    return prob if weight_attr is None else weight_attr


def _check_options(fanouts: list[int], others: dict[str, Any], loader: Callable[..., Any]) -> None:
    """Refuse fan-outs, and arguments that ``loader`` does not have, that cannot be honoured."""
    if not fanouts or any(fanout == 0 or fanout < -1 for fanout in fanouts):
        raise ConfigError(
            f"num_neighbors={fanouts}: allowed is a positive number, or -1 for all, for each hop"
        )
    for name, value in others.items():
        if name in FIXED:
            allowed = FIXED[name]
            plain = getattr(value, "value", value)  # PyG has an enumeration of subgraph types
            if name in ("device", "output_device") and str(value) == "cpu":
                continue
            if plain is not allowed and (allowed is None or plain != allowed):
                raise ConfigError(f"{name}={value!r}: allowed is {allowed!r}")
        elif name not in WITHOUT_EFFECT:
            known = [*inspect.signature(loader).parameters, *FIXED, *WITHOUT_EFFECT]
            raise ConfigError(f"{name}={value!r}: there is no such argument{nearest(name, known)}")


def _check_minimum(minimum: int, **values: Any) -> None:
    """Raise ConfigError unless every value is a whole number of at least ``minimum``."""
    for name, value in values.items():
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise ConfigError(f"{name}={shown(value)}: expected a whole number")
        if value < minimum:
            raise ConfigError(f"{name}={value}: must be at least {minimum}")


def _drawn_seed(seed: int | None, generator: torch.Generator | None) -> int:
    """Return the seed: the one given, or drawn from ``generator``, or 0."""
    if generator is None:
        return 0 if seed is None else seed
    if seed is not None:
        raise ConfigError(f"seed={seed}: allowed is None beside a generator, which draws it")
    return int(torch.randint(2**63 - 1, (), generator=generator).item())
