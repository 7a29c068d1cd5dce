"""Options of a training run, as dataclasses that validate their values."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from gnnscale.backend.exchange import ExchangeConfig
from gnnscale.core import ConfigError, binary_metrics, brief, check_choice, usable_cores
from gnnscale.core.config import check_name, is_name, names, short_name, untrusted
from gnnscale.core.config.typed import typed
from gnnscale.core.config.user_code import named_functions
from gnnscale.core.metrics import check_metric, find_metric
from gnnscale.features import DiskFeaturesConfig, FeatureStoreConfig, HostFeaturesConfig
from gnnscale.nn import CustomModel, losses
from gnnscale.nn.optim import OptimizerConfig
from gnnscale.nn.typed_options import TypedModel
from gnnscale.run.batch_config import (
    NO_CACHES,
    BatchConfig,
    check_rows_are_whole,
    lists_problem,
    partitioned_error,
)
from gnnscale.run.feature_checks import check_features
from gnnscale.run.inputs import EvaluationOptions, ReportOptions
from gnnscale.run.loggers import LOGGERS, addresses_of
from gnnscale.run.tasks import TaskConfig, TaskInputs, VertexPrediction
from gnnscale.run.typed_inputs import check_reads_types
from gnnscale.sampling import LayerSampling, NeighborSampling, SamplerConfig, without_last_hop


@dataclass(frozen=True, kw_only=True)
class RunConfig(BatchConfig):
    """Options of a training run.

    Attributes:
        optimizer: optimizer of the weights.
        loss: loss to minimize.
        metrics: metrics of validation and test. The first selects the best epoch and drives
            patience and ``optimizer.schedule=plateau``. Empty: the graph's own metric.
            Your function, ``MODULE:NAME`` or ``FILE.py:NAME``, gets torch tensors as
            ``loss.function`` does, and returns a number, of which higher is better.
        threshold: rule by which the probability from which on a class is predicted is chosen on the
            validation set after training, for two classes or multilabel: ``f1`` gives the best F1,
            ``recall_at_precision_P`` the best recall at a precision of ``P``. Test, ``evaluate``
            and ``predict`` decide by it, validation in training at 0.5. None: 0.5.
        logger: loggers in addition to the run's own files, any of ``LOGGERS``, such as
            ``{csv: true}``.
        observers: custom classes that receive the events of the run, ``MODULE:NAME`` or
            ``FILE.py:NAME``. Each is a ``gnnscale.Observer`` and is created with the run directory
            and the options.
        resume: run directory to continue; None starts a new run.
        features: feature store from which workers read rows.
        exchange: exchange of rows between devices before they propagate; None: no exchange.
        cache_plan: cache plan written by ``gnnscale plan-cache``, used without changes; None takes
            the plan of ``cache_planner``.
        task: the prediction task.
        predictions: print predicted next to measured stage times even for a single device.
    """

    optimizer: OptimizerConfig
    loss: losses.LossConfig = field(default_factory=losses.AutoLoss)
    metrics: list[str] = field(default_factory=list, metadata=names("code", find=named_functions))
    threshold: str | None = field(default=None, metadata=names("text"))
    logger: dict[str, bool] = field(
        default_factory=dict, metadata=names("place", find=addresses_of)
    )
    observers: list[str] = field(default_factory=list, metadata=names("code"))
    resume: Path | None = None
    features: FeatureStoreConfig = field(default_factory=HostFeaturesConfig)
    exchange: ExchangeConfig | None = None
    cache_plan: Path | None = None
    task: TaskConfig = field(default_factory=VertexPrediction)
    predictions: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_names(self)
        _check_run(self)

    @property
    def training_sampler(self) -> SamplerConfig:
        """Sampler of training: without the input layer's hop if its aggregation is precomputed."""
        shorter = without_last_hop(self.sampler) if self.features.preaggregates else None
        return self.sampler if shorter is None else shorter

    @property
    def task_inputs(self) -> TaskInputs:
        """The options that decide the task and the data that its model reads."""
        return TaskInputs(
            task=self.task,
            dataset=self.dataset,
            model=self.model,
            features=self.features,
            loss=self.loss,
            metrics=self.metrics,
            device_plan=self.device_plan,
            time=getattr(self.sampler, "time", None),
            time_options=getattr(self.sampler, "time_options", ()),
            num_threads=self.num_threads,
        )

    @property
    def evaluation_options(self) -> EvaluationOptions:
        """The options of validation, test and prediction."""
        return EvaluationOptions(
            model_name=self.model.name,
            inference=self.runtime.inference,
            sampler=self.sampler,
            batch_size=self.batch_size,
            seed=self.seed,
            num_threads=self.num_threads,
            compute_dtype=self.runtime.compute_dtype,
            threshold=self.threshold,
        )

    @property
    def report_options(self) -> ReportOptions:
        """The options of the report, loggers and observers."""
        return ReportOptions(
            epochs=self.epochs,
            patience=self.runtime.patience,
            loggers=self.logger,
            observers=self.observers,
            predictions=self.predictions,
        )

    @property
    def code_names(self) -> tuple[Any, ...]:
        """The texts that may name code of the model, the loss and metrics; also other values."""
        module, function = getattr(self.model, "module", None), getattr(self.loss, "function", None)
        return (module, function, *self.metrics)

    @property
    def host_threads(self) -> int:
        """Compute threads, at most the usable cores unless the run is deterministic."""
        if self.runtime.deterministic:
            return self.num_threads
        return min(self.num_threads, usable_cores())

    @property
    def needs_more_than_graph(self) -> bool:
        """Whether the run needs a partition, edge split, caches or preaggregated rows."""
        divides = self.partitioner.divides != "nothing" or self.task.divides_edges
        return divides or self.has_caches or self.features.preaggregates

    @property
    def has_caches(self) -> bool:
        """Whether the options request caches and a device supports one."""
        devices = self.device_plan.parsed() if self.requests_caches else ()
        return any(device.holds_cache for device in devices)

    @property
    def requests_caches(self) -> bool:
        """Whether the options request caches, regardless of the devices."""
        return self.cache_planner.caches or self.cache_plan is not None


def _check_names(config: RunConfig) -> None:
    """Refuse unknown loggers and metrics, and duplicate metrics or observers."""
    for name in config.logger:
        check_choice("logger", name, LOGGERS)
    for option in ("metrics", "observers"):
        names = getattr(config, option)
        for number, name in enumerate(names):
            if option == "observers" or is_name(name):
                check_name(name, option=option)
            else:
                check_metric(option, name)
            if name in names[:number]:
                raise ConfigError(
                    f"{option}=[{', '.join(names)}]: expected different names, got {name} twice"
                )
    labels = [short_name(name) for name in config.metrics]
    for name, label in zip(config.metrics, labels, strict=True):
        if is_name(name) and (find_metric(label) or labels.count(label) > 1):
            raise ConfigError(
                f"metrics={name}: expected a unique name, got {label}, the name of another metric; "
                "rename your function"
            )


def _check_run(config: RunConfig) -> None:
    """Raise ConfigError for options of a run that conflict."""
    rule = config.threshold
    if rule is not None and not binary_metrics.is_rule(rule):
        raise ConfigError(
            f"threshold={brief(rule)}: expected {binary_metrics.F1}, recall_at_precision_P with a "
            "precision such as 0.9, or null; gnnscale predict threshold=0.3 takes a number"
        )
    if config.task.divides_edges:
        _check_link_metrics(config)
    if config.task.compares_rows:
        _check_edge_task(config)
    _check_sampler(config)
    if isinstance(config.model, TypedModel):
        _check_types(config, f"model={config.model.name.lower()}")
    _check_loss(config)
    warmup, epochs = config.optimizer.warmup_epochs, config.epochs
    if warmup >= epochs:
        raise ConfigError(f"optimizer.warmup_epochs={warmup}: expected less than epochs={epochs}")
    _check_caches(config)
    check_features(
        config,
        config.features,
        exchanges=config.exchange is not None,
        requests_caches=config.requests_caches,
    )
    if config.runtime.compute_dtype != "float32" and not config.model.takes_bfloat16:
        raise ConfigError(
            f"runtime.compute_dtype={config.runtime.compute_dtype}: expected float32, in which "
            f"{config.model.name} computes"
        )
    if config.cache_plan is not None and not config.has_caches:
        raise ConfigError(
            f"cache_plan={config.cache_plan}: expected a device with memory and a link in "
            "device_plan, got none; cache_plan=null uses no plan"
        )


def _check_link_metrics(config: RunConfig) -> None:
    """Refuse metrics, losses and thresholds of labels with ``task=links``."""
    links = "with task=links, which"
    if config.metrics:
        names = ", ".join(config.metrics)
        raise ConfigError(f"metrics=[{names}]: expected [] {links} is measured by ranks")
    if config.threshold is not None:
        raise ConfigError(f"threshold={config.threshold}: expected null {links} ranks edges")
    if not isinstance(config.loss, losses.AutoLoss):
        loss = type(config.loss).__name__
        raise ConfigError(f"loss: expected auto {links} has its own loss, got {loss}")


def _check_edge_task(config: RunConfig) -> None:
    """Refuse options that tasks on edges (links, edge labels) do not support."""
    divides = config.task.divides_edges
    option = "task=links" if divides else "task=edges"
    if config.model.row_width is None:
        raise ConfigError(
            f"{option}: expected model=sage, gcn, gat, gatv2, gin, sgc or appnp, got "
            f"{config.model.name}"
        )
    if config.partitioner.divides != "nothing":
        raise partitioned_error(config, option, "which divides training vertices")
    if config.requests_caches:
        raise ConfigError(f"{option}: {NO_CACHES} are planned for training vertices")
    if divides and config.features.preaggregates:
        raise ConfigError(
            "features=preaggregated: expected features=host with task=links, which leaves out the "
            "messages of the edges that a step predicts"
        )
    for device in config.device_plan.parsed():
        if not (device.takes_links if divides else device.takes_edge_labels):
            kinds = "cpu, emulated or cuda" if divides else "cpu or emulated"
            raise ConfigError(
                f"{option}: expected devices of kind {kinds}, got {device.label}, which does not "
                "train on edges"
            )


def _check_sampler(config: RunConfig) -> None:
    """Refuse a sampler, or adjacency lists on disk, that a device does not support."""
    devices = config.device_plan.parsed()
    for device in devices:
        if not isinstance(config.sampler, device.samplers):
            supported = ", ".join(sampler.__name__ for sampler in device.samplers)
            raise ConfigError(
                f"sampler: expected {supported} for {device.label}, which samples on the device, "
                f"got {type(config.sampler).__name__}; device_plan=cpu supports all samplers"
            )
    if isinstance(config.sampler, NeighborSampling) and config.sampler.memory_bytes is not None:
        problem = lists_problem(devices, requests_caches=config.requests_caches)
        if problem is not None:
            raise ConfigError(f"sampler.memory_bytes={config.sampler.memory_bytes}: {problem}")


def check_types(config: RunConfig, name: str, types: Sequence[str]) -> None:
    """Raise ConfigError unless the run supports a graph ``name`` with these vertex types."""
    check_reads_types(config.model, name, types)
    if types and isinstance(config.model, CustomModel):
        _check_types(config, "model=custom, on a graph with types")


def _check_types(config: RunConfig, option: str) -> None:
    """Refuse options that models of graphs with types do not support."""
    if config.requests_caches and config.features.reads_disk:
        raise ConfigError(f"{option}: {NO_CACHES} need rows in memory, got features=disk")
    if config.exchange is not None:
        raise ConfigError(f"{option}: expected exchange=null, got an exchange")
    if type(config.features) not in (HostFeaturesConfig, DiskFeaturesConfig):
        raise ConfigError(
            f"{option}: expected features=host or disk, got features={config.features.name}; "
            "model.without_features says what vertex types without features get"
        )
    if isinstance(config.sampler, LayerSampling):
        raise ConfigError(
            f"{option}: expected sampler=neighbor, labor, weighted or full, got sampler=layerwise"
        )
    for device in config.device_plan.parsed():
        if not device.takes_types:
            raise ConfigError(
                f"{option}: expected devices of kind cpu or emulated, got {device.label}, which "
                "takes no types of vertices and edges"
            )


def _check_loss(config: RunConfig) -> None:
    """Refuse a loss other than ``auto`` if a device computes the loss itself."""
    if isinstance(config.loss, losses.AutoLoss):
        return
    for device in config.device_plan.parsed():
        if not device.takes_loss:
            raise ConfigError(
                f"loss: expected auto, and classes, for {device.label}, which computes the loss on "
                f"the device, got {type(config.loss).__name__}"
            )


def _check_caches(config: RunConfig) -> None:
    """Refuse a stored next to a new cache plan, and caches of replaced, exchanged or split rows."""
    if config.cache_plan is not None:
        if config.cache_planner.caches:
            raise ConfigError(
                f"cache_plan={config.cache_plan}: expected cache_planner=none with a stored plan, "
                f"got cache_planner={config.cache_planner.policy}"
            )
        check_rows_are_whole(f"cache_plan={config.cache_plan}", config)
    if not config.has_caches:
        return
    features = config.features
    if not (type(features) is HostFeaturesConfig or features.reads_disk or features.divided):
        raise ConfigError(
            "features: expected the graph's own features with caches, got "
            f"{type(features).__name__}"
        )
    if config.exchange is not None:
        raise ConfigError("exchange: expected null with caches, whose rows are not exchanged")


def parse_run_options(options: Any) -> RunConfig:
    """Return the checked options of a run, a mapping or OmegaConf's; ConfigError: one is wrong."""
    return typed(options, RunConfig)


def run_option_names() -> frozenset[str]:
    """Return the top-level names of a run's options and option groups."""
    return frozenset(option.name for option in fields(RunConfig))


#: Check of the options in an untrusted run directory.
check_stored_options = partial(untrusted.check_run_options, options=RunConfig)
