"""What each command does with its composed configuration.

torch, and whatever imports it, is imported inside the tasks: help and completion are to be quick.
"""

from __future__ import annotations

import re
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial as bound
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnscale.cli.exit_status import name_lost_files
from gnnscale.core import ConfigError, explain, one_line
from gnnscale.core.config import compose, run_directory, user_code
from gnnscale.core.config.typed import typed
from gnnscale.core.hardware import (
    leads_machine,
    let_idle_threads_sleep,
    restarting_run,
    torchrun_rank,
)
from gnnscale.core.locks import RESTART_WAIT_S, sole_maker, sole_writer
from gnnscale.core.process import process_age_s

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from rich.console import Console

    from gnnscale.data import GraphSource
    from gnnscale.fpga_design import GenerateConfig
    from gnnscale.inference.evaluate import Evaluation
    from gnnscale.report.run_report import RunTraining
    from gnnscale.run.records import TrainResult


#: What failed jobs of this process raised.
failures: list[Exception] = []


def prepare(options: DictConfig) -> None:
    """Turn raw files into a graph store."""
    from gnnscale.run.commands import PrepareConfig

    config = typed(options, PrepareConfig)
    print(config.dataset.prepare(force=config.force))


def partition(options: DictConfig) -> None:
    """Divide a graph into parts, show them, and draw ``partition.svg`` beside them."""
    from rich.console import Console

    from gnnscale.core.files import write_atomically
    from gnnscale.partition import (
        PICTURE_FILE,
        make_partition,
        place_of,
        read_partition,
        write_parts,
        write_rows,
    )
    from gnnscale.report.partition import draw, print_partition
    from gnnscale.run.commands import PartitionConfig

    config = typed(options, PartitionConfig)
    graph = config.dataset.open()
    sizes = {"num_parts": config.num_parts, "num_hops": config.num_hops}
    # The stores of parts and the picture belong to the partition that is there now.
    with sole_maker(place_of(config.partitioner, graph, **sizes)):
        path = make_partition(
            config.partitioner, graph, **sizes, num_threads=config.num_threads, force=config.force
        )
        made = read_partition(path, graph)
        print_partition(made, graph=graph.name, console=Console())
        if not (path / PICTURE_FILE).exists():
            write_atomically(path / PICTURE_FILE, draw(made, graph=graph.name))
        if config.part_stores == "rows":
            write_rows(made, graph)
        elif config.part_stores:
            write_parts(made, graph)
    print(path)


def plan_cache(options: DictConfig) -> None:
    """Plan the caches of a run, show them, and draw ``cache_plan.svg`` beside the plan."""
    let_idle_threads_sleep()

    from rich.console import Console

    from gnnscale.cache import PICTURE_FILE, read_plan
    from gnnscale.core.files import write_atomically
    from gnnscale.report.cache_plan import draw, print_plan
    from gnnscale.run.artifacts import open_partition
    from gnnscale.run.commands import PlanCacheConfig
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


def train(options: DictConfig) -> float | None:
    """Train, and write ``summary.json`` into the run directory whatever the end.

    Returns the validation metric of the best epoch; None if it is not defined.
    """
    # A job of a sweep begins now, whenever the command did.
    began = time.monotonic() - (0.0 if _in_sweep() else process_age_s() or 0.0)
    try:
        return _train(options, began)
    except Exception as error:
        if _in_sweep():
            # The table of the sweep is to say that this job failed.
            _write_failure(_job_directory(), explain(error) or repr(error))
        raise


def _train(options: DictConfig, began: float) -> float | None:
    let_idle_threads_sleep()

    from omegaconf import OmegaConf
    from rich.console import Console

    from gnnscale.report.formatting import network_line
    from gnnscale.report.run_report import train_and_report
    from gnnscale.run.config import RunConfig
    from gnnscale.training.launcher.launch import launch

    config = typed(options, RunConfig)
    values: dict[str, Any] = OmegaConf.to_container(options, resolve=True) | {"resume": None}  # type: ignore[operator, assignment]
    command, run = _repeated(config.resume), restarting_run()
    if run is not None:
        if config.resume is None and leads_machine():
            run_directory.claim(_job_directory(), run)
        # If there is no checkpoint yet, the run begins.
        config = replace(config, resume=_job_directory())
    if torchrun_rank():
        from gnnscale.training.launcher.torchrun import train_other_rank

        train_other_rank(config, _job_directory(), options=values, job=_job())
        return None
    run_training: RunTraining = launch
    if torchrun_rank() is not None:
        from gnnscale.training.launcher.torchrun import train_rank0

        run_training = bound(train_rank0, job=_job())
    with _run_directory(options) as directory:
        result = train_and_report(
            config,
            directory,
            options=values,
            run_training=run_training,
            began=began,
            table=Console(),
            command=command,
        )
        if (line := network_line(result)) is not None:
            print(line)
        print(_verdict(result))
        print(directory)
    return result.valid_metric


def evaluate(options: DictConfig) -> None:
    """Measure the best checkpoint of a run and write ``evaluation.json`` beside it."""
    let_idle_threads_sleep()

    from dataclasses import asdict

    from gnnscale.inference.evaluate import evaluate as evaluate_run
    from gnnscale.report.summary import write_json
    from gnnscale.run.commands import EvaluateConfig

    config = typed(options, EvaluateConfig)
    file = config.run.resolve() / "evaluation.json"
    with run_directory.writing_into_run(config.run):
        evaluation = evaluate_run(config)
        write_json(file, asdict(evaluation))
    for split in ("train", "valid", "test"):
        print(_figure(evaluation, split))
    print(file)


def predict(options: DictConfig) -> None:
    """Write predictions or embeddings of a run's best checkpoint."""
    let_idle_threads_sleep()

    from gnnscale.inference.export import predict as task

    graph = take_graph(options)
    config = replace(typed(options, task.PredictConfig), graph=graph)
    with run_directory.writing_into_run(config.run, config.out):
        print(task.predict(config))


def take_graph(options: DictConfig) -> GraphSource | None:
    """Take the dataset out of ``options`` if it is another graph, not the places of a run's own."""
    from omegaconf import open_dict

    from gnnscale.data import GraphSource

    if "_target_" not in options.dataset:
        return None
    with open_dict(options):
        dataset = options.pop("dataset")
        for place in ("store", "raw"):  # which not every dataset has
            if dataset[place] is None:
                del dataset[place]
    base: type[Any] = GraphSource  # abstract; the dataset names one of its classes
    graph: GraphSource = typed(dataset, base, group="dataset")
    return graph


def export(options: DictConfig) -> None:
    """Write a run's best weights, and show what loads them."""
    let_idle_threads_sleep()

    from gnnscale.inference.export import weights

    config = typed(options, weights.ExportConfig)
    with run_directory.writing_into_run(config.run, config.file):
        done = weights.export(config)
    print(done.snippet)
    if done.note:
        print(f"note: {done.note}")
    print(done.file)


def doctor(options: DictConfig) -> None:
    """Show what was found on this machine, or in a store, and write it to ``doctor.json``."""
    let_idle_threads_sleep()

    from rich.console import Console

    from gnnscale.core.errors import GraphError
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
    with _output(options, ("doctor.json",)) as directory:
        file = directory / "doctor.json"
        write_json(file, findings)
        if config.calibrate:  # whose interruption leaves nothing
            file = _calibrate(Console())
    print(file)
    if problem is not None:
        raise GraphError(problem)


def _calibrate(console: Console) -> Path:
    """Measure this machine, show its rates and return the platform file."""
    from gnnscale.planner.calibration.calibrate import calibrate
    from gnnscale.planner.platform import platform_file
    from gnnscale.report.doctor import print_rates

    platform = calibrate()
    print_rates(platform.processor, console)
    platform.write(platform_file())
    return platform_file()


def simulate(options: DictConfig) -> None:
    """Predict training on a platform; write ``simulation.json`` and ``scaling.svg``."""
    from rich.console import Console

    from gnnscale.core.files import write_atomically
    from gnnscale.planner.simulator import SimulateConfig
    from gnnscale.planner.simulator import simulate as run_simulation
    from gnnscale.report.simulate import describe, draw, print_scaling
    from gnnscale.report.summary import write_json

    scaling = run_simulation(typed(options, SimulateConfig))
    print_scaling(scaling, Console())
    with _output(options, ("simulation.json", "scaling.svg")) as directory:
        write_json(directory / "simulation.json", describe(scaling))
        write_atomically(directory / "scaling.svg", draw(scaling))
    print(directory)


def generate(options: DictConfig) -> None:
    """Write a design's directory, or compare the vendor's reports with the design they are of."""
    let_idle_threads_sleep()

    from rich.console import Console

    from gnnscale.core.files import write_atomically
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
    # A refusal comes before the work.
    _check_output(NAMES, force=config.force)
    generated = run_generator(config)
    report.print_design(generated, Console())
    groups, chosen = _host_options(options)
    with _output(options, NAMES, force=config.force) as directory:
        generated.write(directory, groups=groups, options=chosen)
        write_json(directory / "estimate.json", report.describe(generated))
        write_atomically(directory / "estimate.html", report.page(generated))
        write_json(directory / DESIGN_FILE, generated.design.plain())
    print(directory)


def _compare(options: DictConfig, config: GenerateConfig) -> None:
    """Compare the vendor's reports with the design that they are of."""
    from rich.console import Console

    from gnnscale.core.files import write_atomically
    from gnnscale.fpga_design.vendor import compare
    from gnnscale.report import vendor_comparison as vendor
    from gnnscale.report.summary import write_json

    assert config.report is not None
    comparison = compare(config.report, config.design)
    vendor.print_comparison(comparison, Console())
    names = ("comparison.json", "comparison.html")
    with _output(options, names, force=config.force) as directory:
        write_json(directory / "comparison.json", vendor.describe(comparison))
        write_atomically(directory / "comparison.html", vendor.page(comparison))
    print(directory)


def _host_options(options: DictConfig) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the groups of a training run that were chosen, and the values of their options."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    from gnnscale.fpga_design.design import PARTITIONERS

    chosen = HydraConfig.get().runtime.choices
    groups = {name: str(chosen[name]) for name in ("model", "sampler")}
    partitioner = PARTITIONERS.get(options.system)
    if options.cards > 1 and partitioner is not None:
        groups["partitioner"] = partitioner
    if options.get("dataset") is not None:
        groups["dataset"] = str(chosen["dataset"])
    values: dict[str, Any] = {"seed": options.seed, "batch_size": options.batch_size}
    for name in groups.keys() & options.keys():
        plain: Any = OmegaConf.to_container(options[name], resolve=True)
        values[name] = {key: value for key, value in plain.items() if key != "_target_"}
    values["batch_size"] = options.batch_size * options.cards
    return groups, values


TASKS: dict[str, Callable[[Any], float | None]] = {
    task.__name__.replace("_", "-"): task
    for task in (
        *(prepare, partition, plan_cache, train, evaluate, predict, export),
        *(simulate, generate, doctor),
    )
}


@dataclass(frozen=True, kw_only=True)
class CommandJob:
    """A command's task as a job."""

    command: str
    #: whether the sweeper judges a job that fails, and may end the sweep; else others continue
    stops: bool = False
    code: tuple[str, ...] = ()  #: what the user has named of it, for the processes of a launcher

    def __call__(self, options: DictConfig) -> float | None:
        """Run the task; return the figure that sweepers look at, None if the job has none."""
        compose.register_resolvers()
        user_code.allow(self.code)
        name_lost_files()
        try:
            return TASKS[self.command](options)
        except (Exception, SystemExit) as raised:
            error = left_by(raised) if isinstance(raised, SystemExit) else raised
            failures.append(error)
            message = explain(error)
            print(one_line(message) if message else traceback.format_exc(), file=sys.stderr)
            if self.stops:
                raise error from raised
        return None


def left_by(leave: SystemExit) -> ConfigError:
    """Return what to say if a user's code has called ``sys.exit``; no task does."""
    place = traceback.extract_tb(leave.__traceback__)[-1]
    return ConfigError(f"SystemExit: {leave} ({place.filename}:{place.lineno})")


@contextmanager
def _run_directory(options: DictConfig) -> Iterator[Path]:
    """Make the run directory of a command, and log into it; for a job of a sweep it is made.

    No other command writes there meanwhile.
    """
    from hydra.core.hydra_config import HydraConfig

    if _in_sweep():
        directory = _job_directory()
        with (
            sole_writer(directory, option="hydra.sweep.dir"),
            run_directory.logged(directory),
        ):
            yield directory
        return
    hydra: Any = HydraConfig.get()
    typed = any(each.startswith("hydra.run.dir=") for each in _typed_options("hydra"))
    resumes, restarts = options.get("resume") is not None, bool(restarting_run())
    made = run_directory.made_directory(
        hydra.run.dir,
        options,
        hydra,
        fresh=not (typed or resumes or restarts),
        option="resume" if resumes else "output",
        wait_s=RESTART_WAIT_S if restarts else 0.0,
    )
    with made as directory:
        yield directory


@contextmanager
def _output(
    options: DictConfig, names: Sequence[str], *, force: bool | None = None
) -> Iterator[Path]:
    """Make the folder that a command writes files with these ``names`` into.

    A job of a sweep has one. ``force`` is that of ``run_directory.check_output``.
    """
    from hydra.core.hydra_config import HydraConfig

    if _in_sweep():
        directory = _job_directory()
        with sole_writer(directory, option="hydra.sweep.dir"):
            yield directory
        return
    hydra: Any = HydraConfig.get()
    composed = run_directory.COMPOSED
    with run_directory.made_output(hydra.run.dir, (composed, *names), force=force) as directory:
        (directory / composed).mkdir()
        run_directory.write_composed(directory, options, hydra)
        yield directory


def _check_output(names: Sequence[str], *, force: bool | None) -> None:
    """Refuse a folder that holds what a command would write, or a run."""
    from hydra.core.hydra_config import HydraConfig

    if not _in_sweep():
        directory = Path(HydraConfig.get().run.dir)
        run_directory.check_output(directory, (*names, run_directory.COMPOSED), force=force)


def _job_directory() -> Path:
    """Return the folder of this job, or of another process of torchrun."""
    from hydra.core.hydra_config import HydraConfig

    hydra = HydraConfig.get()
    return Path(hydra.runtime.output_dir if _in_sweep() else hydra.run.dir)


def _in_sweep() -> bool:
    """Return whether the running job is one of a sweep."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def _repeated(resume: Path | None) -> str | None:
    """Return the line that repeats the running job; None if it continues an earlier run."""
    if resume is not None:
        return None
    words = []
    for word in _typed_options("task"):
        name, _, value = word.lstrip("+").partition("=")
        if name == "experiment":  # which has another name for users
            of_file = re.fullmatch(r"file\d+_(.+)", value)
            word = f"config={of_file[1]}.yaml" if of_file else f"config={value}"
        words.append(word)
    return shlex.join(["gnnscale", "train", *words])


def _typed_options(kind: str) -> list[str]:
    """Return the options of the ``task`` or of ``hydra`` as typed, references unresolved."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    hydra: Any = HydraConfig.get()
    found: Any = OmegaConf.to_container(hydra.overrides[kind], resolve=False)
    return [str(each) for each in found]


def _job() -> int:
    """Return the number of the running job in its sweep."""
    from hydra.core.hydra_config import HydraConfig

    return int(HydraConfig.get().job.num) if _in_sweep() else 0


def _write_failure(directory: Path, message: str) -> None:
    """Leave word of a job that failed, unless its run has not done so itself."""
    from gnnscale.core.config.run_directory import SUMMARY_FILE
    from gnnscale.report.summary import write_json

    if not (directory / SUMMARY_FILE).exists():
        write_json(directory / SUMMARY_FILE, {"status": "failed", "error": message})


def _verdict(result: TrainResult) -> str:
    """The result in one line."""
    if result.test_metric is None:
        return f"test {result.metric} is not defined on {result.dataset}"
    attainable = "" if result.ceiling is None else f" of {result.ceiling:.4f} attainable"
    return (
        f"test {result.metric} {result.test_metric:.4f}{attainable}, {_others(result)}"
        f"with the weights of epoch {result.best_epoch} of {len(result.history)}"
    )


def _others(result: TrainResult) -> str:
    """The test metrics after the first."""
    rest = {name: each for name, each in result.test_metrics.items() if name != result.metric}
    return "".join(f"{name} {_shown(value)}, " for name, value in rest.items())


def _figure(evaluation: Evaluation, split: str) -> str:
    found = (f"{name} {_shown(value)}" for name, value in evaluation.metrics[split].items())
    return f"{split} {', '.join(found)}"


def _shown(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.4f}"
