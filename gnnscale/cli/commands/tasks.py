"""Tasks of all commands but ``train``, after functions about the running job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnscale.core import let_idle_threads_sleep, sole_maker, sole_writer, write_atomically
from gnnscale.core.config import locked_run, run_directory
from gnnscale.core.config.typed import typed

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from rich.console import Console

    from gnnscale.data import GraphSource
    from gnnscale.fpga_design import GenerateConfig


@contextmanager
def output_folder(
    options: DictConfig, names: Sequence[str], *, force: bool | None = None
) -> Iterator[Path]:
    """Create, lock and yield the output folder of files ``names``, with options in ``.hydra``.

    With ``force`` existing files are removed. In a sweep, Hydra has created the job's folder.
    """
    if in_sweep():
        directory = job_directory()
        with sole_writer(directory, option="hydra.sweep.dir"):
            yield directory
        return
    folder, names = hydra_settings().run.dir, (run_directory.COMPOSED, *names)
    with run_directory.create_output_folder(folder, names, force=force) as directory:
        (directory / run_directory.COMPOSED).mkdir()
        run_directory.write_composed(directory, options, hydra_settings())
        yield directory


def check_output(names: Sequence[str], *, force: bool | None) -> None:
    """Raise ConfigError if the output folder, but of a sweep, has ``.hydra`` or files ``names``.

    With ``force`` these may exist, for replacement, if the folder has nothing else.
    """
    if not in_sweep():
        directory = Path(hydra_settings().run.dir)
        run_directory.check_output(directory, (*names, run_directory.COMPOSED), force=force)


def job_directory() -> Path:
    """Return this job's folder, a temporary one for torchrun's ranks above 0."""
    hydra = hydra_settings()
    return Path(hydra.runtime.output_dir if in_sweep() else hydra.run.dir)


def job_number() -> int:
    """Return the number of this job in its sweep; 0 without a sweep."""
    return int(hydra_settings().job.num) if in_sweep() else 0


def in_sweep() -> bool:
    """Whether this job is part of a sweep."""
    from hydra.types import RunMode

    return bool(hydra_settings().mode == RunMode.MULTIRUN)


def hydra_settings() -> Any:
    """Return Hydra's settings of this job."""
    from hydra.core.hydra_config import HydraConfig

    return HydraConfig.get()


def typed_options(kind: str) -> list[str]:
    """Return options of ``kind``, ``task`` or ``hydra``, as the user typed them."""
    from omegaconf import OmegaConf

    overrides: Any = OmegaConf.to_container(hydra_settings().overrides[kind], resolve=False)
    return [str(override) for override in overrides]


def prepare(options: DictConfig) -> None:
    """Convert a dataset's raw files to a graph store, unless it exists; print the store's path."""
    from gnnscale.run.commands import PrepareConfig

    config = typed(options, PrepareConfig)
    print(config.dataset.prepare(force=config.force))


def partition(options: DictConfig) -> None:
    """Partition a graph, unless an equal partition is stored; print, draw, and store its parts."""
    from rich.console import Console

    from gnnscale import partition as parts
    from gnnscale.report.partition import draw, print_partition
    from gnnscale.run.commands import PartitionConfig

    config = typed(options, PartitionConfig)
    graph = config.dataset.open()
    sizes = {"num_parts": config.num_parts, "num_hops": config.num_hops}
    # The lock also covers the stores of parts and the picture, which belong to the partition.
    with sole_maker(parts.partition_path(config.partitioner, graph, **sizes)):
        path = parts.make_partition(
            config.partitioner, graph, **sizes, num_threads=config.num_threads, force=config.force
        )
        stored = parts.read_partition(path, graph)
        print_partition(stored, graph=graph.name, types=graph.types, console=Console())
        if not (path / parts.PICTURE_FILE).exists():
            write_atomically(path / parts.PICTURE_FILE, draw(stored, graph=graph.name))
        if config.part_stores:
            (parts.write_rows if config.part_stores == "rows" else parts.write_parts)(stored, graph)
    print(path)


def plan_cache(options: DictConfig) -> None:
    """Plan the caches of a run, unless an equal plan is stored; print and draw the plan."""
    let_idle_threads_sleep()

    from rich.console import Console

    from gnnscale.cache import PICTURE_FILE, read_plan
    from gnnscale.report.cache_plan import draw, print_plan
    from gnnscale.run import PlanCacheConfig, open_partition
    from gnnscale.training.build.cache_problem import plan_caches
    from gnnscale.training.make_artifacts import divide

    config = typed(options, PlanCacheConfig)
    graph = config.dataset.open()
    divided = () if config.partitioner.divides == "nothing" else (divide(config, graph),)
    path = plan_caches(config, graph, open_partition(divided, graph), force=config.force)
    stored = read_plan(path, graph)
    print_plan(stored, graph=graph.name, console=Console())
    if not (path / PICTURE_FILE).exists():
        write_atomically(path / PICTURE_FILE, draw(stored, graph=graph.name))
    print(path)


def evaluate(options: DictConfig) -> None:
    """Evaluate the best weights of a run; print the metrics, and write ``evaluation.json``."""
    let_idle_threads_sleep()

    from gnnscale.inference.evaluate import evaluate as evaluate_run
    from gnnscale.report.formatting import metrics_line, threshold_words
    from gnnscale.report.summary import write_json
    from gnnscale.run.commands import EvaluateConfig

    config = typed(options, EvaluateConfig)
    file = config.run.resolve() / "evaluation.json"
    with locked_run(config.run):
        evaluation = evaluate_run(config)
        write_json(file, asdict(evaluation))
    for split, metrics in evaluation.metrics.items():
        print(split, metrics_line(metrics, evaluation.base_rates.get(split)))
    if evaluation.thresholds is not None:
        print(f"with {threshold_words(evaluation.thresholds)}")
    if evaluation.popularity:
        print(BY_POPULARITY, metrics_line(evaluation.popularity, None))
    print(file)


#: Beginning of the line of metrics by which a model of links is to be judged.
BY_POPULARITY = "test by popularity alone:"


def predict(options: DictConfig) -> None:
    """Write predictions or embeddings by a run's best checkpoint to a file, and print its path."""
    let_idle_threads_sleep()

    from gnnscale.inference.export import predict as task

    graph = take_graph(options)
    named = [option.partition("=")[0].lstrip("+") for option in typed_options("task")]
    graph_options = tuple(name[8:] for name in named if name.startswith("dataset."))
    config = typed(options, task.PredictConfig)
    config = replace(config, graph=graph, graph_options=graph_options)
    with locked_run(config.run, config.out):
        print(task.predict(config))


def take_graph(options: DictConfig) -> GraphSource | None:
    """Remove a chosen dataset from ``options``, and return it; None: no dataset is chosen."""
    from omegaconf import open_dict

    from gnnscale.data import GraphSource

    if "_target_" not in options.dataset:
        return None  # its options are paths of the run's dataset
    with open_dict(options):
        dataset = options.pop("dataset")
        for name in ("store", "raw"):  # not fields of every dataset
            if dataset[name] is None:
                del dataset[name]
    base: Any = GraphSource  # abstract: ``_target_`` names a subclass
    graph: GraphSource = typed(dataset, base, group="dataset")
    return graph


def export(options: DictConfig) -> None:
    """Write a run's best weights for another program, and print the code that loads them."""
    let_idle_threads_sleep()

    from gnnscale.inference.export import weights

    config = typed(options, weights.ExportConfig)
    with locked_run(config.run, config.file):
        done = weights.export(config)
    print(done.snippet)
    if done.note:
        print(f"note: {done.note}")
    print(done.file)


def doctor(options: DictConfig) -> None:
    """Examine this machine and a named graph store; write ``doctor.json``; calibrate if asked to.

    GraphError: the store has a problem.
    """
    let_idle_threads_sleep()

    from rich.console import Console

    from gnnscale.core import GraphError
    from gnnscale.report import doctor as report
    from gnnscale.report.summary import write_json

    config = typed(options, report.DoctorConfig)
    findings = report.examine()
    report.print_findings(findings, Console())
    problem = None
    if config.store is not None:
        findings["store"] = report.examine_store(config.store)
        report.print_store(findings["store"], Console())
        problem = report.store_problem(findings["store"])
    with output_folder(options, ("doctor.json",)) as directory:
        file = directory / "doctor.json"
        write_json(file, findings)
        if config.calibrate:  # in the block: an interruption removes doctor.json
            file = _calibrate(Console())
    print(file)
    if problem is not None:
        raise GraphError(problem)


def _calibrate(console: Console) -> Path:
    """Measure this machine; print its rates, write them to a file, and return its path."""
    from gnnscale.planner.calibration.calibrate import calibrate
    from gnnscale.planner.platform import platform_file
    from gnnscale.report.doctor import print_rates

    platform = calibrate()
    print_rates(platform.processor, console)
    platform.write(platform_file())
    return platform_file()


def simulate(options: DictConfig) -> None:
    """Predict training on a platform; print, and write ``simulation.json``, ``scaling.svg``."""
    from rich.console import Console

    from gnnscale.planner.simulator import SimulateConfig
    from gnnscale.planner.simulator import simulate as run_simulation
    from gnnscale.report.simulate import describe, draw, print_scaling
    from gnnscale.report.summary import write_json

    scaling = run_simulation(typed(options, SimulateConfig))
    print_scaling(scaling, Console())
    with output_folder(options, ("simulation.json", "scaling.svg")) as directory:
        write_json(directory / "simulation.json", describe(scaling))
        write_atomically(directory / "scaling.svg", draw(scaling))
    print(directory)


def generate(options: DictConfig) -> None:
    """Write an FPGA design into the output folder.

    With ``report``, write a comparison of the vendor's reports with a design's estimates instead.
    """
    let_idle_threads_sleep()

    from rich.console import Console

    from gnnscale.fpga_design import GenerateConfig
    from gnnscale.fpga_design import generate as run_generator
    from gnnscale.fpga_design.design import DESIGN_FILE
    from gnnscale.fpga_design.package import NAMES
    from gnnscale.report import fpga_design as report
    from gnnscale.report.summary import write_json

    config = typed(options, GenerateConfig)
    if config.report is not None:
        _compare(options, config)
        return
    # Refuse the output folder before the long exploration.
    check_output(NAMES, force=config.force)
    generated = run_generator(config)
    report.print_design(generated, Console())
    groups, values = _host_options(options)
    with output_folder(options, NAMES, force=config.force) as directory:
        generated.write(directory, groups=groups, options=values)
        write_json(directory / "estimate.json", report.describe(generated))
        write_atomically(directory / "estimate.html", report.page(generated))
        write_json(directory / DESIGN_FILE, generated.design.plain())
    print(directory)


def _compare(options: DictConfig, config: GenerateConfig) -> None:
    """Compare the vendor's reports with their design's estimates; print and write the result."""
    from rich.console import Console

    from gnnscale.fpga_design.vendor import compare
    from gnnscale.report import fpga_design as report
    from gnnscale.report.summary import write_json

    assert config.report is not None
    comparison = compare(config.report, config.design)
    report.print_comparison(comparison, Console())
    names = ("comparison.json", "comparison.html")
    with output_folder(options, names, force=config.force) as directory:
        write_json(directory / "comparison.json", report.describe_comparison(comparison))
        write_atomically(directory / "comparison.html", report.comparison_page(comparison))
    print(directory)


def _host_options(options: DictConfig) -> tuple[dict[str, str], dict[str, Any]]:
    """Return options of a run on the design: choices by group, values by option or group."""
    from omegaconf import OmegaConf

    from gnnscale.fpga_design.design import PARTITIONERS

    choices = hydra_settings().runtime.choices
    groups = {name: str(choices[name]) for name in ("model", "sampler")}
    partitioner = PARTITIONERS.get(options.system)
    if options.cards > 1 and partitioner is not None:
        groups["partitioner"] = partitioner
    if options.get("dataset") is not None:
        groups["dataset"] = str(choices["dataset"])
    batch_size = options.batch_size * options.cards
    values: dict[str, Any] = {"seed": options.seed, "batch_size": batch_size}
    for name in groups.keys() & options.keys():
        plain: Any = OmegaConf.to_container(options[name], resolve=True)
        values[name] = {key: value for key, value in plain.items() if key != "_target_"}
    return groups, values
