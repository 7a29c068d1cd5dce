"""Artifacts of a run, opened by its processes with a check of their content hashes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gnnscale.cache import StoredPlan, read_plan
from gnnscale.core import GraphError, SharedMemory
from gnnscale.core.artifact.files import digest
from gnnscale.features import StructuralFeaturesConfig
from gnnscale.graph import Graph
from gnnscale.partition.store import Partition, read_partition
from gnnscale.run.inputs import graph_read, with_features
from gnnscale.run.row_checks import check_rows
from gnnscale.run.tasks import TaskInputs
from gnnscale.run.typed_inputs import read_by_type

if TYPE_CHECKING:
    from gnnscale.run.tasks.base import Task

T = TypeVar("T")

GRAPH_STORE = "graph store"
PARTITION = "partition"
LINKS = "divided edges"
CACHE_PLAN = "cache plan"
PREAGGREGATED = "preaggregated features"

#: Arrays of the graph that GPUs read from host memory, one copy for all workers.
SHARED_ARRAYS = {name: f"{name} in shared memory" for name in ("features", "indices", "indptr")}


@dataclass(frozen=True, kw_only=True)
class RunArtifact:
    """Reference to a directory, or array in shared memory, that the processes of a run open."""

    name: str  #: name in errors
    path: Path  #: the directory, or path of the shared memory
    content: str  #: hash of the content


def make_links(inputs: TaskInputs, graph: Graph) -> RunArtifact | None:
    """Return the edge split of the run's task, which is written if missing; None: no such split."""
    path = inputs.task.make(graph)
    if path is None:
        return None
    content = _open_task(inputs, graph, path).graph.content
    assert content is not None
    return RunArtifact(name=LINKS, path=path, content=content)


def open_partition(artifacts: Sequence[RunArtifact], graph: Graph) -> Partition | None:
    """Open the partition of ``graph``; None without a partition."""
    return reopen_artifact(artifacts, PARTITION, lambda path: read_partition(path, graph))


def open_task(
    inputs: TaskInputs, artifacts: Sequence[RunArtifact], graph: Graph, *, seed: int | None = None
) -> "Task":
    """Open the task of a run over the stored ``graph``, with the feature rows that the model reads.

    Structural features are computed from the task's graph, which lacks the edges that
    ``task=links`` holds out: the model sees no edge on which it is tested. Learned rows are 0
    without a ``seed``.
    """
    task = reopen_artifact(
        artifacts,
        LINKS,
        lambda path: _open_task(inputs, graph, path),
        lambda task: task.graph.content,
    )
    if task is None:
        task = _open_task(inputs, graph, None)
    threads = inputs.num_threads
    task_graph = with_features(inputs.features, task.graph, num_threads=threads, seed=seed)
    task_graph = read_by_type(inputs.model, task_graph, seed=seed)
    if inputs.task.divides_edges and isinstance(inputs.features, StructuralFeaturesConfig):
        task_graph = _mark_training_edges(task_graph)
    return task.over(task_graph)


def _mark_training_edges(graph: Graph) -> Graph:
    """Return ``graph`` with another content hash: its features were made without held-out edges."""
    content = digest({"graph": graph.content, "rows": "made of training edges"})
    return replace(graph, origin=replace(graph.origin, content=content))


def open_graph(
    inputs: TaskInputs, artifacts: Sequence[RunArtifact], graph: Graph, *, seed: int | None = None
) -> Graph:
    """Return the graph of ``open_task``; torch and user code are imported only by edge splits."""
    if inputs.task.divides_edges:
        return open_task(inputs, artifacts, graph, seed=seed).graph
    graph, threads = graph_read(inputs, _labeled(inputs, graph)), inputs.num_threads
    graph = with_features(inputs.features, graph, num_threads=threads, seed=seed)
    return read_by_type(inputs.model, graph, seed=seed)


def _open_task(inputs: TaskInputs, graph: Graph, links: Path | None) -> "Task":
    """Open the task of ``inputs`` over ``graph``; ``links``: its stored edge split, if any."""
    return inputs.task.open(graph_read(inputs, _labeled(inputs, graph)), links, inputs)


def _labeled(inputs: TaskInputs, graph: Graph) -> Graph:
    """Return ``graph`` with the labels that the task reads, as of cut-offs if there are."""
    graph = inputs.task.with_cutoffs(inputs.task.labeled(graph), inputs.time)
    check_rows(inputs, graph)
    return graph


def open_cache_plan(artifacts: Sequence[RunArtifact], graph: Graph) -> StoredPlan | None:
    """Open the cache plan for ``graph``; None without a cache plan."""
    return reopen_artifact(artifacts, CACHE_PLAN, lambda path: read_plan(path, graph))


def open_store(artifacts: Sequence[RunArtifact]) -> Graph:
    """Open the graph store that is among ``artifacts``."""
    graph = reopen_artifact(artifacts, GRAPH_STORE, Graph.open)
    assert graph is not None
    return graph


def with_shared_arrays(graph: Graph, artifacts: Sequence[RunArtifact]) -> Graph:
    """Return ``graph`` with arrays replaced by their copies in shared memory in ``artifacts``."""
    arrays: dict[str, Any] = {}
    for name, label in SHARED_ARRAYS.items():
        path = next((artifact.path for artifact in artifacts if artifact.name == label), None)
        if path is not None:
            array = getattr(graph, name)
            arrays[name] = SharedMemory.open(path).array(array.shape, array.dtype)
    return replace(graph, **arrays)


def reopen_artifact(
    artifacts: Sequence[RunArtifact],
    name: str,
    open_path: Callable[[Path], T],
    content: Callable[[T], str | None] = attrgetter("content"),
) -> T | None:
    """Open artifact ``name`` by ``open_path``; None: there is none; GraphError: it has changed."""
    artifact = next((artifact for artifact in artifacts if artifact.name == name), None)
    if artifact is None:
        return None
    value = open_path(artifact.path)
    if content(value) != artifact.content:
        raise GraphError(f"{artifact.path}: the {name} in it changed since the run was launched")
    return value
