"""A stored cache plan: an array of vertices for each cache, and ``cache_plan.json``."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from gnnscale.cache import plan as cache_plan
from gnnscale.cache.base import CachePlannerConfig
from gnnscale.cache.problem import CacheTask, list_bytes, row_bytes
from gnnscale.core import Array, GraphError, shown
from gnnscale.core.artifact.artifact_type import ArtifactType, Form
from gnnscale.core.artifact.header import check_limits, check_lines, digest, plain
from gnnscale.core.artifact.npy import ArrayEntry, write_array
from gnnscale.core.config.renamed import stored_path
from gnnscale.core.config.user_code import code_digest
from gnnscale.graph import Graph
from gnnscale.graph.store_format import vertex_dtype
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
#: Characters of a name or a note.
_MAX_TEXT = 1000


@dataclass(frozen=True, kw_only=True)
class PlanIdentity:
    """What decides how a cache plan comes out.

    Attributes:
        graph: the graph whose lists and rows are cached; its content hash covers the features.
        feature_dtype: element type of a row.
        row_bytes: bytes of a row.
        partition: hash of the partition whose parts the devices train; None for a whole graph.
        planner: the class of the policy.
        options: its options, plain values.
        devices: the devices that may have a cache, plain values.
        cliques: positions of those that read each other's caches.
        run: what else decides the batches: seed, epochs, batch size, sampler, order of seeds.
    """

    graph: GraphIdentity
    feature_dtype: str
    row_bytes: int
    partition: str | None
    planner: str
    options: dict[str, Any]
    devices: list[dict[str, Any]]
    cliques: list[list[int]]
    run: dict[str, Any]


def identify(
    planner: CachePlannerConfig, task: CacheTask, *, partition: str | None, run: dict[str, Any]
) -> PlanIdentity:
    """Return the identity of the plan that ``planner`` makes of ``task``.

    Args:
        planner: the policy.
        task: what it plans for.
        partition: hash of the partition; None for a whole graph.
        run: what decides the batches beside the task, plain values.
    """
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
            **{name: each for name, each in code.items() if each is not None},
            **run,
        },
    )


def plan_place(planner: CachePlannerConfig, identity: PlanIdentity, *, policy: str) -> Path:
    """Return the directory of a cache plan."""
    return CACHE_PLAN.place(planner.store, identity.graph.name, policy, asdict(identity))


@dataclass(frozen=True, kw_only=True)
class StoredPlan:
    """A cache plan that was read.

    Attributes:
        plan: what each device keeps.
        identity: what decided it, as far as others compare it.
        seconds: how long planning took.
        path: its directory.
        content: hash of what it holds.
    """

    plan: cache_plan.CachePlan
    identity: PlanIdentity
    seconds: float
    path: Path
    content: str


@dataclass(frozen=True, kw_only=True)
class _DeviceEntry:
    """An entry of ``devices``."""

    device: Annotated[int, Meta(ge=0)]
    name: str
    budget_bytes: cache_plan.Bytes
    topology_bytes: int
    feature_bytes: int
    num_cached_topology: int
    num_cached_features: int
    look_ahead: cache_plan.LookAhead | None = None
    host_aggregates: bool = False
    batch_bytes: cache_plan.BatchBytes | None = None
    matched_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class _CliqueEntry:
    """An entry of ``cliques``."""

    devices: Annotated[tuple[int, ...], Meta(min_length=1)]
    alpha: cache_plan.Share | None


@dataclass(frozen=True, kw_only=True)
class _Predicted:
    """What the plan promises, of all devices together, and of each."""

    pcie_transactions: int | None
    link_bytes: int | None
    feature_hit_rate: float | None
    topology_hit_rate: float | None
    num_epochs: cache_plan.Reads
    exact: bool
    devices: tuple[cache_plan.CacheTraffic, ...] | None


@dataclass(frozen=True, kw_only=True)
class _CachePlanHeader:
    """The entries of ``cache_plan.json``; what the identity holds is compared, never used."""

    planner: str
    cliques: tuple[_CliqueEntry, ...]
    devices: tuple[_DeviceEntry, ...]
    predicted: _Predicted
    curve: tuple[cache_plan.CurvePoint, ...]
    seconds: Annotated[float, Meta(ge=0, le=1e12)]
    notes: tuple[str, ...]
    identity: PlanIdentity
    arrays: dict[str, ArrayEntry]


def write_plan(
    folder: Path, identity: PlanIdentity, plan: cache_plan.CachePlan, *, seconds: float
) -> None:
    """Write arrays and header into ``folder``, which exists."""
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
        arrays={name: write_array(folder / f"{name}.npy", each) for name, each in arrays.items()},
    )
    entries = {"alpha": plan.alpha, **asdict(header), "arrays": header.arrays}
    CACHE_PLAN.write_header(folder, entries)


def _device(cache: cache_plan.DeviceCache) -> _DeviceEntry:
    return _DeviceEntry(
        num_cached_topology=len(cache.topology),
        num_cached_features=len(cache.features),
        **{name: value for name, value in vars(cache).items() if name not in _CACHED},
    )


def _predicted(plan: cache_plan.CachePlan) -> _Predicted:
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
    """Read the cache plan at ``path``.

    Args:
        path: the directory, or the ``cache_plan.json`` in it.
        graph: the graph that it has to be of; ``check_plan`` compares all else.

    Raises:
        GraphError: it is no cache plan, or damaged, or of another graph.
    """
    folder = path.parent if path.name == CACHE_PLAN.header else path
    header = CACHE_PLAN.record(_CachePlanHeader, CACHE_PLAN.read_header(folder), folder)
    _check_graph(folder, header.identity, graph)
    problem = _device_problem(header, graph)
    if problem is not None:
        raise CACHE_PLAN.refused(folder, problem)
    plan = _plan(header, _arrays(folder, header, graph))
    check_plan_figures(folder / CACHE_PLAN.header, plan, graph)
    devices = [asdict(each) for each in header.devices]
    arrays = [(name, each.shape, each.crc32) for name, each in sorted(header.arrays.items())]
    return StoredPlan(
        plan=plan,
        identity=header.identity,
        seconds=header.seconds,
        path=folder,
        content=digest([asdict(header.identity), devices, arrays]),
    )


def _check_graph(path: Path, found: PlanIdentity, graph: Graph) -> None:
    """Refuse a plan of another graph, or of rows of another type; the line names both."""
    if (found.feature_dtype, found.row_bytes) != (graph.feature_dtype, row_bytes(graph)):
        raise GraphError(
            f"{path}: is for rows of {found.row_bytes} bytes in {shown(found.feature_dtype)}, not "
            f"of {row_bytes(graph)} bytes in {graph.feature_dtype}"
        )
    check_graph(CACHE_PLAN, path, found.graph, graph)


def _device_problem(header: _CachePlanHeader, graph: Graph) -> str | None:
    """Return what is wrong with devices and cliques that no plan has, None if nothing is."""
    positions = [each.device for each in header.devices]
    members = [each for clique in header.cliques for each in clique.devices]
    if not positions == sorted(set(positions)) == sorted(members):
        return f"devices {shown(positions)} are not those of the cliques {shown(members)}"
    predicted = header.predicted.devices
    if predicted is not None and len(predicted) != len(positions):
        return f"predicted.devices has {len(predicted)} entries"
    for each in header.devices:
        for kind in _CACHED:
            count = getattr(each, f"num_cached_{kind}")
            if not 0 <= count <= graph.num_vertices:
                return (
                    f"devices.{each.device} caches {count} {kind}, {shown(graph.name)} has "
                    f"{graph.num_vertices} vertices"
                )
    return None


def _arrays(path: Path, header: _CachePlanHeader, graph: Graph) -> dict[str, Array]:
    dtype = vertex_dtype(graph.num_vertices)
    forms: dict[str, Form] = {
        f"{kind}_{each.device}": (dtype, (getattr(each, f"num_cached_{kind}"),))
        for each in header.devices
        for kind in _CACHED
    }
    arrays = CACHE_PLAN.arrays(path, header.arrays, forms, load=True)
    for name, vertices in arrays.items():
        file = path / f"{name}.npy"
        if len(vertices) and not 0 <= vertices.min() <= vertices.max() < graph.num_vertices:
            raise CACHE_PLAN.worded(path, f"{file}: holds what is no vertex")
        if len(np.unique(vertices)) != len(vertices):
            raise CACHE_PLAN.worded(path, f"{file}: holds a vertex twice")
    return arrays


def _plan(header: _CachePlanHeader, arrays: dict[str, Array]) -> cache_plan.CachePlan:
    return cache_plan.CachePlan(
        planner=header.planner,
        cliques=tuple(clique.devices for clique in header.cliques),
        devices=tuple(_cache(each, arrays) for each in header.devices),
        alphas=tuple(clique.alpha for clique in header.cliques),
        predicted=header.predicted.devices,
        num_epochs=header.predicted.num_epochs,
        exact=header.predicted.exact,
        curve=header.curve,
        notes=header.notes,
    )


def _cache(each: _DeviceEntry, arrays: dict[str, Array]) -> cache_plan.DeviceCache:
    kept = {name: value for name, value in vars(each).items() if not name.startswith("num_")}
    return cache_plan.DeviceCache(
        **kept | {kind: arrays[f"{kind}_{each.device}"] for kind in _CACHED}
    )


def check_plan_figures(file: Path, plan: cache_plan.CachePlan, graph: Graph) -> None:
    """Refuse figures that no plan for ``graph`` can have.

    Args:
        file: named in errors.
        plan: what was read; its vertices are some of the graph's.
        graph: whose rows and lists are kept.

    Raises:
        GraphError: names ``file`` and the figure.
    """
    texts = (plan.planner, *plan.notes, *(cache.name for cache in plan.devices))
    check_lines(file, texts, _MAX_TEXT)
    for cache in plan.devices:
        _check_sizes(file, cache, graph)
    predicted = plan.predicted or ()
    needed = max((cache.device for cache in plan.devices), default=-1) + 2
    sizes = {len(reads) for traffic in predicted for reads in (traffic.rows, traffic.lists)}
    if predicted and (len(sizes) > 1 or min(sizes) < needed):
        raise GraphError(
            f"{file}: predicted.devices reads at {shown(sorted(sizes))} places, needed are the "
            f"devices of the plan and the host, {needed} at least"
        )


def _check_sizes(file: Path, cache: cache_plan.DeviceCache, graph: Graph) -> None:
    """Refuse a cache that takes more or less memory than what it holds."""
    rows, all_rows, ahead = len(cache.features), graph.num_vertices, cache.look_ahead
    of = f"devices.{cache.device}"
    if ahead is not None:
        check_limits(file, [(f"{of}.look_ahead.num_rows", ahead.num_rows, all_rows)])
        rows += ahead.num_rows
    matched = all_rows * row_bytes(graph) if ahead is not None and ahead.match else 0
    check_limits(file, [(f"{of}.matched_bytes", cache.matched_bytes, matched)])
    sizes = {
        "feature_bytes": (cache.feature_bytes, rows * row_bytes(graph)),
        "topology_bytes": (cache.topology_bytes, list_bytes(graph, cache.topology)),
    }
    for name, (stated, needed) in sizes.items():
        if stated != needed:
            raise GraphError(f"{file}: {of}.{name} is {stated}, but what it keeps takes {needed}")
