"""The options of ``prepare``, ``partition``, ``plan-cache`` and ``evaluate``."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnscale.core import QUALITY, ConfigError, check_choice, check_range
from gnnscale.core.config.untrusted import names
from gnnscale.data import GraphSource
from gnnscale.partition import UNREACHED, PartitionerConfig
from gnnscale.planner import MAX_THREADS
from gnnscale.run.config import INFERENCE, BatchConfig

#: Parts if neither options nor the devices of a run say how many.
_NUM_PARTS = 4


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """A graph store to make.

    Attributes:
        dataset: what it is made of.
        force: make it again if it exists.
    """

    dataset: GraphSource
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class PartitionConfig:
    """A partition to make.

    Attributes:
        dataset: the graph that is divided.
        partitioner: how.
        num_threads: threads to use; the result does not depend on it.
        num_hops: layers of the model that will be trained, which some partitioners look at.
        force: make it again if it exists.
        part_stores: also write each part as a separate graph store. ``true``: its neighbourhoods,
            in ``parts`` below the partition; for partitioners whose parts have all that sampling
            can touch (pagraph). ``rows``: its rows of features beside the whole topology, in
            ``rows``; for machines that divide the rows (features=shared).
    """

    dataset: GraphSource
    partitioner: PartitionerConfig
    num_threads: int
    num_hops: int = 2
    force: bool = False
    part_stores: bool | str = False

    def __post_init__(self) -> None:
        if self.part_stores not in (True, False, "rows"):
            raise ConfigError(f"part_stores={self.part_stores}: allowed are false, true, rows")
        check_range("num_threads", self.num_threads, 1, MAX_THREADS)
        check_range("num_hops", self.num_hops, 1, UNREACHED - 1)

    @property
    def num_parts(self) -> int:
        """Parts that are asked for, 4 if no number is."""
        return self.partitioner.num_parts or _NUM_PARTS


@dataclass(frozen=True, kw_only=True)
class PlanCacheConfig(BatchConfig):
    """A cache plan to make.

    Attributes:
        force: make it again if it exists.
    """

    force: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelCodeOptions:
    """What is named again of the model of a run that was found.

    Attributes:
        module: as in ``CustomModel``; None if the run names none.
        arguments: those whose texts are paths; the others are the run's.
    """

    module: str | None = field(default=None, metadata=names("code"))
    arguments: dict[str, Any] = field(default_factory=dict, metadata=names("arguments"))


@dataclass(frozen=True, kw_only=True)
class DataPathOptions:
    """What is named again of the dataset of a run that was found.

    Attributes:
        store: as in ``GraphSource``; with it, ``raw`` is not needed. None for the run's own.
        raw: as in ``Dataset``; None for the run's own.
    """

    store: str | None = field(default=None, metadata=names("place"))
    raw: str | None = field(default=None, metadata=names("place"))


@dataclass(frozen=True, kw_only=True)
class TaskPathOptions:
    """Files of the task of a run that was found, named again.

    Attributes:
        candidates: as in ``LinkPrediction``; None for the run's own.
    """

    candidates: str | None = field(default=None, metadata=names("place"))


@dataclass(frozen=True, kw_only=True)
class SavedRunOptions:
    """What a command takes that reads a run directory.

    Attributes:
        run: the directory.
        model: the code of its model, which is imported because it is named here.
        dataset: where its data lie, if that is outside of the directory and ``GNNSCALE_HOME``.
        task: the file of the candidates of link prediction, if it is outside of both, too.
    """

    run: Path
    model: ModelCodeOptions = field(default_factory=ModelCodeOptions)
    dataset: DataPathOptions = field(default_factory=DataPathOptions)
    task: TaskPathOptions = field(default_factory=TaskPathOptions)

    @property
    def given(self) -> dict[str, Any]:
        """What is named again, by dotted names."""
        found = {
            "model.module": self.model.module,
            **{f"model.arguments.{name}": each for name, each in self.model.arguments.items()},
            "dataset.store": self.dataset.store,
            "dataset.raw": self.dataset.raw,
            "task.candidates": self.task.candidates,
        }
        return {option: each for option, each in found.items() if each is not None}


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(SavedRunOptions):
    """An evaluation of a finished or stopped run.

    Attributes:
        num_threads: threads of the native code and of torch.
        inference: one of ``INFERENCE``; None evaluates as the run itself did.
        metrics: what is measured, as in ``TrainConfig``; None for what the run measured. A function
            of the user's is imported because it is named here.
    """

    num_threads: int
    inference: str | None = None
    metrics: list[str] | None = field(default=None, metadata=names("code", known=tuple(QUALITY)))

    def __post_init__(self) -> None:
        check_range("num_threads", self.num_threads, 1, MAX_THREADS)
        if self.inference is not None:
            check_choice("inference", self.inference, INFERENCE)

    @property
    def given(self) -> dict[str, Any]:
        """What is named again, by dotted names."""
        return super().given | ({} if self.metrics is None else {"metrics": self.metrics})
