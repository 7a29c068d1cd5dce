"""What the caches of a run are planned for: its devices, their links, and its mini-batches."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gnnscale import cache
from gnnscale.cache.problem import row_bytes
from gnnscale.core import ConfigError
from gnnscale.core.artifact.header import plain
from gnnscale.core.config.user_code import code_digest
from gnnscale.graph import Graph
from gnnscale.nn import TrainableModel, cost
from gnnscale.partition import Partition, nvlink
from gnnscale.planner import Accelerator, Device, device_plan
from gnnscale.planner.cost_model import equations
from gnnscale.planner.cost_model import stage_work as work
from gnnscale.planner.cost_model.workload import Workload, unmeasured_workload
from gnnscale.run.config import BatchConfig, RunConfig
from gnnscale.run.inputs import checked_order
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
    """Return the bytes that the cache of ``device`` may take.

    If the planner names no budget, it is what the device has left: all its memory, minus what
    the model and the mini-batches in flight take at their peak, by the first mini-batch, and
    minus a reserve. If so many do not fit, fewer are in flight.

    Raises:
        ConfigError: nothing is left.
    """
    if planner.budget_bytes is not None:
        return planner.budget_bytes
    if planner.ratio is not None:
        return int(min(planner.ratio, 1.0) * graph.num_vertices) * row_bytes(graph)
    batch = 0.0 if first is None else work.batch_bytes(workload, first)
    model = equations.BYTES_PER_PARAMETER * workload.num_weights
    if planner.keeps_batch and first is not None:
        model += int(first.vertices[0]) * row_bytes(graph)
    free = device.budget_bytes * (1 - planner.reserve) - model
    for count in range(in_flight, 0, -1):
        if free >= count * batch:
            return int(free - count * batch)
    raise ConfigError(
        f"cache_planner={planner.policy}: {device.label} has no memory left for a cache: of "
        f"{device.budget_bytes / 1e6:,.1f} MB the model and a mini-batch take "
        f"{(model + batch) / 1e6:,.1f} MB, and cache_planner.reserve={planner.reserve} keeps a "
        "part free; a smaller batch_size, fewer neighbours (sampler.fanouts) or "
        "cache_planner.budget_bytes allow one"
    )


def plan_caches(
    config: BatchConfig, graph: Graph, partition: Partition | None, *, force: bool = False
) -> Path:
    """Plan the caches of a run, if that is not done yet, and return the plan's directory.

    Raises:
        ConfigError: the policy does not go with the run.
        GraphError: the plan cannot be written, or another one lies in its place.
    """
    return cache.make_plan(
        config.cache_planner,
        cache_task(config, graph, partition),
        partition=None if partition is None else partition.content,
        run=_run(config),
        force=force,
    )


def check_given_plan(
    config: RunConfig, graph: Graph, partition: Partition | None, path: Path
) -> None:
    """Refuse a plan that does not fit the graph, its parts, or the devices.

    Raises:
        GraphError: it is of another graph, of other parts, or of rows of another type.
        ConfigError: it caches for a device that has no memory of its own.
    """
    stored = cache.read_plan(path, graph)
    cache.check_parts(stored, None if partition is None else partition.content)
    devices = config.device_plan.parsed()
    positions = {at for at, device in enumerate(devices) if has_memory(device)}
    for each in stored.plan.devices:
        if each.device not in positions:
            raise ConfigError(
                f"cache_plan={path}: caches for {each.name} at position {each.device}, where "
                "device_plan has no device with memory of their own"
            )
    for clique in stored.plan.cliques:
        if len(clique) > 1:
            _check_peers(f"cache_plan={path}", [devices[each] for each in clique])


def cache_task(config: BatchConfig, graph: Graph, partition: Partition | None) -> cache.CacheTask:
    """Return what the caches of a run are planned for.

    Raises:
        ConfigError: the planner's machine has fewer devices than the plan, or devices of a clique
            cannot read each other's memory.
    """
    graph.check_features()
    parts = None if partition is None else partition.parts
    devices, sampler = config.device_plan.parsed(), config.sampler
    split = config.device_plan.split or [1] * len(devices)
    draws = cache.Presampler(
        graph,
        sampler,
        checked_order(config, seed_order.labelled_vertices(graph, "train"), parts),
        split=partial(device_plan.apportion, split),
        # Without one the performance model splits them; while training, drm moves them.
        fixed=config.device_plan.split is not None and not config.runtime.drm,
        seed=config.seed,
        num_threads=config.num_threads,
    )
    model = config.model.build(
        num_features=graph.num_features,
        num_classes=graph.num_classes,
        num_edge_features=graph.num_edge_features,
    )
    task = cache.CacheTask(
        graph=graph,
        devices=(),
        num_devices=len(devices),
        cliques=(),
        parts=parts,
        draws=draws,
        num_epochs=config.epochs,
        batch_size=config.batch_size,
        # By these, formulas give what a batch includes.
        fanouts=tuple(sampler.fanouts) if isinstance(sampler, NeighborSampling) else None,
        replace=bool(getattr(sampler, "replace", False)),
        aggregated_row_bytes=_aggregated_row_bytes(model),
        seed=config.seed,
    )
    found = _devices(config, graph, unmeasured_workload(graph, model), task)
    return replace(task, devices=found, cliques=_cliques(config, found))


def _aggregated_row_bytes(model: TrainableModel) -> int | None:
    """Bytes of a row that the host aggregates for the model's first layer, if it can."""
    first = next(iter(model.layer_costs), None)
    if first is None or not first.aggregates_on_load:
        return None
    return first.loaded_width * cost.BYTES_PER_FEATURE


def _devices(
    config: BatchConfig, graph: Graph, workload: Workload, task: cache.CacheTask
) -> tuple[cache.CacheDevice, ...]:
    """Return the devices with their own memory, which a link connects."""
    runtime = config.runtime
    first_batches = task.first_batches if config.cache_planner.sizes_itself else {}
    in_flight = 1 if runtime.prefetch == "none" else runtime.prefetch_depth + 1
    found = []
    for position, device in enumerate(config.device_plan.parsed()):
        if not has_memory(device):
            continue
        assert isinstance(device, Accelerator)
        first = first_batches.get(position)
        found.append(
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
    return tuple(found)


def has_memory(device: Device) -> bool:
    """Return whether a device has room for a cache in its own memory, which a link connects."""
    return isinstance(device, Accelerator) and device.holds_cache


def _cliques(
    config: BatchConfig, devices: tuple[cache.CacheDevice, ...]
) -> tuple[tuple[int, ...], ...]:
    """Return the positions of devices that read each other's caches."""
    planner, positions = config.cache_planner, [device.position for device in devices]
    if not planner.shares or planner.nvlink is None:
        return tuple((position,) for position in positions)
    option = f"cache_planner.nvlink={planner.nvlink}"
    links = nvlink.links_of(planner.nvlink, option="cache_planner.nvlink")
    if len(positions) > len(links):
        raise ConfigError(
            f"{option}: has {len(links)} GPUs, device_plan has {len(positions)} devices with "
            "memory of their own"
        )
    among = nvlink.disjoint_cliques(links[: len(positions), : len(positions)])
    cliques = tuple(tuple(positions[gpu] for gpu in clique) for clique in among)
    parsed = config.device_plan.parsed()
    for clique in cliques:
        if len(clique) > 1:
            _check_peers(option, [parsed[each] for each in clique])
    return cliques


def _check_peers(option: str, members: list[Any]) -> None:
    """Refuse a clique of devices that cannot read each other's memory."""
    for device in members:
        if device.peer_bandwidth is None:
            names = ", ".join(each.label for each in members)
            raise ConfigError(
                f"{option}: {names} read each other's caches, but {device.label} has "
                "peer_bandwidth=null; give it one, or leave the links out"
            )


def _run(config: BatchConfig) -> dict[str, Any]:
    """Return the options that decide the batches, as plain values."""
    code = code_digest(type(config.sampler))
    return {
        "device_plan.split": plain(config.device_plan.split),
        "sampler": plain(config.sampler),
        **({} if code is None else {"sampler's code": code}),
        "seed_order": plain(config.seed_order),
        # Plans of releases without the option stay valid.
        **({"drop_last": True} if config.drop_last else {}),
    }
