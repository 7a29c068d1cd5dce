"""Options of the commands ``prepare``, ``partition``, ``plan-cache`` and ``evaluate``."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnscale.core import ConfigError, check_choice, check_range
from gnnscale.core.config.untrusted import names
from gnnscale.core.config.user_code import named_functions
from gnnscale.data import GraphSource
from gnnscale.partition import UNREACHED, PartitionerConfig
from gnnscale.planner import MAX_THREADS
from gnnscale.run.batch_config import BatchConfig
from gnnscale.run.runtime_config import INFERENCE

#: Parts if neither the options nor the devices of a run set a number.
_DEFAULT_NUM_PARTS = 4


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """Options of ``gnnscale prepare``, which converts a dataset to a graph store.

    Attributes:
        dataset: the dataset to convert.
        force: replace an existing store.
    """

    dataset: GraphSource
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class PartitionConfig:
    """Options of ``gnnscale partition``, which divides a graph into parts.

    Attributes:
        dataset: the graph to partition.
        partitioner: the partitioning algorithm.
        num_threads: threads to use; the result does not depend on it.
        num_hops: layers of the model to train, which some partitioners take into account.
        force: replace an existing partition.
        part_stores: also write each part as a separate graph store. ``true``: its L-hop
            neighborhood, in ``parts`` under the partition, for partitioners whose parts contain
            everything that sampling reads (pagraph). ``rows``: its feature rows with the full
            topology, in ``rows``, for machines that shard the features (features=shared).
    """

    dataset: GraphSource
    partitioner: PartitionerConfig
    num_threads: int
    num_hops: int = 2
    force: bool = False
    part_stores: bool | str = False

    def __post_init__(self) -> None:
        if self.part_stores not in (True, False, "rows"):
            raise ConfigError(f"part_stores={self.part_stores}: expected false, true or rows")
        check_range("num_threads", self.num_threads, 1, MAX_THREADS)
        check_range("num_hops", self.num_hops, 1, UNREACHED - 1)

    @property
    def num_parts(self) -> int:
        """Number of parts; 4 unless the partitioner's options set it."""
        return self.partitioner.num_parts or _DEFAULT_NUM_PARTS


@dataclass(frozen=True, kw_only=True)
class PlanCacheConfig(BatchConfig):
    """Options of ``gnnscale plan-cache``, which plans the devices' caches.

    Attributes:
        force: replace an existing plan.
    """

    force: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelCodeOptions:
    """Model code for a run directory of another user, where code is imported only if named again.

    Attributes:
        module: module of the model, as in ``CustomModel``; None if the run has no custom model.
        arguments: arguments of the model that are paths; other arguments come from the run.
    """

    module: str | None = field(default=None, metadata=names("code"))
    arguments: dict[str, Any] = field(default_factory=dict, metadata=names("arguments"))


@dataclass(frozen=True, kw_only=True)
class DataPathOptions:
    """Paths of the dataset for a run directory of another user.

    Attributes:
        store: path of the graph store, as in ``GraphSource``; ``raw`` is then not needed. None
            takes the run's path.
        raw: path of the raw files, as in ``Dataset``; None takes the run's path.
    """

    store: str | None = field(default=None, metadata=names("place"))
    raw: str | None = field(default=None, metadata=names("place"))


@dataclass(frozen=True, kw_only=True)
class TaskPathOptions:
    """Paths of the task's files for a run directory of another user.

    Attributes:
        candidates: file of the candidates, as in ``LinkPrediction``; None takes the run's path.
    """

    candidates: str | None = field(default=None, metadata=names("place"))


@dataclass(frozen=True, kw_only=True)
class SavedRunOptions:
    """Options of all commands that read a run directory.

    Attributes:
        run: the run directory.
        model: code of its model, which is imported because it is named here.
        dataset: paths of its dataset, if outside of the run directory and ``GNNSCALE_HOME``.
        task: candidates of link prediction, if outside of the run directory and ``GNNSCALE_HOME``.
    """

    run: Path
    model: ModelCodeOptions = field(default_factory=ModelCodeOptions)
    dataset: DataPathOptions = field(default_factory=DataPathOptions)
    task: TaskPathOptions = field(default_factory=TaskPathOptions)

    @property
    def overrides(self) -> dict[str, Any]:
        """Values of the run's options that the command line gives again, by dotted names."""
        arguments = self.model.arguments.items()
        options = {
            "model.module": self.model.module,
            **{f"model.arguments.{name}": value for name, value in arguments},
            "dataset.store": self.dataset.store,
            "dataset.raw": self.dataset.raw,
            "task.candidates": self.task.candidates,
        }
        return {option: value for option, value in options.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(SavedRunOptions):
    """Options of ``gnnscale evaluate``, which evaluates a finished or stopped run.

    Attributes:
        num_threads: threads of the native code and of torch.
        inference: one of ``INFERENCE``; None evaluates as the run did.
        metrics: metrics to compute, as in training; None takes the run's metrics. A custom
            function is imported because it is named here.
        threshold: probability from which on a class is predicted, for two classes or multilabel;
            None: the threshold that the run has chosen, or 0.5.
    """

    num_threads: int
    inference: str | None = None
    threshold: float | None = None
    metrics: list[str] | None = field(default=None, metadata=names("code", find=named_functions))

    def __post_init__(self) -> None:
        check_range("num_threads", self.num_threads, 1, MAX_THREADS)
        if self.inference is not None:
            check_choice("inference", self.inference, INFERENCE)

    @property
    def overrides(self) -> dict[str, Any]:
        """Values of the run's options that the command line gives again, by dotted names."""
        return super().overrides | ({} if self.metrics is None else {"metrics": self.metrics})
