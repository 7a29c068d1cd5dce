"""Predictions of a finished run in a file, for all vertices or those that are named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gnnscale.artifact.arrays import map_npy
from gnnscale.artifact.files import check_space
from gnnscale.core import Array, ConfigError, IntArray, check_choice, check_range, shown
from gnnscale.dataset import GraphSource
from gnnscale.dataset.tables.ids import read_ids
from gnnscale.graph import Graph
from gnnscale.options.found import names
from gnnscale.plan import MAX_THREADS
from gnnscale.report.export.answers import (
    ANSWERS,
    EMBEDDINGS,
    VALUES,
    RowIds,
    check_labels,
    check_layer,
    num_layers_of,
    width_of,
)
from gnnscale.report.export.tables import Layout, check_file, check_ids, open_table, row_bytes
from gnnscale.runtime import command_options, settings
from gnnscale.runtime.checkpoint.signature import Signature
from gnnscale.runtime.evaluation.load import Trained, load_run, load_trained, open_run_task
from gnnscale.runtime.evaluation.predictor import Predictor

if TYPE_CHECKING:
    import pyarrow


_SPLITS = ("train", "valid", "test")


def find_vertices(given: Any, graph: Graph, own: pyarrow.Array | None = None) -> IntArray | None:
    """Return the vertices that are meant, in their order; None for all.

    Args:
        given: None or ``all``; ``train``, ``valid`` or ``test``; a ``.npy`` file of ids, by its
            path; or ids.
        own: ``[num_vertices]`` the user's ids, which are then meant; None for numbers from 0 on.

    Returns:
        ``[n]`` distinct numbers of vertices, of the graph's type.

    Raises:
        ConfigError: an id is none of the graph's or given twice, or there is none at all.
        GraphError: the file is missing, or holds something else than ids.
    """
    if given is None or (isinstance(given, str) and given == "all"):
        return None
    option = "vertices"
    if isinstance(given, str) and given in _SPLITS:
        ids: Array = getattr(graph, f"{given}_idx")
        option = f"vertices={given}"
    elif isinstance(given, (str, Path)):
        if Path(given).suffix != ".npy":
            raise ConfigError(
                f"vertices={shown(given)}: allowed are all, {', '.join(_SPLITS)}, a file of ids "
                "FILE.npy, or a list of ids such as [1,2,3]"
            )
        option = f"vertices={shown(given)}"
        ids = map_npy(Path(given), axes=1, kinds="iu")
    else:
        ids = _ids(given, texts=own is not None and not _is_integer(own))
    if own is not None and not (isinstance(given, str) and given in _SPLITS):
        ids = _numbers(ids, own, graph, option)
    if not len(ids):
        raise ConfigError(f"{option}: {graph.name} has no such vertex, nothing is to be predicted")
    _check(ids, graph, option, own)
    return np.ascontiguousarray(ids, graph.indices.dtype)


def _ids(given: Any, *, texts: bool) -> Array:
    values = given if isinstance(given, (Sequence, np.ndarray)) else _listed(given)
    if texts:
        return np.array([str(each) for each in values], np.object_)
    try:
        ids = np.asarray(values)
    except (ValueError, OverflowError):  # a ragged list; a number of many digits
        ids = np.empty(0, np.object_)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and len(values)):
        raise ConfigError(f"vertices={shown(given)}: must be whole numbers in one list")
    return ids


def _listed(given: Any) -> Any:
    # A tensor, or one id.
    return given.numpy() if hasattr(given, "numpy") else [given]


def _is_integer(own: pyarrow.Array) -> bool:
    return str(own.type) in ("int64", "uint64")


def _numbers(ids: Array, own: pyarrow.Array, graph: Graph, option: str) -> IntArray:
    """Return the number of the vertex that each id of the user's names."""
    import pyarrow
    from pyarrow import compute

    try:
        wanted = pyarrow.array(ids).cast(own.type)
    except (pyarrow.ArrowInvalid, UnicodeError):  # one does not fit the type, or is not UTF-8
        raise ConfigError(
            f"{option}: ids of {graph.name} are {own.type}, and not all of these are"
        ) from None
    found = compute.index_in(wanted, value_set=own)
    if found.null_count:
        missing = wanted.filter(compute.is_null(found))[0].as_py()
        raise ConfigError(f"{option}: {shown(missing)} is no id of a vertex of {graph.name}")
    return np.asarray(found.to_numpy())


def _check(ids: Array, graph: Graph, option: str, own: pyarrow.Array | None) -> None:
    wrong = (ids < 0) | (ids >= graph.num_vertices)
    if wrong.any():
        raise ConfigError(
            f"{option}: {ids[wrong.argmax()]} is no vertex of {graph.name}, whose ids are 0 to "
            f"{graph.num_vertices - 1}"
        )
    seen = np.zeros(graph.num_vertices, np.bool_)
    seen[ids] = True
    if np.count_nonzero(seen) < len(ids):
        ordered = np.sort(ids)
        twice = ordered[1:][ordered[1:] == ordered[:-1]][0]
        name = twice if own is None else own[int(twice)].as_py()
        raise ConfigError(f"{option}: {shown(name)} is given twice")


@dataclass(frozen=True, kw_only=True)
class PredictConfig(command_options.FoundRun):
    """Predictions of a finished or stopped run.

    Attributes:
        out: the file to write, ``.parquet`` or ``.npy``; beside the latter ``.ids.npy`` has the
            rows' ids, if these are not those of all vertices in order.
        num_threads: threads of the native code and of torch.
        vertices: ``all``, ``train``, ``valid`` or ``test``; a file ``.npy`` of ids; or ids.
        layer: whose rows are taken, counted from the end: -1 gives logits, -2 embeddings, the rows
            that the last layer sees.
        what: ``classes``, ``probabilities`` or ``logits``; None writes classes and probabilities
            to a ``.parquet`` file, and probabilities to a ``.npy`` file. If labels are values to
            be met, these are written, and ``what`` is not given.
        inference: exact, over all neighbours, or sampled, over those that the run's sampler picks.
        force: overwrite ``out`` if it exists.
        graph: whose vertices are predicted; None for the graph that the run was trained on.
    """

    out: Path
    num_threads: int
    graph: GraphSource | None = None
    vertices: Any = field(
        default="all", metadata=names("place", known=("all", "train", "valid", "test"))
    )
    layer: int = -1
    what: str | None = None
    inference: str = "exact"
    force: bool = False

    def __post_init__(self) -> None:
        check_range("num_threads", self.num_threads, 1, MAX_THREADS)
        check_choice("inference", self.inference, settings.INFERENCE)
        if self.what is not None:
            check_choice("what", self.what, ANSWERS)

    def answers(self, signature: Signature, *, links: bool) -> tuple[str, ...]:
        """Return what is made of each row: of ``ANSWERS``, or rows as they are."""
        if self.layer != -1 or links:
            return (EMBEDDINGS,)
        if signature.regression:
            return (VALUES,)
        if self.what is not None:
            return (self.what,)
        both = self.out.suffix == ".parquet"
        return ("classes", "probabilities") if both else ("probabilities",)


def predict(config: PredictConfig) -> Path:
    """Write predictions of a run's best weights for vertices, and return the file.

    Rows are written as they are computed, so that memory grows neither with the number of vertices
    nor with that of classes. The file is there whole, or as it was before.

    Raises:
        ConfigError: the directory holds no run, or an option does not fit the model or the graph.
        GraphError: the run's graph store is not usable, or the disk has no room.
        OSError: the file cannot be written.
    """
    check_file(config.out, force=config.force)
    own_graph = config.graph is None
    run = load_run(config.run, config.given, command="predict", own_graph=own_graph)
    run = replace(
        run,
        num_threads=config.num_threads,
        runtime=replace(run.runtime, inference=config.inference),
    )
    torch.set_num_threads(config.num_threads)
    graph, trained = _opened(config, run)
    model, signature = trained.model, trained.signature
    num_layers = check_layer(
        config.layer, num_layers_of(model), inference=config.inference, what=config.what
    )
    check_labels(config.what, signature)
    own = read_ids(graph)
    vertices = find_vertices(config.vertices, graph, own)
    layout = Layout(
        num_rows=graph.num_vertices if vertices is None else len(vertices),
        width=width_of(model, signature, num_layers),
        answers=config.answers(signature, links=run.task.divides_edges),
        multilabel=signature.multilabel,
        ids=RowIds(vertices=vertices, own=own),
        classes=signature.classes,
    )
    check_ids(config.out, layout)
    disk = layout.num_rows * row_bytes(config.out, layout)
    check_space(f"out={shown(config.out)}", config.out.parent, disk=disk)
    predictor = Predictor(model, graph, run, num_layers=num_layers)
    predictor.prepare(vertices)
    with open_table(config.out, layout) as table:
        for rows in predictor.rows(vertices):
            table.write(rows)
    return config.out


def _opened(config: PredictConfig, run: settings.TrainConfig) -> tuple[Graph, Trained]:
    """Return the graph to predict on, and the model.

    Raises:
        ConfigError: features of another graph are not those of the run.
        GraphError: the graph is not usable.
    """
    if config.graph is None:
        graph = open_run_task(run, config.run).graph
        return graph, load_trained(config.run, run, graph)
    trained = load_trained(config.run, run)
    graph = config.graph.open()
    trained.signature.check(graph)
    return graph, trained
