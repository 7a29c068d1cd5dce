"""Inputs of cache planning: devices of a run, their links, and their mini-batches."""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from gnnscale import cache
from gnnscale.cache.hotness.degree import Fanout
from gnnscale.core import ConfigError
from gnnscale.core.artifact.files import plain
from gnnscale.core.config.user_code import code_digest
from gnnscale.graph import Graph
from gnnscale.nn import TrainableModel, cost
from gnnscale.partition import Partition, nvlink
from gnnscale.planner import Accelerator, Device, device_plan
from gnnscale.planner.cost_model import Workload, equations, unmeasured_workload
from gnnscale.planner.cost_model import stage_work as work
from gnnscale.run.batch_config import BatchConfig
from gnnscale.run.inputs import checked_order
from gnnscale.run.tasks.cutoffs import row_sampling
from gnnscale.run.typed_inputs import check_reads_types
from gnnscale.sampling import NeighborSampling, seed_order


def cache_budget(
    planner: cache.CachePlannerConfig,
    graph: Graph,
    device: Accelerator,
    *,
    workload: Workload,
    first: equations.BatchSize | None,
    in_flight: int,
) -> int:
    """Return the bytes that the cache of ``device`` may take; ConfigError if no memory is left.

    Without a budget or ratio in ``planner``, it is the memory that the device has left: total
    memory, minus a reserve, the model, and the peak memory of ``in_flight`` mini-batches, or of as
    many as fit, each of the size ``first`` (None: no seeds, hence no memory).
    """
    if planner.budget_bytes is not None:
        return planner.budget_bytes
    if planner.ratio is not None:
        return sum(
            int(min(planner.ratio, 1.0) * (rows.vertices.stop - rows.vertices.start))
            * rows.row_bytes
            for rows in cache.row_types(graph)
            if rows.is_cached
        )
    batch = 0.0 if first is None else work.batch_bytes(workload, first)
    model = equations.BYTES_PER_PARAMETER * workload.num_weights
    if planner.matches_batches and first is not None:
        model += int(first.vertices[0]) * graph.row_bytes
    free = device.budget_bytes * (1 - planner.reserve) - model
    for count in range(in_flight, 0, -1):
        if free >= count * batch:
            return int(free - count * batch)
    raise ConfigError(
        f"cache_planner={planner.policy}: {device.label} has no memory left for a cache: the model "
        f"and a mini-batch take {(model + batch) / 1e6:,.1f} of "
        f"{device.budget_bytes / 1e6:,.1f} MB, and cache_planner.reserve={planner.reserve} keeps "
        "a part free; reduce batch_size or sampler.fanouts, or set cache_planner.budget_bytes"
    )


def plan_caches(
    config: BatchConfig, graph: Graph, partition: Partition | None, *, force: bool = False
) -> Path:
    """Plan the caches of a run, unless a plan is stored, and return the plan's directory.

    ``force`` replaces a stored plan. ConfigError if the policy does not fit the run, GraphError if
    the plan cannot be written, or its directory has another plan.
    """
    check_reads_types(config.model, graph.name, graph.vertex_types)
    return cache.make_plan(
        config.cache_planner,
        cache_task(config, graph, partition),
        partition=None if partition is None else partition.content,
        run=_batch_options(config),
        force=force,
    )


def check_cache_plan(
    devices: Sequence[Device], graph: Graph, partition: Partition | None, path: Path
) -> None:
    """Raise an error if the plan at ``path`` is of another graph or partition.

    ConfigError also if it has caches that ``devices`` cannot have, or cannot share.
    """
    stored = cache.read_plan(path, graph)
    cache.check_partition(stored, None if partition is None else partition.content)
    positions = {i for i, device in enumerate(devices) if has_memory(device)}
    for entry in stored.plan.devices:
        if entry.device not in positions:
            raise ConfigError(
                f"cache_plan={path}: has a cache for {entry.name} at position {entry.device}, "
                "where device_plan has no device with its own memory"
            )
    for clique in stored.plan.cliques:
        if len(clique) > 1:
            _check_peers(f"cache_plan={path}", [devices[i] for i in clique])


def cache_task(config: BatchConfig, graph: Graph, partition: Partition | None) -> cache.CacheTask:
    """Return the cache planner's input: graph, devices with budgets, cliques, sampled mini-batches.

    ConfigError if the NVLink machine has fewer devices than the plan, or devices of a clique cannot
    read each other's memory.
    """
    graph.check_features()
    parts = None if partition is None else partition.parts
    devices, sampler = config.device_plan.parsed(), config.sampler
    split = config.device_plan.split or [1] * len(devices)
    rows, num_classes = graph.rows, (graph.rows or graph).num_classes
    seeds = seed_order.labeled_vertices(rows or graph, "train")
    vertices = None if rows is None else rows.vertices[seeds]
    draws = cache.Presampler(
        graph,
        row_sampling(sampler, graph),
        checked_order(config, seeds, parts, vertices),
        split=partial(device_plan.apportion, split),
        # Without a split the performance model chooses one, and drm changes it during training.
        fixed=config.device_plan.split is not None and not config.runtime.drm,
        seed=config.seed,
        num_threads=config.num_threads,
    )
    types = graph.input_types
    if types is None:
        model = config.model.build(
            num_features=graph.num_features,
            num_classes=num_classes,
            num_edge_features=graph.num_edge_features,
        )
    else:
        model = config.model.build_for(types, num_classes=num_classes)
    task = cache.CacheTask(
        graph=graph,
        devices=(),
        num_devices=len(devices),
        cliques=(),
        parts=parts,
        draws=draws,
        num_epochs=config.epochs,
        batch_size=config.batch_size,
        # Formulas compute inclusion probabilities from fan-outs, without times.
        fanouts=_fanouts(sampler, graph)
        if isinstance(sampler, NeighborSampling) and rows is None
        else None,
        replace=bool(getattr(sampler, "replace", False)),
        aggregated_row_bytes=_aggregated_row_bytes(model),
        seed=config.seed,
    )
    cached = _devices(config, graph, unmeasured_workload(graph, model), task)
    return replace(task, devices=cached, cliques=_cliques(config, cached))


def _fanouts(sampler: NeighborSampling, graph: Graph) -> tuple[Fanout, ...]:
    """Return the fan-out of each hop; with types, of each edge type."""
    lists = sampler.lists_for(graph)
    return tuple(zip(*lists.values(), strict=True)) if lists else tuple(sampler.fanouts)


def _aggregated_row_bytes(model: TrainableModel) -> int | None:
    """Return the bytes of a row that the host aggregates for the first layer; None: it cannot."""
    first = next(iter(model.layer_costs), None)
    if first is None or not first.aggregates_on_load:
        return None
    return first.loaded_width * cost.BYTES_PER_FEATURE


def _devices(
    config: BatchConfig, graph: Graph, workload: Workload, task: cache.CacheTask
) -> tuple[cache.CacheDevice, ...]:
    """Return the devices that can have a cache, each with its budget and costs of requests.

    ``task`` draws the mini-batches by which free memory is estimated.
    """
    runtime = config.runtime
    first_batches = task.first_batches if config.cache_planner.uses_free_memory else {}
    in_flight = 1 if runtime.prefetch == "none" else runtime.prefetch_depth + 1
    cached = []
    for position, device in enumerate(config.device_plan.parsed()):
        if not has_memory(device):
            continue
        assert isinstance(device, Accelerator)
        first = first_batches.get(position)
        cached.append(
            cache.CacheDevice(
                position=position,
                name=device.label,
                budget_bytes=cache_budget(
                    config.cache_planner,
                    graph,
                    device,
                    workload=replace(workload, host_aggregates=False),
                    first=None if first is None else equations.BatchSize.of(first),
                    in_flight=in_flight,
                ),
                samples=device.reads_lists,
                loads=device.loads,
                request_bytes=device.link_request_bytes,
                overhead_bytes=device.link_overhead_bytes,
                may_aggregate=device.takes_aggregated,
            )
        )
    return tuple(cached)


def has_memory(device: Device) -> bool:
    """Return whether a device can have a cache in its own memory, behind a link."""
    return isinstance(device, Accelerator) and device.holds_cache


def _cliques(
    config: BatchConfig, devices: tuple[cache.CacheDevice, ...]
) -> tuple[tuple[int, ...], ...]:
    """Return cliques of devices that read each other's caches, as positions in the device plan."""
    planner, positions = config.cache_planner, [device.position for device in devices]
    if not planner.shares or planner.nvlink is None:
        return tuple((position,) for position in positions)
    option = f"cache_planner.nvlink={planner.nvlink}"
    links = nvlink.find_links(planner.nvlink, option="cache_planner.nvlink")
    if len(positions) > len(links):
        raise ConfigError(
            f"{option}: expected at least {len(positions)} GPUs, one for each device of "
            f"device_plan with its own memory, got {len(links)}"
        )
    gpu_cliques = nvlink.disjoint_cliques(links[: len(positions), : len(positions)])
    cliques = tuple(tuple(positions[gpu] for gpu in clique) for clique in gpu_cliques)
    parsed = config.device_plan.parsed()
    for clique in cliques:
        if len(clique) > 1:
            _check_peers(option, [parsed[i] for i in clique])
    return cliques


def _check_peers(option: str, members: list[Any]) -> None:
    """Raise ConfigError, naming ``option``, if a device of a clique has no ``peer_bandwidth``."""
    for device in members:
        if device.peer_bandwidth is None:
            names = ", ".join(member.label for member in members)
            raise ConfigError(
                f"{option}: {names} read each other's caches, but {device.label} has "
                "peer_bandwidth=null; set peer_bandwidth, or remove the links"
            )


def _batch_options(config: BatchConfig) -> dict[str, Any]:
    """Return the options that determine the mini-batches, as plain values."""
    code = code_digest(type(config.sampler))
    # Plans of releases without these options stay valid. Checks change no mini-batch.
    newer = ("edge_fanouts", "time", "bound", "direction", "window", "strategy")
    options = [option for option in fields(config.sampler) if option.name in newer]
    defaults = {option.name: option.default for option in options}
    sampler = {
        name: value
        for name, value in plain(config.sampler).items()
        if name != "check_times" and (name not in defaults or value != defaults[name])
    }
    return {
        "device_plan.split": plain(config.device_plan.split),
        "sampler": sampler,
        **({} if code is None else {"sampler's code": code}),
        "seed_order": plain(config.seed_order),
        # Only if set, so that plans of releases without the option stay valid.
        **({"drop_last": True} if config.drop_last else {}),
    }
