"""A stored cache plan: ``cache_plan.npz`` with the vertices, ``cache_plan.json`` with the figures.

Nothing in either is executed. Whoever reads one gets caches that fit the graph, or one line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.cache.cache_plan import (
    BatchBytes,
    CachePlan,
    CacheTraffic,
    CurvePoint,
    DeviceCache,
    LookAhead,
)
from gnnscale.cache.storage.checks import check_plan_figures
from gnnscale.cache.storage.identity import FORMAT_VERSION, PlanIdentity
from gnnscale.cache.task import row_bytes
from gnnscale.core.errors import GraphError, shown
from gnnscale.core.files import write_atomically
from gnnscale.dataset.formats.json_file import read_versioned
from gnnscale.dataset.formats.npz import Form, read_npz, write_npz
from gnnscale.graph import Graph
from gnnscale.graph_files import ArrayEntry, vertex_dtype
from gnnscale.partition.storage.identity import Divided, describe
from gnnscale.plain_records import record_from

__all__ = ["JSON_FILE", "NPZ_FILE", "StoredPlan", "read_plan", "write_plan"]

JSON_FILE = "cache_plan.json"
NPZ_FILE = "cache_plan.npz"

_MAX_JSON_BYTES = 64 << 20
_AGAIN = "run gnnscale plan-cache again with force=true"


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

    plan: CachePlan
    identity: PlanIdentity
    seconds: float
    path: Path
    content: str


@dataclass(frozen=True, kw_only=True)
class _Device:
    """An entry of ``devices``."""

    device: int
    name: str
    budget_bytes: int
    topology_bytes: int
    feature_bytes: int
    num_cached_topology: int
    num_cached_features: int
    look_ahead: LookAhead | None = None
    host_aggregates: bool = False
    batch_bytes: BatchBytes | None = None
    matched_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class _Clique:
    """An entry of ``cliques``."""

    devices: tuple[int, ...]
    alpha: float | None


@dataclass(frozen=True, kw_only=True)
class _Predicted:
    """What the plan promises, of all devices together, and of each."""

    pcie_transactions: int | None
    link_bytes: int | None
    feature_hit_rate: float | None
    topology_hit_rate: float | None
    num_epochs: int
    exact: bool
    devices: tuple[CacheTraffic, ...] | None


@dataclass(frozen=True, kw_only=True)
class _Said:
    """The entries of ``cache_plan.json`` that are no free-form options."""

    planner: str
    cliques: tuple[_Clique, ...]
    devices: tuple[_Device, ...]
    predicted: _Predicted
    curve: tuple[CurvePoint, ...]
    seconds: float
    notes: tuple[str, ...]
    graph: Divided
    feature_dtype: str
    row_bytes: int
    partition: str | None
    arrays: dict[str, ArrayEntry] = field(default_factory=dict)


def write_plan(folder: Path, identity: PlanIdentity, plan: CachePlan, *, seconds: float) -> None:
    """Write both files into ``folder``, which exists."""
    arrays = {
        f"{kind}_{cache.device}": getattr(cache, kind)
        for cache in plan.devices
        for kind in ("features", "topology")
    }
    entries = write_npz(folder / NPZ_FILE, arrays)
    said = _Said(
        planner=plan.planner,
        cliques=tuple(
            _Clique(devices=clique, alpha=alpha)
            for clique, alpha in zip(plan.cliques, plan.alphas, strict=True)
        ),
        devices=tuple(_device(cache) for cache in plan.devices),
        predicted=_predicted(plan),
        curve=plan.curve,
        seconds=seconds,
        notes=plan.notes,
        graph=identity.graph,
        feature_dtype=identity.feature_dtype,
        row_bytes=identity.row_bytes,
        partition=identity.partition,
        arrays=entries,
    )
    content = {
        "format_version": FORMAT_VERSION,
        "alpha": plan.alpha,
        **asdict(said),
        "identity": asdict(identity),
    }
    lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    write_atomically(folder / JSON_FILE, "{\n" + ",\n".join(lines) + "\n}\n")


def _device(cache: DeviceCache) -> _Device:
    return _Device(
        device=cache.device,
        name=cache.name,
        budget_bytes=cache.budget_bytes,
        topology_bytes=cache.topology_bytes,
        feature_bytes=cache.feature_bytes,
        num_cached_topology=len(cache.topology),
        num_cached_features=len(cache.features),
        look_ahead=cache.look_ahead,
        host_aggregates=cache.host_aggregates,
        batch_bytes=cache.batch_bytes,
        matched_bytes=cache.matched_bytes,
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
    """Read the cache plan at ``path``.

    Args:
        path: the directory, or the ``cache_plan.json`` in it.
        graph: the graph that it has to be of; ``check_plan`` compares all else.

    Raises:
        GraphError: it is no cache plan, or damaged, or of another graph.
    """
    folder = path.parent if path.name == JSON_FILE else path
    file = folder / JSON_FILE
    if not file.exists():
        raise GraphError(f"{folder}: not a cache plan, it has no {JSON_FILE}")
    entries = read_versioned(file, version=FORMAT_VERSION, max_bytes=_MAX_JSON_BYTES, again=_AGAIN)
    try:
        said = record_from(_Said, entries, where="entry")
        identity = _identity(entries.get("identity"))
    except (ValueError, RecursionError) as error:
        raise GraphError(f"{file}: {str(error) or 'nested too deeply'}") from None
    _check_graph(folder, identity, graph)
    _check_devices(file, said)
    plan = _plan(said, _arrays(folder / NPZ_FILE, said, graph))
    check_plan_figures(file, plan, graph, seconds=said.seconds)
    return StoredPlan(
        plan=plan,
        identity=identity,
        seconds=said.seconds,
        path=folder,
        content=_content(said, identity),
    )


def _identity(values: Any) -> PlanIdentity:
    """Return the identity that was stored; what it holds is compared, never used."""
    if not isinstance(values, dict):
        raise ValueError(f"identity: {shown(values)} is no record")
    wanted = {"options": dict, "run": dict, "devices": list, "cliques": list}
    for name, kind in wanted.items():
        if not isinstance(values.get(name), kind):
            raise ValueError(f"identity.{name}: {shown(values.get(name))} is no {kind.__name__}")
    free = {name: values[name] for name in wanted}
    return PlanIdentity(**vars(record_from(_Named, values, where="identity")), **free)


@dataclass(frozen=True, kw_only=True)
class _Named:
    graph: Divided
    feature_dtype: str
    row_bytes: int
    partition: str | None
    planner: str


def _check_graph(path: Path, found: PlanIdentity, graph: Graph) -> None:
    """Refuse a plan of another graph, or of rows of another type; the line names both."""
    if (found.feature_dtype, found.row_bytes) != (graph.feature_dtype, row_bytes(graph)):
        raise GraphError(
            f"{path}: is for rows of {found.row_bytes} bytes in {shown(found.feature_dtype)}, not "
            f"of {row_bytes(graph)} bytes in {graph.feature_dtype}"
        )
    wanted = describe(graph)
    if found.graph != wanted:
        raise GraphError(
            f"{path}: is a cache plan of {_named(found.graph)}, not of {_named(wanted)}"
        )


def _named(graph: Divided) -> str:
    return f"{shown(graph.name)} ({graph.num_vertices} vertices, content {shown(graph.content)})"


def _check_devices(file: Path, said: _Said) -> None:
    """Refuse devices and cliques that no plan has."""
    positions = [each.device for each in said.devices]
    members = [each for clique in said.cliques for each in clique.devices]
    some = all(clique.devices for clique in said.cliques)
    fits = positions == sorted(set(positions)) == sorted(members)
    if not (some and fits) or min(positions, default=0) < 0:
        raise GraphError(
            f"{file}: devices {shown(positions)} are not those of the cliques {shown(members)}"
        )
    names = {f"{kind}_{each}" for kind in ("features", "topology") for each in positions}
    if set(said.arrays) != names:
        raise GraphError(
            f"{file}: arrays are {shown(sorted(said.arrays))}, allowed are {shown(sorted(names))}"
        )
    told = said.predicted.devices
    if told is not None and len(told) != len(positions):
        raise GraphError(f"{file}: predicted.devices has {len(told)} entries")


def _arrays(file: Path, said: _Said, graph: Graph) -> dict[str, NDArray[Any]]:
    dtype = np.dtype(vertex_dtype(graph.num_vertices))
    forms: dict[str, Form] = {}
    for each in said.devices:
        counts = {"features": each.num_cached_features, "topology": each.num_cached_topology}
        for kind, count in counts.items():
            if not 0 <= count <= graph.num_vertices:
                raise GraphError(
                    f"{file.with_name(JSON_FILE)}: devices.{each.device} caches {count} {kind}, "
                    f"{shown(graph.name)} has {graph.num_vertices} vertices"
                )
            forms[f"{kind}_{each.device}"] = dtype, (count,)
    arrays = read_npz(file, said.arrays, forms, json_name=JSON_FILE, again=_AGAIN)
    for name, vertices in arrays.items():
        if len(vertices) and not 0 <= vertices.min() <= vertices.max() < graph.num_vertices:
            raise GraphError(f"{file}: {name} holds what is no vertex; {_AGAIN}")
        if len(np.unique(vertices)) != len(vertices):
            raise GraphError(f"{file}: {name} holds a vertex twice; {_AGAIN}")
    return arrays


def _plan(said: _Said, arrays: dict[str, NDArray[Any]]) -> CachePlan:
    return CachePlan(
        planner=said.planner,
        cliques=tuple(clique.devices for clique in said.cliques),
        devices=tuple(_cache(each, arrays) for each in said.devices),
        alphas=tuple(clique.alpha for clique in said.cliques),
        predicted=said.predicted.devices,
        num_epochs=said.predicted.num_epochs,
        exact=said.predicted.exact,
        curve=said.curve,
        notes=said.notes,
    )


def _cache(each: _Device, arrays: dict[str, NDArray[Any]]) -> DeviceCache:
    return DeviceCache(
        device=each.device,
        name=each.name,
        budget_bytes=each.budget_bytes,
        features=arrays[f"features_{each.device}"],
        topology=arrays[f"topology_{each.device}"],
        feature_bytes=each.feature_bytes,
        topology_bytes=each.topology_bytes,
        look_ahead=each.look_ahead,
        host_aggregates=each.host_aggregates,
        batch_bytes=each.batch_bytes,
        matched_bytes=each.matched_bytes,
    )


def _content(said: _Said, identity: PlanIdentity) -> str:
    """Hex digest that tells plans with other caches, or for other runs, apart."""
    arrays = [(name, entry.shape, entry.crc32) for name, entry in sorted(said.arrays.items())]
    devices: Sequence[Any] = [asdict(each) for each in said.devices]
    text = json.dumps([asdict(identity), devices, arrays], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
