"""Stored cache plan: an array of vertices for each cache, and ``cache_plan.json``."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from gnnscale.cache.base import CachePlannerConfig
from gnnscale.cache.plan import (
    BatchBytes,
    Bytes,
    CachePlan,
    CacheTraffic,
    CurvePoint,
    DeviceCache,
    LookAhead,
    Reads,
    Share,
)
from gnnscale.cache.problem import (
    CacheTask,
    feature_bytes,
    list_bytes,
    look_ahead_bytes,
    row_types,
)
from gnnscale.core import Array, GraphError, brief
from gnnscale.core.artifact import ArtifactType, Form, check_limits, check_lines, digest, plain
from gnnscale.core.artifact.npy import ArrayEntry, write_array
from gnnscale.core.config import code_digest, stored_path
from gnnscale.core.sorted_sets import distinct
from gnnscale.graph import Graph, vertex_dtype
from gnnscale.partition.store import GraphIdentity, check_graph, describe

CACHE_PLAN = ArtifactType(
    name="cache plan",
    header="cache_plan.json",
    version=3,
    folder="cache_plans",
    option="cache_planner.store",
    command="gnnscale plan-cache",
    files=r"cache_plan\.json|(features|topology)_\d+\.npy|cache_plan\.svg|\.cache_plan\.svg\.tmp",
)
_CACHED = ("features", "topology")
#: Largest length of a name or a note, in characters.
_MAX_TEXT = 1000


@dataclass(frozen=True, kw_only=True)
class PlanIdentity:
    """Inputs that determine a cache plan."""

    graph: GraphIdentity  #: graph of the lists and rows; its content hash covers the features
    feature_dtype: str  #: element type of a row
    row_bytes: int
    partition: str | None  #: hash of the partition that the devices train. None: a whole graph
    planner: str  #: class of the policy
    options: dict[str, Any]  #: options of the policy, plain values
    devices: list[dict[str, Any]]  #: devices that may have a cache, plain values
    cliques: list[list[int]]  #: positions of devices that read each other's caches
    run: dict[str, Any]  #: settings that determine the batches, such as seed, epochs and sampler


def identify(
    planner: CachePlannerConfig, task: CacheTask, *, partition: str | None, run: dict[str, Any]
) -> PlanIdentity:
    """Return the inputs of ``planner``'s plan for ``task``; ``partition`` is a partition's hash."""
    names = (field.name for field in fields(planner) if field.name != "store")
    code = {"planner's code": code_digest(type(planner))}
    return PlanIdentity(
        graph=describe(task.graph),
        feature_dtype=task.graph.feature_dtype,
        row_bytes=task.row_bytes,
        partition=partition,
        planner=stored_path(type(planner)),
        options={name: plain(getattr(planner, name)) for name in names},
        devices=[asdict(device) for device in task.devices],
        cliques=[list(clique) for clique in task.cliques],
        run={
            "seed": task.seed,
            "epochs": task.num_epochs,
            "batch_size": task.batch_size,
            "number of devices": task.num_devices,
            "aggregated_row_bytes": task.aggregated_row_bytes,
            # Only of rows of several types, so that plans of other graphs stay valid.
            **({} if task.has_equal_rows else {"bytes of rows": _row_sizes(task)}),
            **{name: value for name, value in code.items() if value is not None},
            **run,
        },
    )


def _row_sizes(task: CacheTask) -> dict[str, list[int]]:
    """Return the bytes of a row of each vertex type, and 1 if caches may have it, else 0."""
    return {entry.name: [entry.row_bytes, int(entry.is_cached)] for entry in task.row_types}


def plan_place(planner: CachePlannerConfig, identity: PlanIdentity, *, policy: str) -> Path:
    """Return the plan's directory: ``planner.store``, or a default.

    The default is named by the graph, ``policy`` and a digest of ``identity``.
    """
    return CACHE_PLAN.directory(planner.store, identity.graph.name, policy, asdict(identity))


@dataclass(frozen=True, kw_only=True)
class StoredPlan:
    """Cache plan read from a directory, with the inputs that determined it."""

    plan: CachePlan
    identity: PlanIdentity  #: inputs that determined the plan
    seconds: float  #: duration of planning
    path: Path  #: directory of the plan
    content: str  #: hash of the plan's content


@dataclass(frozen=True, kw_only=True)
class _DeviceEntry:
    """Entry of ``devices`` in ``cache_plan.json``: a device's cache without its vertices."""

    device: Annotated[int, Meta(ge=0)]
    name: str
    budget_bytes: Bytes
    topology_bytes: int
    feature_bytes: int
    num_cached_topology: int
    num_cached_features: int
    look_ahead: LookAhead | None = None
    host_aggregates: bool = False
    batch_bytes: BatchBytes | None = None
    matched_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class _CliqueEntry:
    """Entry of ``cliques`` in ``cache_plan.json``: positions, and the lists' memory share."""

    devices: Annotated[tuple[int, ...], Meta(min_length=1)]
    alpha: Share | None


@dataclass(frozen=True, kw_only=True)
class _Predicted:
    """Entry ``predicted`` in ``cache_plan.json``: reads of all devices together and of each."""

    pcie_transactions: int | None
    link_bytes: int | None
    feature_hit_rate: float | None
    topology_hit_rate: float | None
    num_epochs: Reads
    exact: bool
    devices: tuple[CacheTraffic, ...] | None


@dataclass(frozen=True, kw_only=True)
class _CachePlanHeader:
    """Entries of ``cache_plan.json``: the plan, and the identity, the inputs that determined it."""

    planner: str
    cliques: tuple[_CliqueEntry, ...]
    devices: tuple[_DeviceEntry, ...]
    predicted: _Predicted
    curve: tuple[CurvePoint, ...]
    seconds: Annotated[float, Meta(ge=0, le=1e12)]
    notes: tuple[str, ...]
    identity: PlanIdentity
    arrays: dict[str, ArrayEntry]


def write_plan(folder: Path, identity: PlanIdentity, plan: CachePlan, *, seconds: float) -> None:
    """Write the plan's arrays and header into the existing directory ``folder``."""
    arrays = {
        f"{kind}_{cache.device}": getattr(cache, kind) for cache in plan.devices for kind in _CACHED
    }
    header = _CachePlanHeader(
        planner=plan.planner,
        cliques=tuple(
            _CliqueEntry(devices=clique, alpha=alpha)
            for clique, alpha in zip(plan.cliques, plan.alphas, strict=True)
        ),
        devices=tuple(_device(cache) for cache in plan.devices),
        predicted=_predicted(plan),
        curve=plan.curve,
        seconds=seconds,
        notes=plan.notes,
        identity=identity,
        arrays={name: write_array(folder / f"{name}.npy", ids) for name, ids in arrays.items()},
    )
    entries = {
        "alpha": plan.alpha,
        **asdict(header),
        "devices": _device_values(header),
        "arrays": header.arrays,
    }
    CACHE_PLAN.write_header(folder, entries)


def _device_values(header: _CachePlanHeader) -> list[dict[str, Any]]:
    """Return the entries of the devices as plain values."""
    devices = [asdict(device) for device in header.devices]
    for values in devices:
        if values["look_ahead"] and not values["look_ahead"]["type_rows"]:
            del values["look_ahead"]["type_rows"]  # plans of graphs without types stay as they were
    return devices


def _device(cache: DeviceCache) -> _DeviceEntry:
    return _DeviceEntry(
        num_cached_topology=len(cache.topology),
        num_cached_features=len(cache.features),
        **{name: value for name, value in vars(cache).items() if name not in _CACHED},
    )


def _predicted(plan: CachePlan) -> _Predicted:
    total = plan.predicted_total
    return _Predicted(
        pcie_transactions=None if total is None else total.transactions,
        link_bytes=None if total is None else total.link_bytes,
        feature_hit_rate=None if total is None else total.feature_hit_rate,
        topology_hit_rate=None if total is None else total.topology_hit_rate,
        num_epochs=plan.num_epochs,
        exact=plan.exact,
        devices=plan.predicted,
    )


def read_plan(path: Path, graph: Graph) -> StoredPlan:
    """Read and check the plan at ``path``, a directory or ``cache_plan.json``, and return it.

    GraphError: it is damaged, or not for ``graph``.
    """
    folder = path.parent if path.name == CACHE_PLAN.header else path
    header = CACHE_PLAN.record(_CachePlanHeader, CACHE_PLAN.read_header(folder), folder)
    _check_graph(folder, header.identity, graph)
    problem = _device_problem(header, graph)
    if problem is not None:
        raise CACHE_PLAN.refused(folder, problem)
    plan = _plan(header, _arrays(folder, header, graph))
    check_plan_figures(folder / CACHE_PLAN.header, plan, graph)
    devices = _device_values(header)
    arrays = [(name, entry.shape, entry.crc32) for name, entry in sorted(header.arrays.items())]
    return StoredPlan(
        plan=plan,
        identity=header.identity,
        seconds=header.seconds,
        path=folder,
        content=digest([asdict(header.identity), devices, arrays]),
    )


def _check_graph(path: Path, identity: PlanIdentity, graph: Graph) -> None:
    """Raise GraphError unless the plan is for ``graph`` and for rows of its type and size."""
    planned = identity.feature_dtype, identity.row_bytes
    if planned != (graph.feature_dtype, graph.row_bytes):
        raise GraphError(
            f"{path}: expected a plan for rows of {graph.row_bytes} bytes in "
            f"{graph.feature_dtype}, got {planned[1]} bytes in {brief(planned[0])}"
        )
    check_graph(CACHE_PLAN, path, identity.graph, graph)


def _device_problem(header: _CachePlanHeader, graph: Graph) -> str | None:
    """Return a message on contradictory devices, cliques or counts. None: they are consistent."""
    positions = [device.device for device in header.devices]
    members = [device for clique in header.cliques for device in clique.devices]
    if not positions == sorted(set(positions)) == sorted(members):
        return f"devices {brief(positions)} are not those of the cliques {brief(members)}"
    predicted = header.predicted.devices
    if predicted is not None and len(predicted) != len(positions):
        return f"predicted.devices has {len(predicted)} entries"
    for device in header.devices:
        for kind in _CACHED:
            count = getattr(device, f"num_cached_{kind}")
            if not 0 <= count <= graph.num_vertices:
                return (
                    f"devices.{device.device} caches {count} {kind}, {brief(graph.name)} has "
                    f"{graph.num_vertices} vertices"
                )
    return None


def _arrays(path: Path, header: _CachePlanHeader, graph: Graph) -> dict[str, Array]:
    dtype = vertex_dtype(graph.num_vertices)
    forms: dict[str, Form] = {
        f"{kind}_{device.device}": (dtype, (getattr(device, f"num_cached_{kind}"),))
        for device in header.devices
        for kind in _CACHED
    }
    arrays = CACHE_PLAN.arrays(path, header.arrays, forms, load=True)
    for name, vertices in arrays.items():
        file = path / f"{name}.npy"
        if len(vertices) and not 0 <= vertices.min() <= vertices.max() < graph.num_vertices:
            raise CACHE_PLAN.error_with_hint(path, f"{file}: holds what is no vertex")
        if len(distinct(vertices)) != len(vertices):
            raise CACHE_PLAN.error_with_hint(path, f"{file}: holds a vertex twice")
    return arrays


def _plan(header: _CachePlanHeader, arrays: dict[str, Array]) -> CachePlan:
    return CachePlan(
        planner=header.planner,
        cliques=tuple(clique.devices for clique in header.cliques),
        devices=tuple(_cache(entry, arrays) for entry in header.devices),
        alphas=tuple(clique.alpha for clique in header.cliques),
        predicted=header.predicted.devices,
        num_epochs=header.predicted.num_epochs,
        exact=header.predicted.exact,
        curve=header.curve,
        notes=header.notes,
    )


def _cache(entry: _DeviceEntry, arrays: dict[str, Array]) -> DeviceCache:
    values = {name: value for name, value in vars(entry).items() if not name.startswith("num_")}
    vertices = {kind: arrays[f"{kind}_{entry.device}"] for kind in _CACHED}
    return DeviceCache(**values | vertices)


def check_plan_figures(file: Path, plan: CachePlan, graph: Graph) -> None:
    """Raise GraphError for unprintable texts, wrong sizes or unsuitable predicted reads.

    Sizes must match the caches' content in ``graph``; reads must cover all devices and the host.
    """
    types = {entry.name for traffic in plan.predicted or () for entry in traffic.types}
    texts = (plan.planner, *plan.notes, *(cache.name for cache in plan.devices), *types)
    check_lines(file, texts, _MAX_TEXT)
    for cache in plan.devices:
        _check_sizes(file, cache, graph)
    predicted = plan.predicted or ()
    needed = max((cache.device for cache in plan.devices), default=-1) + 2
    sizes = {len(reads) for traffic in predicted for reads in (traffic.rows, traffic.lists)}
    sizes |= {len(entry.rows) for traffic in predicted for entry in traffic.types}
    if predicted and (len(sizes) > 1 or min(sizes) < needed):
        raise GraphError(
            f"{file}: predicted.devices: expected reads from the devices of the plan and the host, "
            f"{needed} at least, got {brief(sorted(sizes))}"
        )


def _check_sizes(file: Path, cache: DeviceCache, graph: Graph) -> None:
    """Raise GraphError if stated bytes contradict the content, or a size exceeds the graph."""
    rows_size, all_rows = feature_bytes(graph, cache.features), graph.num_vertices
    prefix, look_ahead, matched = f"devices.{cache.device}", cache.look_ahead, 0
    if look_ahead is not None:
        check_limits(file, [(f"{prefix}.look_ahead.num_rows", look_ahead.num_rows, all_rows)])
        _check_type_rows(file, f"{prefix}.look_ahead.type_rows", look_ahead, graph)
        rows_size += look_ahead_bytes(graph, look_ahead)
        types = row_types(graph) if look_ahead.match else ()
        matched = sum(entry.num_rows * entry.row_bytes for entry in types)
    check_limits(file, [(f"{prefix}.matched_bytes", cache.matched_bytes, matched)])
    sizes = {
        "feature_bytes": (cache.feature_bytes, rows_size),
        "topology_bytes": (cache.topology_bytes, list_bytes(graph, cache.topology)),
    }
    for name, (stated, needed) in sizes.items():
        if stated != needed:
            raise GraphError(
                f"{file}: {prefix}.{name}: expected {needed} for its content, got {stated}"
            )


def _check_type_rows(file: Path, name: str, look_ahead: LookAhead, graph: Graph) -> None:
    """Raise GraphError unless the rows of a dynamic cache are those of types that have them."""
    limits = [entry.num_rows * entry.is_cached for entry in row_types(graph)]
    numbers = look_ahead.rows_by_type
    if len(numbers) != len(limits) or sum(numbers) != look_ahead.num_rows:
        raise GraphError(
            f"{file}: {name}: expected {len(limits)} numbers, {look_ahead.num_rows} rows together, "
            f"got {brief(list(numbers))}"
        )
    check_limits(
        file, [(name, number, limit) for number, limit in zip(numbers, limits, strict=True)]
    )
