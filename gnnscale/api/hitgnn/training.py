"""The runtime phase: input graph, training, trained model (HitGNN, Listing 1)."""

import hashlib
import io
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from omegaconf import OmegaConf

from gnnscale.api.hitgnn.design import (
    OptionGroup,
    OwnerFunction,
    check_made,
    choose,
    compose_run,
    name_of,
)
from gnnscale.api.hitgnn.hardware import Runtime
from gnnscale.core import (
    ConfigError,
    GraphError,
    home,
    shown,
    standard_arithmetic,
    write_atomically,
)
from gnnscale.core.config.compose import separate_hydra
from gnnscale.core.config.run_directory import made_directory, read_run
from gnnscale.core.config.typed import typed
from gnnscale.core.shared_setting import SharedSetting
from gnnscale.data import GraphSource, from_dgl, from_pyg
from gnnscale.data.array_inputs import is_from, other_graph
from gnnscale.features import FeatureStoreConfig
from gnnscale.graph import Graph
from gnnscale.graph.store_format import ARRAYS, DEGREES, EDGE_ARRAYS
from gnnscale.inference.load_run import load_trained
from gnnscale.nn import ModelConfig, TrainableModel
from gnnscale.partition import FromFile, PartitionerConfig
from gnnscale.partition import simple as by_id
from gnnscale.planner import DevicePlanConfig
from gnnscale.report.formatting import least_real
from gnnscale.report.run_report import train_and_report
from gnnscale.run.callbacks import ObserverError
from gnnscale.run.config import RunConfig
from gnnscale.run.records import Observer, TrainResult
from gnnscale.training.launcher.launch import launch
from gnnscale.training.launcher.serialization import refuse_while_imported

#: Values of a graph that its store keeps beside the arrays.
_VALUES = (
    *("name", "feature_dtype", "num_features", "num_classes", "metric", "attainable_accuracy"),
)
#: Arrays that a graph can have.
_ARRAYS = (*ARRAYS, DEGREES, *EDGE_ARRAYS, "edge_ids")


def as_dataset(graph: Any) -> OptionGroup[GraphSource]:
    """Return what a run reads of ``graph``.

    A graph in memory is written to a store first, in ``${GNNSCALE_HOME:-~/.cache/gnnscale}/graphs``
    under a name that follows from its content. The same graph has the same store, which stays.

    Args:
        graph: a ``Graph``; a PyG ``Data`` or a DGL graph; the folder of a store; or what
            ``api.load_input_graph`` returns.

    Raises:
        ConfigError: it is nothing of that.
        GraphError: it cannot be made a graph, or written.
    """
    if isinstance(graph, OptionGroup):
        check_made("graph", graph, "dataset")
        return graph
    if isinstance(graph, (str, Path)):
        return _of_store(Path(graph))
    graph = _in_memory(graph, trains=True)
    if graph.path is not None and _is_store(graph, graph.path):
        return _of_store(graph.path)
    return _of_store(_saved(graph))


def as_graph(graph: Any) -> Graph:
    """Return ``graph``, of any kind that ``as_dataset`` takes, opened; nothing is written of it.

    Raises:
        ConfigError: it is nothing of that.
        GraphError: it cannot be made a graph, or opened.
    """
    if isinstance(graph, (OptionGroup, str, Path)):
        return as_dataset(graph).config.open()
    return _in_memory(graph, trains=False)


def _in_memory(graph: Any, *, trains: bool) -> Graph:
    if is_from(graph, "torch_geometric", "data.Data"):
        graph = from_pyg(graph, advises=trains)
    elif is_from(graph, "dgl", "DGLGraph"):
        features = "feat" if graph.is_homogeneous and "feat" in graph.ndata else None
        graph = from_dgl(graph, features=features, advises=trains)
    if not isinstance(graph, Graph):
        raise ConfigError(
            f"graph={shown(graph)}: {other_graph(graph)}; must be a gnnscale.Graph, a PyG Data, a "
            "DGL graph, the folder of a store, or what api.load_input_graph returns"
        )
    return graph


def _of_store(path: Path) -> OptionGroup[GraphSource]:
    return choose("dataset", "store", GraphSource, {"store": str(path.expanduser().absolute())})


def _is_store(graph: Graph, path: Path) -> bool:
    """Whether ``graph`` is what the store at ``path`` holds, not a copy with something replaced."""
    stored = Graph.open(path)
    if any(getattr(graph, name) != getattr(stored, name) for name in _VALUES):
        return False
    if _of_edge_labels(graph) != _of_edge_labels(stored):
        return False
    return all(_same(_array(graph, name), _array(stored, name)) for name in _arrays(graph, stored))


def _of_edge_labels(graph: Graph) -> str:
    labels = graph.edge_labels
    return "" if labels is None else f"{labels.num_classes} classes by {labels.metric};"


def _array(graph: Graph, name: str) -> Any:
    """Return an array of a graph by its name in a store, None without."""
    return graph.edges.arrays().get(name) if name in EDGE_ARRAYS else getattr(graph, name)


def _same(array: Any, stored: Any) -> bool:
    if array is None or stored is None:
        return array is stored
    if isinstance(array, np.memmap) and isinstance(stored, np.memmap):
        mapped = [(each.filename, each.offset, each.shape, each.dtype) for each in (array, stored)]
        return mapped[0] == mapped[1]
    return bool(np.array_equal(array, stored))


def _arrays(*graphs: Graph) -> list[str]:
    """Return the names of the arrays that one of ``graphs`` has."""
    return [n for n in _ARRAYS if any(isinstance(_array(each, n), np.ndarray) for each in graphs)]


def _saved(graph: Graph) -> Path:
    """Write ``graph`` to a store named after its content, if there is none."""
    digest = hashlib.blake2b(digest_size=16)
    for name in _VALUES:
        digest.update(f"{name}={getattr(graph, name)!r};".encode())
    digest.update(_of_edge_labels(graph).encode())
    for name in _arrays(graph):
        array = _array(graph, name)
        digest.update(f"{name}={array.dtype}{array.shape};".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    path = home() / "graphs" / f"memory-{digest.hexdigest()}"
    if not _exists(path):
        try:
            graph.save(path)
        except GraphError:
            # Another process may have been faster.
            if not _exists(path):
                raise
    return path


def _exists(path: Path) -> bool:
    return (path / "meta.json").exists()


def _show() -> Callable[[], None]:
    """Let the package's logger show lines, and return what undoes it."""
    package, root = logging.getLogger("gnnscale"), logging.getLogger()
    level = package.level
    # Handlers of the program's own show what reaches them, in their form. A daemon has no stream.
    unseen = root.handlers or package.handlers or sys.stderr is None
    handler = None if unseen else logging.StreamHandler(sys.stderr)
    if not package.isEnabledFor(logging.INFO):
        package.setLevel(logging.INFO)
    if handler is not None:
        handler.setFormatter(logging.Formatter("%(message)s"))
        package.addHandler(handler)

    def undo() -> None:
        package.setLevel(level)
        if handler is not None:
            package.removeHandler(handler)

    return undo


_SHOWN = SharedSetting(_show)


def shown_log() -> AbstractContextManager[None]:
    """Show on standard error what a run logs; what the program logs itself stays as it is."""
    return _SHOWN.held()


@dataclass(frozen=True, kw_only=True)
class Training:
    """What ``start_training`` returns.

    Attributes:
        model: with the weights of the best epoch.
        directory: the run directory.
        result: epochs, device plan, metrics.
    """

    model: TrainableModel = field(repr=False)
    directory: Path
    result: TrainResult = field(repr=False)

    @property
    def losses(self) -> list[float]:
        """The mean training loss of every epoch."""
        return [epoch.train_loss for epoch in self.result.history]

    @property
    def metrics(self) -> list[float | None]:
        """The validation metric of every epoch, None for one that was not validated."""
        return [epoch.valid_metric for epoch in self.result.history]

    @property
    def test_metric(self) -> float | None:
        """The test metric of ``model``, None if it is not defined."""
        return self.result.test_metric

    @property
    def figures(self) -> str:
        """What its times are called: ``measured``, ``emulated``, or as the least real device's."""
        return least_real(share.device.figures for share in self.result.plan.shares)


def load_input_graph(
    dataset: str, path: str | Path | None = None, **options: Any
) -> OptionGroup[GraphSource]:
    """Name the input graph (``Load_Input_Graph``); it is read when training starts.

    Args:
        dataset: a layout of files or a generator, as ``dataset=`` on the command line.
        path: the file or folder; None downloads if an address is known, or generates.
        **options: of the dataset, such as ``name``.

    Raises:
        ConfigError: there is no such dataset or option.
    """
    raw = {} if path is None else {"raw": str(path)}
    return choose("dataset", dataset, GraphSource, {**raw, **options})


def start_training(
    model: OptionGroup[ModelConfig] | Runtime,
    graph: OptionGroup[GraphSource],
    platform: OptionGroup[DevicePlanConfig] | None = None,
    *,
    partition: OptionGroup[PartitionerConfig] | OwnerFunction | None = None,
    features: OptionGroup[FeatureStoreConfig] | None = None,
    epochs: int | None = None,
    options: Mapping[str, Any] | None = None,
    directory: str | Path | None = None,
    resume: str | Path | None = None,
    observers: Sequence[Observer] = (),
) -> Training:
    """Train as ``gnnscale train`` does (``Start_training``).

    Args:
        model: of ``gnn_model``; or the runtime of ``generate_design``, which has its platform.
        graph: of ``load_input_graph``.
        platform: of ``platform_metadata``; None for one processor, or that of the runtime.
        partition: of ``graph_partition``; None leaves the graph whole.
        features: of ``feature_storing``; None for host memory.
        epochs: passes over the training vertices; None for the default.
        options: other options by their names on the command line, as in
            ``{"optimizer": "sgd", "optimizer.lr": 0.1}``.
        directory: the run directory, which holds no run yet; None for one of its own in
            ``outputs/train``.
        resume: run directory to continue.
        observers: follow the run, and are told of every step and epoch.

    Raises:
        ConfigError: an option is not allowed, or does not fit another one or the graph; or
            ``directory`` holds a run.
        GraphError: the graph cannot be read.
        WorkerError: a worker failed or died; the message says which and why.
        Exception: what an observer raised, but ``StopTraining``, which ends training.
    """
    if isinstance(model, Runtime):
        if platform is not None:
            raise ConfigError("platform: is that of the runtime which generate_design returned")
        options = {**model.options, **(options or {})}
        platform = model.platform
        model = model.model
    check_made("model", model, "model")
    check_made("graph", graph, "dataset")
    if platform is not None:
        check_made("platform", platform, "device_plan")
    if features is not None:
        check_made("features", features, "features")
    if partition is not None and not isinstance(partition, OwnerFunction):
        check_made("partition", partition, "partitioner")
    chosen: list[OptionGroup[Any]] = [model, graph]
    chosen += [each for each in (platform, features) if each is not None]
    asked = dict(options or {}) | ({} if epochs is None else {"epochs": epochs})
    if isinstance(partition, OwnerFunction):
        num_parts = len(platform.config.devices) if platform is not None else 1
        with standard_arithmetic():
            chosen.append(_owned(partition, graph.config, num_parts))
    elif partition is not None:
        chosen.append(partition)
    config, folder, result = run(
        chosen, asked, directory=directory, resume=resume, observers=observers
    )
    with standard_arithmetic(), torch.random.fork_rng(devices=[]):
        trained = load_trained(folder, config)
    return Training(model=trained.model.eval(), directory=folder, result=result)


def run(
    chosen: Sequence[OptionGroup[Any]],
    asked: Mapping[str, Any],
    *,
    directory: str | Path | None,
    resume: str | Path | None,
    observers: Sequence[Observer] = (),
) -> tuple[RunConfig, Path, TrainResult]:
    """Train with what was chosen, and return the options, the run directory and the result.

    Args:
        chosen: groups of options.
        asked: other options by their names on the command line.
        directory: of ``start_training``.
        resume: likewise.
        observers: likewise.

    Raises:
        ConfigError: as ``start_training`` does.
        GraphError: likewise.
        WorkerError: likewise.
        Exception: what an observer raised.
    """
    refuse_while_imported()
    asked = dict(asked)
    if resume is not None:
        # The options are those of this call; a checkpoint of others is refused later.
        read_run(Path(resume), {each.name for each in fields(RunConfig)}, option="resume")
        asked["resume"] = str(Path(resume).absolute())
    with separate_hydra():
        node, hydra = compose_run(chosen, asked)
        config = typed(node, RunConfig)
        values: Any = OmegaConf.to_container(node, resolve=True)
        place = resume or directory or hydra.run.dir
    config = replace(config, **{each.group: each.config for each in chosen})
    if not config.runtime.checkpoint:
        raise ConfigError(
            "runtime.checkpoint=false: the trained model is taken from its checkpoint"
        )
    values |= {each.group: each.values for each in chosen if each.values} | {"resume": None}
    option = "directory" if resume is None else "resume"
    with made_directory(place, node, hydra, fresh=resume is None, option=option) as folder:
        raised: BaseException | None = None
        try:
            result = train_and_report(
                config, folder, options=values, run_training=launch, observers=observers
            )
        except ObserverError as error:
            if error.of_logger:
                raise
            raised = error.raised
        if raised is not None:  # here, so that it gets no context that it had not
            raise raised
    return config, folder, result


def save_model(training: Training, path: str | Path) -> None:
    """Write the trained weights to a safetensors file (``Save_model``).

    Args:
        training: of ``start_training``.
        path: the file; ``model.load_state_dict(safetensors.torch.load_file(path))`` reads it.

    Raises:
        ConfigError: there is no training to save.
        OSError: it cannot be written.
    """
    if not isinstance(training, Training):
        raise ConfigError(f"training={shown(training)}: must be what start_training returns")
    weights = {name: each.clone() for name, each in training.model.state_dict().items()}
    write_atomically(Path(path), safetensors.torch.save(weights))


def _owned(
    owners: OwnerFunction, dataset: GraphSource, num_parts: int
) -> OptionGroup[PartitionerConfig]:
    """Ask a user's function for the owner of every vertex, and keep its answer in a file."""
    graph = dataset.open()
    found = owners.function(graph, num_parts)
    source = f"graph_partition: {getattr(owners.function, '__name__', 'the function')}"
    content = io.BytesIO()
    np.save(content, by_id.check_owners(found, graph, num_parts, source=source))
    folder = home() / "owners"
    folder.mkdir(parents=True, exist_ok=True)
    # Named after its content, so that the same owners make the same partition.
    digest = hashlib.blake2b(content.getvalue(), digest_size=16).hexdigest()
    file = folder / f"{digest}.npy"
    write_atomically(file, content.getvalue(), shared=True)
    values = {"_target_": name_of(FromFile), "num_parts": None, "store": None, "owners": str(file)}
    return OptionGroup(group="partitioner", config=FromFile(owners=str(file)), values=values)
