"""Loader of mini-batches for a user's own training loop, in the formats of PyG and DGL."""

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from gnnscale.api.loader import typed_data
from gnnscale.api.loader.formats import FORMATS, Sampling
from gnnscale.api.loader.loader_data import EdgeUse, read_data
from gnnscale.core import ConfigError, GraphError, Pipeline, brief, listed_numbers, suggestion
from gnnscale.core import types as arrays
from gnnscale.core.hardware import usable_cores
from gnnscale.core.process import standard_arithmetic
from gnnscale.data.array_inputs import as_array
from gnnscale.data.peer_fields import is_hetero_data
from gnnscale.data.peers import single_graph
from gnnscale.data.validation import check_ids
from gnnscale.sampling import ShuffledOrder
from gnnscale.sampling.typed import fanouts_by_type

#: Arguments of PyG's, torch's and DGL's loaders with a single supported value.
FIXED: dict[str, Any] = {
    **dict.fromkeys(("input_time", "time_attr", "transform_sampler_output", "custom_cls")),
    **dict.fromkeys(("neighbor_sampler", "input_id", "sampler", "batch_sampler", "collate_fn")),
    **dict.fromkeys(("worker_init_fn", "mask", "device", "output_device", "gpu_cache")),
    **{"subgraph_type": "directional", "temporal_strategy": "uniform", "edge_dir": "in"},
    **{"directed": True, "disjoint": False, "use_ddp": False, "use_uva": False},
}
#: Arguments that concern worker processes, copies and prefetching, and change no batch.
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


class NeighborLoader(IterableDataset[Any]):
    """Loader of sampled mini-batches, with the arguments of PyG's loader of this name.

    Background threads sample batches and gather their rows natively, in place of worker processes.
    The threads end with the loop, also when the loop breaks off.

    Example::

        loader = NeighborLoader(graph, [10, 5], input_nodes=train_ids, batch_size=512)
        for batch in loader:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]

    A batch in PyG's format is a ``torch_geometric.data.Data`` with

    - ``x``, ``y`` and any further vertex attribute of ``data``: rows of the sampled vertices;
    - ``edge_index`` ``[2, num_edges]`` int64 local ids, sources then destinations, hop by hop;
    - ``n_id`` int64 global ids of the vertices, seeds first, then hop by hop;
    - ``input_id`` int64 positions of the seeds in ``input_nodes`` (their ids for a mask);
    - ``batch_size``, the number of seeds;
    - ``num_sampled_nodes`` (seeds, hop 1, ...) and ``num_sampled_edges`` (hop 1, ...), lists for
      ``torch_geometric.utils.trim_to_layer``. As in PyG, a hop expands the vertices that the
      previous hop added.

    If edges have data (``edge_attr``, ``edge_weight``, ...), or with ``edge_ids``, a batch also has

    - the rows of the sampled edges, in the order of ``edge_index``;
    - ``e_id`` int64 indices into the ``edge_index`` of ``data``. For a ``gnnscale.Graph``: its
      ``edge_ids``, or indices into its ``indices``.

    A batch in DGL's format is ``(input_nodes, output_nodes, blocks)``. The ``srcdata`` of the first
    block has rows for all its sources, and the ``dstdata`` of the last block for its destinations
    (``feat``, ``label``, ...). The ``edata`` of each block has edge data and ``dgl.EID``. As in
    DGL, a hop expands every vertex of the block above.

    Every ``iter()`` begins an epoch. Epochs differ in the sampled neighbors, and with ``shuffle``
    in the order of the seeds. ``seed`` determines both for any number of threads.

    The loader is an ``IterableDataset`` with a length. ``DataLoader(loader, batch_size=None)``
    yields its batches. Worker processes are refused, since each would yield all batches.

    Args:
        data: a ``gnnscale.Graph``, or a homogeneous PyG ``Data`` or DGL graph on the CPU, whose
            edges are sorted once. Convert it to a Graph first to share the sorted edges among
            loaders. Or PyG's ``HeteroData``: batches are ``HeteroData``, too.
        num_neighbors: neighbors per vertex and hop, from the seeds outwards; -1 for all. For a
            ``HeteroData`` also such a list for each edge type, with 0 for none.
        input_nodes: seeds: distinct ids, or a mask over all vertices. None: every vertex. For a
            ``HeteroData`` a vertex type, or a pair of a vertex type and its seeds.
        batch_size: seeds of a batch; the last batch may have fewer.
        shuffle: whether the order of seeds changes each epoch, determined by ``(seed, epoch)``.
        drop_last: whether to drop a last batch with fewer seeds.
        replace: whether to sample neighbors with replacement.
        num_workers: number of background threads. 0: batches are computed on demand.
        prefetch_factor: batches that each background thread prepares ahead. None: 2.
        pin_memory: whether to allocate batches in page-locked memory; needs CUDA.
        transform: function called with each batch in the background thread; its result is yielded.
        weight_attr: edge attribute with sampling weights, one number per edge; ``edge_weight`` for
            a Graph. Edges of weight 0 are never sampled. DGL's name ``prob`` is accepted too.
        edge_ids: whether batches contain edge ids even without edge data.
        generator: generator that ``seed`` is drawn from, once.
        seed: seed of order and neighbors. None: drawn from ``generator``, or 0.
        num_threads: threads of the native kernels per batch. None: cores divided by
            ``num_workers``.
        output_format: ``pyg`` or ``dgl``.
        arguments: further arguments of PyG's and DGL's loaders with the values that this loader
            supports; ``docs/loader.md`` lists them.

    Raises:
        ConfigError: an argument has an invalid value.
        GraphError: ``data`` is not usable, or ``input_nodes`` are not distinct vertices.
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
        **arguments: Any,
    ) -> None:
        prefetch_factor = 2 if prefetch_factor is None else prefetch_factor
        _check_minimum(0, num_workers=num_workers)
        if num_threads is None:
            num_threads = max(1, usable_cores() // max(1, num_workers))
        if output_format not in FORMATS:
            raise ConfigError(f"output_format={output_format!r}: expected {', '.join(FORMATS)}")
        weight = _pop_weight_attr(weight_attr, arguments)
        _check_options(arguments, type(self).__init__)
        _check_minimum(
            1, batch_size=batch_size, prefetch_factor=prefetch_factor, num_threads=num_threads
        )
        seed = _choose_seed(seed, generator)
        _check_minimum(0, seed=seed)
        sampling = Sampling(
            replace=replace,
            by_weight=weight is not None,
            edge_ids=edge_ids,
            seed=seed,
            num_threads=num_threads,
            pinned=_can_pin(pin_memory),
        )
        data = single_graph(data, "data").graph
        prepare = _prepare_typed if is_hetero_data(data) else _prepare
        self._format, self._seeds, self._input_ids = prepare(
            data,
            num_neighbors,
            input_nodes,
            EdgeUse(weight=weight, numbered=edge_ids),
            sampling,
            output_format,
        )
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
        num_seeds = len(self._seeds)
        return num_seeds // self.batch_size if self._drop_last else -(-num_seeds // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the batches of the next epoch.

        Raises ConfigError in a worker process of a ``DataLoader``.
        """
        worker = get_worker_info()
        if worker is not None:
            raise ConfigError(
                f"num_workers={worker.num_workers} of DataLoader: expected 0 around a "
                "NeighborLoader, whose own threads prepare batches; each process would yield all"
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
        seed_positions = np.arange(len(self._seeds))
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
        seeds, input_ids = self._seeds[task.positions], self._input_ids[task.positions]
        with standard_arithmetic():
            batch = self._format.batch(seeds, input_ids, task.step)
        task.batch = batch if self._transform is None else self._transform(batch)


#: Maker of batches, seeds in the graph's id type, and the ``input_id`` of each.
_Prepared: TypeAlias = tuple[Any, arrays.Array, arrays.Int64Array]


def _prepare(
    data: Any,
    num_neighbors: Any,
    input_nodes: Any,
    use: EdgeUse,
    sampling: Sampling,
    output_format: str,
) -> _Prepared:
    """Prepare to batch a graph without types; arguments are those of ``NeighborLoader``."""
    if isinstance(num_neighbors, Mapping):
        raise ConfigError("num_neighbors: expected a list, got a dictionary of edge types")
    fanouts = listed_numbers("num_neighbors", num_neighbors, "[15, 10]")
    if not fanouts or any(fanout == 0 or fanout < -1 for fanout in fanouts):
        raise ConfigError(
            f"num_neighbors={fanouts}: expected a positive number, or -1 for all, for each hop"
        )
    parts = read_data(data, use)
    seeds, input_ids = _read_seeds(input_nodes, parts.graph.num_vertices)
    seeds = seeds.astype(parts.graph.indices.dtype)
    return FORMATS[output_format](parts, sampling, fanouts), seeds, input_ids


def _prepare_typed(
    data: Any,
    num_neighbors: Any,
    input_nodes: Any,
    use: EdgeUse,
    sampling: Sampling,
    output_format: str,
) -> _Prepared:
    """Prepare to batch PyG's ``HeteroData``; arguments are those of ``NeighborLoader``."""
    if output_format != "pyg":
        raise ConfigError(f"output_format={output_format!r}: expected 'pyg' for a HeteroData")
    parts = typed_data.read_hetero_data(data, use)
    schema = parts.graph.schema
    fanouts = fanouts_by_type(schema, num_neighbors, option="num_neighbors")
    seed_type, nodes = typed_data.seed_type(input_nodes, schema)
    ids = schema.vertices(seed_type)
    seeds, input_ids = _read_seeds(nodes, ids.stop - ids.start)
    seeds = (seeds + ids.start).astype(parts.graph.indices.dtype)
    return typed_data.HeteroFormat(parts, sampling, fanouts, seed_type), seeds, input_ids


def _can_pin(pin_memory: bool) -> bool:
    """Return ``pin_memory``, or False with a warning (as torch's DataLoader does) without CUDA."""
    if pin_memory and not torch.cuda.is_available():
        warnings.warn(
            "pin_memory=True: there is no CUDA device, memory is not pinned", stacklevel=3
        )
        return False
    return pin_memory


def _read_seeds(input_nodes: Any, num_vertices: int) -> tuple[arrays.Array, arrays.Int64Array]:
    """Return the seeds of ``input_nodes``, and the ``input_id`` of each.

    The latter is the seed's position in ``input_nodes``, or its vertex id for a mask or None.
    """
    nodes = np.arange(num_vertices)
    if input_nodes is not None:
        nodes = as_array(input_nodes, "input_nodes")
        if not nodes.size and nodes.ndim == 1:  # an empty list is float64 to NumPy
            nodes = nodes.astype(np.int64)
    if nodes.ndim != 1:
        raise GraphError(f"input_nodes: expected one axis, got {list(nodes.shape)}")
    if nodes.dtype == np.bool_:
        if len(nodes) != num_vertices:
            raise GraphError(
                f"input_nodes: expected a mask over {num_vertices} vertices, got {len(nodes)}"
            )
        nodes = np.flatnonzero(nodes)
        return nodes, nodes
    check_ids(nodes, num_vertices, "input_nodes")
    distinct, counts = np.unique(nodes, return_counts=True)
    if len(distinct) < len(nodes):
        raise GraphError(
            f"input_nodes: expected distinct ids, got {distinct[counts > 1][0]} more than once"
        )
    return nodes, np.arange(len(nodes))


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
                raise ConfigError(f"{name}={value!r}: expected {expected!r}")
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
